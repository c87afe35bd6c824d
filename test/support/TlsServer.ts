/** A listener that shows a certificate and says nothing: for what a client makes of the certificate. */
import { Effect, type Scope } from "effect"
import * as tls from "node:tls"
import type { Certificate } from "./Certificates.ts"
import * as Loopback from "./Loopback.ts"

/** The same to who asks for TLS as a client of Postgres does. Answers its port on 127.0.0.1. */
export const startPostgres = ({ cert, key }: Certificate): Effect.Effect<number, never, Scope.Scope> =>
  Loopback.listen((client) => {
    client.on("error", () => client.destroy())
    client.once("data", () => {
      client.write("S")
      const secured = new tls.TLSSocket(client, { isServer: true, cert, key })
      secured.on("error", () => secured.destroy())
    })
  }, () => {})

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
