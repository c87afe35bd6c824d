/** What is advised, and what is taken for a refusal: without a broker, and by the words of kafkajs and Node. */
import { assert, describe, it } from "@effect/vitest"
import { Cause, Effect } from "effect"
import * as net from "node:net"
import * as Checkup from "../../../src/adapters/kafka/Checkup.ts"
import * as Client from "../../../src/adapters/kafka/Client.ts"
import * as Certificates from "../../support/Certificates.ts"
import * as TlsServer from "../../support/TlsServer.ts"

/** As the port of a load balancer without anybody behind it. */
const hangingUp = Effect.map(
  Effect.acquireRelease(
    Effect.callback<net.Server>((resume) => {
      const server = net.createServer((socket) => socket.on("error", () => {}).end())
      server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
    }),
    (server) => Effect.sync(() => void server.close())
  ),
  (server) => `127.0.0.1:${(server.address() as net.AddressInfo).port}`
)

const failed = (doing: string, message: string) => new Client.KafkaFailed({ doing, cause: new Error(message) })
const isRefused = (error: Client.KafkaFailed) => Client.failureOf(Cause.fail(error))[1]

describe("advice about Kafka", () => {
  it("who answers and refuses is told from who is away, though there is an advice for either", () => {
    const refusals = [
      failed("connecting", "SASL PLAIN authentication failed: Authentication failed"),
      failed("sending", "Not authorized to access topics: [Topic authorization failed]"),
      failed("connecting", "Connection error: self-signed certificate in certificate chain"),
      failed("connecting", "Connection error: certificate has expired")
    ]
    for (const error of refusals) {
      assert.isTrue(isRefused(error), error.message)
      assert.isNotNull(error.advice, error.message)
    }
    for (const message of ["Connection error: connect ECONNREFUSED 127.0.0.1:9092", "no answer within 3000 ms"]) {
      assert.isFalse(isRefused(failed("connecting", message)), message)
      assert.isNull(failed("connecting", message).advice, message)
    }
  })

  it.live("a port that hangs up at once may be an outage behind a proxy: it is advised and no refusal", () =>
    Effect.gen(function*() {
      const broker = yield* hangingUp
      yield* Effect.forEach([null, { ca: null, own: null }], (tls) =>
        Effect.gen(function*() {
          const error = yield* Effect.flip(Checkup.look({ brokers: [broker], tls }))
          assert.match(error.advice ?? `none for: ${error.reason}`, /DEADMAN_KAFKA_SSL/)
          assert.isFalse(isRefused(error), error.message)
        }), { concurrency: 2 })
    }).pipe(Effect.scoped))

  it.live("a certificate that is over is refused, and one that is not valid yet is waited for; both are said to be so", () =>
    Effect.gen(function*() {
      const authority = Certificates.authority("Deadman test authority")
      const tls = { ca: authority.cert, own: null }
      const wrong = [["200101000000Z", "210101000000Z", true], ["480101000000Z", "490101000000Z", false]] as const
      yield* Effect.forEach(wrong, ([from, to, refused]) =>
        Effect.gen(function*() {
          const port = yield* TlsServer.start(authority.issue("broker", ["127.0.0.1"], [from, to]))
          const error = yield* Effect.flip(Checkup.look({ brokers: [`127.0.0.1:${port}`], tls }))
          assert.match(error.advice ?? `none for: ${error.reason}`, /renew it, or mend this machine's clock/)
          assert.strictEqual(isRefused(error), refused, error.message)
        }), { concurrency: 2 })
    }).pipe(Effect.scoped))
})
