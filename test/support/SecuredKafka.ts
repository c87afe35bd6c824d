/**
 * A Kafka as most are run: TLS, logins and rights, beside a listener without any for the test itself.
 *
 * A login ends 12 s after it was made, so that a password that was changed is noticed while the test watches: kafkajs
 * makes it anew 10 s before its end.
 */
import { Effect, type Scope } from "effect"
import { pbkdf2Sync, randomBytes } from "node:crypto"
import * as Exchange from "../../deploy/services/Exchange.ts"
import * as Certificates from "./Certificates.ts"
import { eventually } from "./Eventually.ts"
import * as KafkaServer from "./KafkaServer.ts"
import { freePort, type ServiceFailed } from "./ThrowawayServer.ts"

export interface SecuredKafka {
  /** Without TLS and login, for the test itself, who may do everything. */
  readonly plain: string
  /** TLS and a login: `plain` for Ada, the others as `setPassword` says. */
  readonly secured: string
  /** TLS and a client certificate. */
  readonly mutual: string
  readonly authority: Certificates.Authority
  /** For `mutual`; to Kafka it is `CN=eve`. */
  readonly eve: Certificates.Certificate
  readonly setPassword: (user: string, mechanism: "scram-sha-256" | "scram-sha-512", password: string) => Effect.Effect<
    void
  >
}

export const adasPassword = "correct horse, battery = staple"

const compact = (bytes: Buffer) => Buffer.concat([Buffer.from([bytes.length + 1]), bytes])
const int32 = (value: number) => {
  const bytes = Buffer.alloc(4)
  bytes.writeInt32BE(value)
  return bytes
}

/** AlterUserScramCredentials, version 0, correlation id 7, no client id: kafkajs has no words for it. */
const alterCredentials = (user: string, mechanism: "scram-sha-256" | "scram-sha-512", password: string): Buffer => {
  const iterations = 4_096
  const salt = randomBytes(16)
  const [number, length, digest] = mechanism === "scram-sha-256"
    ? [1, 32, "sha256"] as const
    : [2, 64, "sha512"] as const
  const body = Buffer.concat([
    Buffer.from([0, 51, 0, 0, 0, 0, 0, 7, 0xff, 0xff, 0]),
    // No deletions, one insertion.
    Buffer.from([1, 2]),
    compact(Buffer.from(user)),
    Buffer.from([number]),
    int32(iterations),
    compact(salt),
    compact(pbkdf2Sync(password, salt, iterations, length, digest)),
    Buffer.from([0, 0])
  ])
  return Buffer.concat([int32(body.length), body])
}

/** Length, correlation id, tags, throttling, one result, its user, its error. */
const errorOf = (said: Buffer, user: string) => {
  const at = 4 + 4 + 1 + 4 + 1 + 1 + Buffer.byteLength(user)
  return said.length < at + 2 ? undefined : { code: said.readInt16BE(at) }
}

export const start: Effect.Effect<SecuredKafka, ServiceFailed, Scope.Scope> = Effect.gen(function*() {
  const authority = Certificates.authority("Deadman test authority")
  const broker = authority.issue("broker", ["127.0.0.1"])
  const [port, secured, mutual, controller] = yield* Effect.all([freePort, freePort, freePort, freePort])
  const inline = (pem: string) => pem.trim().replaceAll("\n", "\\n")
  const listeners = `PLAINTEXT://127.0.0.1:${port},SECURED://127.0.0.1:${secured},MUTUAL://127.0.0.1:${mutual}`
  const scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
  yield* KafkaServer.start({
    port,
    controllerPort: controller,
    settings: {
      "listeners": `${listeners},CONTROLLER://127.0.0.1:${controller}`,
      "advertised.listeners": listeners,
      "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL,MUTUAL:SSL",
      "ssl.keystore.type": "PEM",
      "ssl.keystore.certificate.chain": inline(broker.cert + authority.cert),
      "ssl.keystore.key": inline(broker.key),
      "ssl.truststore.type": "PEM",
      "ssl.truststore.certificates": inline(authority.cert),
      "listener.name.mutual.ssl.client.auth": "required",
      "listener.name.secured.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
      "listener.name.secured.plain.sasl.jaas.config":
        `org.apache.kafka.common.security.plain.PlainLoginModule required user_ada="${adasPassword}";`,
      "listener.name.secured.scram-sha-256.sasl.jaas.config": scram,
      "listener.name.secured.scram-sha-512.sasl.jaas.config": scram,
      "connections.max.reauth.ms": "12000",
      "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
      "super.users": "User:ANONYMOUS"
    }
  })
  return {
    plain: `127.0.0.1:${port}`,
    secured: `127.0.0.1:${secured}`,
    mutual: `127.0.0.1:${mutual}`,
    authority,
    eve: authority.issue("eve"),
    setPassword: (user, mechanism, password) =>
      eventually(
        `${user} has that password`,
        Effect.map(
          Exchange.ask(port, alterCredentials(user, mechanism, password), (said) => errorOf(said, user)),
          (answer) => answer._tag === "Some" && answer.value.code === 0
        )
      )
  }
})
