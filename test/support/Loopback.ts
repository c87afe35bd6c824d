/** A listener on loopback, on a port that is free, for as long as the scope. */
import { Effect, type Scope } from "effect"
import { createServer, type Server, type Socket } from "node:net"

/** The port. `close` ends what was served. */
export const listen = (
  serve: (client: Socket) => void,
  close: () => void
): Effect.Effect<number, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Effect.callback<Server>((resume) => {
        const server = createServer(serve)
        server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
      }),
      (server) =>
        Effect.sync(() => {
          server.close()
          close()
        })
    ),
    (server) => {
      const address = server.address()
      return typeof address === "object" && address !== null ? address.port : 0
    }
  )
