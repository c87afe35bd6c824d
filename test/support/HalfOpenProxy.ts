/**
 * A TCP proxy on loopback that can go half-open: bytes are taken and lost, and
 * no connection is closed. To both ends it looks as if nothing happened.
 */
import { Effect, type Scope } from "effect"
import { connect, type Socket } from "node:net"
import * as Loopback from "./Loopback.ts"

export interface HalfOpenProxy {
  readonly port: number
  /** From now on the present connections forward nothing; later ones are not affected. */
  readonly halfOpen: Effect.Effect<void>
  /** How many connections clients have open to it, the half-open ones included. */
  readonly connections: Effect.Effect<number>
}

interface Pair {
  silent: boolean
}

export const make = (target: { readonly port: number }): Effect.Effect<HalfOpenProxy, never, Scope.Scope> =>
  Effect.gen(function*() {
    const pairs = new Map<Pair, ReadonlyArray<Socket>>()
    const serve = (client: Socket) => {
      const server = connect(target.port, "127.0.0.1")
      const pair: Pair = { silent: false }
      pairs.set(pair, [client, server])
      const forward = (from: Socket, to: Socket) => {
        from.setNoDelay(true)
        from.on("data", (chunk) => {
          if (!pair.silent) {
            to.write(chunk)
          }
        })
        const end = () => {
          from.destroy()
          // The news of an end is lost as well.
          if (!pair.silent) {
            to.destroy()
            pairs.delete(pair)
          }
        }
        from.on("error", end)
        from.on("close", end)
      }
      forward(client, server)
      forward(server, client)
    }
    const port = yield* Loopback.listen(serve, () => {
      for (const sockets of pairs.values()) {
        for (const socket of sockets) {
          socket.destroy()
        }
      }
    })
    return {
      port,
      halfOpen: Effect.sync(() => {
        for (const pair of pairs.keys()) {
          pair.silent = true
        }
      }),
      connections: Effect.sync(() =>
        Array.from(pairs.values()).filter(([client]) => client?.destroyed === false).length
      )
    }
  })
