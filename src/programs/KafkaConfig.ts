/** Which Kafka, and how it is spoken to, from the environment: for every program that does, and for the doctor. */
import { type Config, Effect, Redacted } from "effect"
import type { Options } from "../adapters/kafka/Client.ts"
import { type Login, mechanisms } from "../adapters/kafka/Login.ts"
import * as PemFiles from "./PemFiles.ts"
import * as Variables from "./process/Variables.ts"

export type KafkaConfig = Required<Omit<Options, "installation">>

type Failed = Variables.Misconfigured | Config.ConfigError

const login = {
  mechanism: "DEADMAN_KAFKA_SASL_MECHANISM",
  username: "DEADMAN_KAFKA_SASL_USERNAME",
  password: "DEADMAN_KAFKA_SASL_PASSWORD"
} as const
const files: PemFiles.Names = {
  ca: "DEADMAN_KAFKA_SSL_CA",
  cert: "DEADMAN_KAFKA_SSL_CERT",
  key: "DEADMAN_KAFKA_SSL_KEY"
}
const prefixed = "DEADMAN_KAFKA_PREFIX"
const companions = [...Object.values(files), ...Object.values(login), prefixed]

/** Whether it asks for anything: defaults may be said. */
const asks = (name: string) =>
  Effect.map(
    Variables.text(name),
    (value) => value !== null && !(name === login.mechanism && value.toLowerCase() === "none")
  )

/** `host:port`, with commas between. */
const brokersOf = (text: string): ReadonlyArray<string> | null => {
  const brokers = text.split(",").map((broker) => broker.trim())
  const isBroker = (broker: string): boolean => {
    const port = Number(/^[^\s:/@]+:([0-9]{1,5})$/.exec(broker)?.[1])
    return port >= 1 && port <= 65_535
  }
  return brokers.every(isBroker) ? brokers : null
}

const loginFromEnv: Effect.Effect<Login | null, Failed> = Effect.gen(function*() {
  const mechanism = yield* Variables.oneOf(login.mechanism, ["none", ...mechanisms], "none")
  const username = yield* Variables.text(login.username)
  const password = yield* Variables.text(login.password)
  if (mechanism === "none") {
    const half = username !== null ? login.username : password !== null ? login.password : null
    return half === null
      ? null
      : yield* Variables.wrong(login.mechanism, `must be set too (plain, scram-sha-256, scram-sha-512): ${half} is`)
  }
  if (username === null || password === null) {
    return yield* Variables.wrong(
      username === null ? login.username : login.password,
      `must be set too: ${login.mechanism} asks for a login`
    )
  }
  return { mechanism, username, password: Redacted.make(password) }
})

/** `null` where no brokers are named. */
export const fromEnv: Effect.Effect<KafkaConfig | null, Failed> = Effect.gen(function*() {
  const text = yield* Variables.text("DEADMAN_KAFKA_BROKERS")
  const withTls = (yield* Variables.oneOf("DEADMAN_KAFKA_SSL", ["true", "false"], "false")) === "true"
  if (text === null) {
    const [alone] = withTls ? ["DEADMAN_KAFKA_SSL"] : yield* Effect.filter(companions, asks)
    return alone === undefined
      ? null
      : yield* Variables.wrong(alone, "is set and DEADMAN_KAFKA_BROKERS is not: name the brokers, or leave it out")
  }
  const brokers = brokersOf(text)
  if (brokers === null) {
    return yield* Variables.wrong("DEADMAN_KAFKA_BROKERS", "must look like host:9092,other:9092")
  }
  const pem = yield* PemFiles.fromEnv(files, withTls, "set DEADMAN_KAFKA_SSL=true")
  const prefix = (yield* Variables.text(prefixed)) ?? ""
  if (!/^[A-Za-z0-9._-]{0,100}$/.test(prefix)) {
    return yield* Variables.wrong(prefixed, "must be up to 100 of A-Z a-z 0-9 . _ -: it begins the names of topics")
  }
  return { brokers, prefix, tls: withTls ? pem : null, login: yield* loginFromEnv }
})
