/**
 * A TCP proxy on loopback whose connections can be cut or made half-open.
 *
 * Half-open: what is sent is taken and lost, and no end is told of the other's. To both it looks as if nothing had
 * happened. Later connections are not affected.
 */
import { Effect, type Scope } from "effect"
import { connect, createServer, type Server, type Socket } from "node:net"

export interface Proxy {
  readonly port: number
  /** Cuts about so large a share of the connections, and says how many. */
  readonly cut: (share: number) => Effect.Effect<number>
  readonly halfOpen: (share: number) => Effect.Effect<number>
  /** Ends the half-open ones. */
  readonly mend: Effect.Effect<void>
}

interface Pair {
  readonly sockets: readonly [client: Socket, server: Socket]
  silent: boolean
}

const golden = 0.618_033_988_75

export const make = (target: number): Effect.Effect<Proxy, never, Scope.Scope> =>
  Effect.gen(function*() {
    const pairs = new Set<Pair>()
    const end = (pair: Pair) => {
      pairs.delete(pair)
      pair.sockets[0].destroy()
      pair.sockets[1].destroy()
    }
    const serve = (client: Socket) => {
      const server = connect(target, "127.0.0.1")
      const pair: Pair = { sockets: [client, server], silent: false }
      pairs.add(pair)
      const forward = (from: Socket, to: Socket) => {
        from.setNoDelay(true)
        from.on("data", (chunk) => {
          if (pair.silent || to.destroyed) return
          if (!to.write(chunk)) {
            from.pause()
            to.once("drain", () => from.resume())
          }
        })
        const over = () => {
          // The news of an end is lost as well.
          if (!pair.silent) end(pair)
        }
        from.on("end", over)
        from.on("error", over)
        from.on("close", over)
      }
      forward(client, server)
      forward(server, client)
    }
    const listening = yield* Effect.acquireRelease(
      Effect.callback<Server>((resume) => {
        const server = createServer({ allowHalfOpen: true }, serve)
        server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
      }),
      (server) =>
        Effect.sync(() => {
          server.close()
          for (const pair of pairs) end(pair)
        })
    )
    const address = listening.address()
    const chosen = (share: number) => [...pairs].filter((pair, index) => !pair.silent && (index * golden) % 1 < share)
    return {
      port: typeof address === "object" && address !== null ? address.port : 0,
      cut: (share) =>
        Effect.sync(() => {
          const hit = chosen(share)
          hit.forEach(end)
          return hit.length
        }),
      halfOpen: (share) =>
        Effect.sync(() => {
          const hit = chosen(share)
          for (const pair of hit) pair.silent = true
          return hit.length
        }),
      mend: Effect.sync(() => {
        for (const pair of [...pairs].filter(({ silent }) => silent)) end(pair)
      })
    }
  })
