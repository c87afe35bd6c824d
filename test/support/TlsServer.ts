/** A listener that shows a certificate and says nothing: for what a client makes of the certificate. */
import { Effect, type Scope } from "effect"
import * as tls from "node:tls"
import type { Certificate } from "./Certificates.ts"

/** Answers its port on 127.0.0.1. */
export const start = ({ cert, key }: Certificate): Effect.Effect<number, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Effect.callback<tls.Server>((resume) => {
        const server = tls.createServer({ cert, key }, (socket) => socket.on("error", () => socket.destroy()))
        server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
      }),
      (server) => Effect.sync(() => void server.close())
    ),
    (server) => (server.address() as { readonly port: number }).port
  )
