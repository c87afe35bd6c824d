/** What is said about a Kafka, and a Redis, that is named in parts or wrongly: before anything connects. */
import { assert, it } from "@effect/vitest"
import { ConfigProvider, Effect, Layer, Redacted } from "effect"
import { join } from "node:path"
import * as KafkaConfig from "../../src/programs/KafkaConfig.ts"
import * as Layers from "../../src/programs/Layers.ts"
import type { StoreOptions } from "../../src/programs/Options.ts"
import * as RedisConfig from "../../src/programs/RedisConfig.ts"
import * as Certificates from "../support/Certificates.ts"
import * as Files from "../support/Files.ts"

const { file, folder } = Files.make()

const authority = Certificates.authority("an authority")
const own = authority.issue("worker")
const ca = file("ca.pem", `What an authority gives out.\n${authority.cert}`)
const cert = file("cert.pem", own.cert + authority.cert)
const key = file("key.pem", own.key)
const other = file("other.pem", authority.issue("other").key)
const garbage = file("garbage.pem", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
const nothing = file("nothing.jks", "\u00fe\u00ed\u00fe\u00ed")

const from = <A, E>(config: Effect.Effect<A, E>, env: Record<string, string>) =>
  Effect.provide(config, ConfigProvider.layer(ConfigProvider.fromEnv({ env })))

const brokers = { DEADMAN_KAFKA_BROKERS: "a:9093, b:9093" }
const secret = "hunter2"
const login = {
  DEADMAN_KAFKA_SASL_MECHANISM: "SCRAM-SHA-256",
  DEADMAN_KAFKA_SASL_USERNAME: "ada",
  DEADMAN_KAFKA_SASL_PASSWORD: secret
}
const tls = { DEADMAN_KAFKA_SSL: "true" }

it.effect("a Kafka is whole with brokers alone, and with all of TLS and a login", () =>
  Effect.gen(function*() {
    assert.isNull(yield* from(KafkaConfig.fromEnv, { DEADMAN_KAFKA_BROKERS: "", DEADMAN_KAFKA_SSL: "false" }))
    assert.deepStrictEqual(yield* from(KafkaConfig.fromEnv, brokers), {
      brokers: ["a:9093", "b:9093"],
      prefix: "",
      tls: null,
      login: null
    })
    const whole = yield* from(KafkaConfig.fromEnv, {
      ...brokers,
      ...tls,
      ...login,
      DEADMAN_KAFKA_SSL_CA: ca,
      DEADMAN_KAFKA_SSL_CERT: cert,
      DEADMAN_KAFKA_SSL_KEY: key
    })
    assert.strictEqual(whole?.login?.mechanism, "scram-sha-256")
    assert.strictEqual(Redacted.value(whole!.login!.password), secret)
    assert.include(whole?.tls?.ca ?? "", authority.cert)
    assert.strictEqual(whole?.tls?.own?.cert, own.cert + authority.cert)
    assert.strictEqual(Redacted.value(whole!.tls!.own!.key), own.key)
    for (const hidden of [secret, own.key.split("\n")[1]!]) {
      assert.notInclude(JSON.stringify(whole), hidden)
    }
  }))

const wrong: ReadonlyArray<readonly [said: RegExp, env: Record<string, string>]> = [
  [/^DEADMAN_KAFKA_BROKERS must look like/, { DEADMAN_KAFKA_BROKERS: `kafka://ada:${secret}@h:9092` }],
  [/^DEADMAN_KAFKA_PREFIX must be up to 100 of/, { ...brokers, DEADMAN_KAFKA_PREFIX: "a team/" }],
  [/^DEADMAN_KAFKA_PREFIX is set and DEADMAN_KAFKA_BROKERS is not/, { DEADMAN_KAFKA_PREFIX: "billing." }],
  [/^DEADMAN_KAFKA_SSL must be one of true, false/, { ...brokers, DEADMAN_KAFKA_SSL: "yes" }],
  [/^DEADMAN_KAFKA_SSL is set and DEADMAN_KAFKA_BROKERS is not/, tls],
  [/^DEADMAN_KAFKA_SASL_MECHANISM is set and DEADMAN_KAFKA_BROKERS is not/, login],
  [/^DEADMAN_KAFKA_SSL_CA has no effect without TLS: set DEADMAN_KAFKA_SSL=true/, {
    ...brokers,
    DEADMAN_KAFKA_SSL_CA: ca
  }],
  [/^DEADMAN_KAFKA_SSL_CA names a file that cannot be read: ENOENT/, {
    ...brokers,
    ...tls,
    DEADMAN_KAFKA_SSL_CA: join(folder, "none.pem")
  }],
  [/^DEADMAN_KAFKA_SSL_CA names a file that cannot be read: EISDIR/, {
    ...brokers,
    ...tls,
    DEADMAN_KAFKA_SSL_CA: folder
  }],
  [/^DEADMAN_KAFKA_SSL_KEY names a file that cannot be read: ENAMETOOLONG$/, {
    ...brokers,
    ...tls,
    DEADMAN_KAFKA_SSL_CERT: cert,
    // The key itself, in base64.
    DEADMAN_KAFKA_SSL_KEY: Buffer.alloc(300, secret).toString("base64")
  }],
  [/^DEADMAN_KAFKA_SSL_CA names a file without a certificate/, { ...brokers, ...tls, DEADMAN_KAFKA_SSL_CA: nothing }],
  [/^DEADMAN_KAFKA_SSL_CA names a file with a broken certificate/, {
    ...brokers,
    ...tls,
    DEADMAN_KAFKA_SSL_CA: garbage
  }],
  [/^DEADMAN_KAFKA_SSL_CA must be the path of a PEM file/, {
    ...brokers,
    ...tls,
    DEADMAN_KAFKA_SSL_CA: authority.cert
  }],
  [/^DEADMAN_KAFKA_SSL_KEY must be set too: DEADMAN_KAFKA_SSL_CERT/, {
    ...brokers,
    ...tls,
    DEADMAN_KAFKA_SSL_CERT: cert
  }],
  [/^DEADMAN_KAFKA_SSL_CERT must be set too: DEADMAN_KAFKA_SSL_KEY/, {
    ...brokers,
    ...tls,
    DEADMAN_KAFKA_SSL_KEY: key
  }],
  [/^DEADMAN_KAFKA_SSL_KEY is not the key of the first certificate/, {
    ...brokers,
    ...tls,
    DEADMAN_KAFKA_SSL_CERT: cert,
    DEADMAN_KAFKA_SSL_KEY: other
  }],
  [/^DEADMAN_KAFKA_SSL_KEY must name a file with a private key/, {
    ...brokers,
    ...tls,
    DEADMAN_KAFKA_SSL_CERT: cert,
    DEADMAN_KAFKA_SSL_KEY: ca
  }],
  [/^DEADMAN_KAFKA_SASL_MECHANISM must be one of none, plain, scram-sha-256, scram-sha-512/, {
    ...brokers,
    ...login,
    DEADMAN_KAFKA_SASL_MECHANISM: "oauthbearer"
  }],
  [/^DEADMAN_KAFKA_SASL_MECHANISM must be set too .*: DEADMAN_KAFKA_SASL_USERNAME is/, {
    ...brokers,
    ...login,
    DEADMAN_KAFKA_SASL_MECHANISM: ""
  }],
  [/^DEADMAN_KAFKA_SASL_MECHANISM must be set too .*: DEADMAN_KAFKA_SASL_PASSWORD is/, {
    ...brokers,
    DEADMAN_KAFKA_SASL_PASSWORD: secret
  }],
  [/^DEADMAN_KAFKA_SASL_USERNAME must be set too/, { ...brokers, ...login, DEADMAN_KAFKA_SASL_USERNAME: "" }],
  [/^DEADMAN_KAFKA_SASL_PASSWORD must be set too/, { ...brokers, ...login, DEADMAN_KAFKA_SASL_PASSWORD: " " }]
]

it.effect.each(wrong.map(([said, env]) => ({ said, env })))(
  "of a Kafka it is said: $said",
  ({ env, said }) =>
    Effect.gen(function*() {
      const { message } = yield* Effect.flip(from(KafkaConfig.fromEnv, env))
      assert.match(message, said)
      assert.notInclude(message, "\n")
      assert.notInclude(message, secret)
      assert.notInclude(message, "-----BEGIN PRIVATE")
    })
)

it.effect("a Redis takes files for rediss: alone", () =>
  Effect.gen(function*() {
    const files = { DEADMAN_REDIS_SSL_CA: ca, DEADMAN_REDIS_SSL_CERT: cert, DEADMAN_REDIS_SSL_KEY: key }
    assert.isNull(yield* from(RedisConfig.fromEnv, {}))
    const whole = yield* from(RedisConfig.fromEnv, { ...files, DEADMAN_REDIS_URL: `rediss://ada:${secret}@h` })
    assert.include(whole?.pem.ca ?? "", authority.cert)
    assert.notInclude(JSON.stringify(whole), secret)
    assert.strictEqual(whole?.prefix, "deadman:")
    const DEADMAN_REDIS_URL = "redis://h"
    const apart = yield* from(RedisConfig.fromEnv, { DEADMAN_REDIS_URL, DEADMAN_REDIS_PREFIX: "billing:" })
    assert.strictEqual(apart?.prefix, "billing:")
    const strange = yield* Effect.flip(from(RedisConfig.fromEnv, { DEADMAN_REDIS_URL, DEADMAN_REDIS_PREFIX: "a b" }))
    assert.match(strange.message, /^DEADMAN_REDIS_PREFIX must be 1 to 100 of/)
    const alone = yield* Effect.flip(from(RedisConfig.fromEnv, { DEADMAN_REDIS_PREFIX: "billing:" }))
    assert.match(alone.message, /^DEADMAN_REDIS_PREFIX is set and DEADMAN_REDIS_URL is not/)
    for (const url of ["", `redis://:${secret}@h`]) {
      const { message } = yield* Effect.flip(from(RedisConfig.fromEnv, { ...files, DEADMAN_REDIS_URL: url }))
      assert.match(message, /^DEADMAN_REDIS_SSL_CA has no effect without TLS: write rediss: in DEADMAN_REDIS_URL/)
    }
    const { message } = yield* Effect.flip(from(RedisConfig.fromEnv, { DEADMAN_REDIS_URL: `redis://:${secret}@#@h` }))
    assert.match(message, /^DEADMAN_REDIS_URL must look like .* escaped/)
    assert.notInclude(message, secret)
  }))

it.effect("a program of one's own is told in the words of its options", () =>
  Effect.gen(function*() {
    const said = (options: StoreOptions) =>
      Layer.build(Layers.layerPorts({ databaseUrl: "postgres://nobody@127.0.0.1:1/none", ...options })).pipe(
        Effect.flip,
        Effect.map(({ message }) => message)
      )
    const kafkaBrokers = "127.0.0.1:1"
    assert.match(yield* said({ kafkaBrokers, kafkaSslCa: ca }), /^kafkaSslCa has no effect without TLS: set DEADMAN_/)
    assert.match(
      yield* said({ kafkaBrokers, kafkaSsl: true, kafkaSslCa: join(folder, "none.pem") }),
      /^kafkaSslCa names a file that cannot be read/
    )
    assert.match(
      yield* said({ kafkaBrokers, kafkaSaslMechanism: "plain", kafkaSaslPassword: secret }),
      /^DEADMAN_KAFKA_SASL_USERNAME must be set too: kafkaSaslMechanism asks for a login$/
    )
    assert.match(yield* said({ redisUrl: "redis://h", redisSslCa: ca }), /^redisSslCa has no effect .* in redisUrl/)
    assert.match(yield* said({ redisPrefix: "billing:" }), /^redisPrefix is set and DEADMAN_REDIS_URL is not/)
    assert.match(yield* said({ kafkaPrefix: "billing." }), /^kafkaPrefix is set and DEADMAN_KAFKA_BROKERS is not/)
  }).pipe(Effect.scoped))

it.effect("without brokers the defaults may be said, and mean no Kafka, and without a URL no Redis", () =>
  Effect.gen(function*() {
    assert.isNull(yield* from(RedisConfig.fromEnv, { DEADMAN_REDIS_PREFIX: "deadman:" }))
    const said = { DEADMAN_KAFKA_SSL: "false", DEADMAN_KAFKA_SASL_MECHANISM: "none" }
    assert.isNull(yield* from(KafkaConfig.fromEnv, said))
  }))
