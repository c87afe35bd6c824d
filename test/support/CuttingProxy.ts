/**
 * A TCP proxy on loopback that loses answers: what the client sent arrives and
 * takes effect, and then the connection is gone.
 */
import { Effect, type Scope } from "effect"
import { connect, type Socket } from "node:net"
import * as Loopback from "./Loopback.ts"

export interface CuttingProxy {
  readonly port: number
  /** The next `n` answers are lost, one connection each; so many pass before. */
  readonly loseAnswers: (n: number, passing?: number) => Effect.Effect<void>
  /** How many were lost so far. */
  readonly lost: Effect.Effect<number>
}

export const make = (target: { readonly port: number }): Effect.Effect<CuttingProxy, never, Scope.Scope> =>
  Effect.gen(function*() {
    let toLose = 0
    let toPass = 0
    let lost = 0
    const sockets = new Set<Socket>()
    const serve = (client: Socket) => {
      const server = connect(target.port, "127.0.0.1")
      const end = () => {
        client.destroy()
        server.destroy()
        sockets.delete(client)
        sockets.delete(server)
      }
      sockets.add(client).add(server)
      // The greeting is not an answer: a connection is only cut once it has been asked something.
      let asked = 0
      client.on("data", (chunk) => {
        asked += 1
        server.write(chunk)
      })
      server.on("data", (chunk) => {
        if (toLose > 0 && toPass > 0) {
          toPass -= 1
          client.write(chunk)
        } else if (toLose > 0 && asked > 3) {
          toLose -= 1
          lost += 1
          end()
        } else {
          client.write(chunk)
        }
      })
      for (const socket of [client, server]) {
        socket.setNoDelay(true)
        socket.on("error", end)
        socket.on("close", end)
      }
    }
    const port = yield* Loopback.listen(serve, () => sockets.forEach((socket) => socket.destroy()))
    return {
      port,
      loseAnswers: (n, passing = 0) =>
        Effect.sync(() => {
          toLose += n
          toPass = passing
        }),
      lost: Effect.sync(() => lost)
    }
  })
