/**
 * The Redis and the Kafka that a whole run shares: which they are, or why there are none.
 *
 * In this order: what `DEADMAN_TEST_REDIS_URL` and `DEADMAN_TEST_KAFKA_BROKERS` name; what `npm run services:up`
 * started, if it answers; one of the run's own. With `CI` or `DEADMAN_TEST_INSTALL` set, what a server of its own needs
 * is installed first; with `CI`, having none fails the run.
 *
 * Kafka starts while the first tests run: a suite that needs it asks for it here and waits. Others may use the same
 * servers at the same time, so keys, topics and groups want names of their own; what must be flushed, frozen or wiped
 * is a `RedisServer` or a `KafkaServer`.
 */
import { Config, Effect, Exit, Option, type Scope } from "effect"
import { readFileSync } from "node:fs"
import { describe } from "vitest"
import * as Kafka from "../../deploy/services/Kafka.ts"
import * as Redis from "../../deploy/services/Redis.ts"
import * as Settings from "../../deploy/services/Settings.ts"
import { eventually } from "./Eventually.ts"
import * as KafkaServer from "./KafkaServer.ts"
import * as RedisServer from "./RedisServer.ts"
import { freePort, ServiceFailed } from "./ThrowawayServer.ts"

export const redisVariable = "DEADMAN_TEST_REDIS_URL"
export const kafkaVariable = "DEADMAN_TEST_KAFKA_BROKERS"
/** Why there is none, for those who ask. */
const whyNot = (variable: string) => `${variable}_MISSING`

/** What `services:up` started. */
const portsUp = Effect.gen(function*() {
  const { folder } = yield* Settings.config
  return Option.map(yield* Settings.started(folder), ({ ports }) => ports)
}).pipe(Effect.orElseSucceed(() => Option.none<Settings.Ports>()))

const install = Effect.map(
  Effect.all([Config.option(Config.String("CI")), Config.option(Config.String("DEADMAN_TEST_INSTALL"))]),
  ([ci, asked]) => Option.isSome(ci) || Option.isSome(asked)
)

const given = (variable: string) =>
  Config.option(Config.String(variable)).pipe(Effect.map(Option.filter((value) => value !== "")))

const missing = (advice: string) =>
  new ServiceFailed({ message: `${advice}; or set DEADMAN_TEST_INSTALL=1, and the tests try to install it` })

const provideRedis = Effect.gen(function*() {
  const url = yield* given(redisVariable)
  if (Option.isSome(url)) return url.value
  const up = yield* portsUp
  if (Option.isSome(up) && Option.isSome(yield* Redis.ask(up.value.redis))) return `redis://127.0.0.1:${up.value.redis}`
  if (yield* install) yield* Redis.program
  if (Option.isNone(yield* Redis.find)) return yield* missing(Redis.advice)
  return (yield* RedisServer.start()).url
})

const provideKafka = Effect.gen(function*() {
  const brokers = yield* given(kafkaVariable)
  if (Option.isSome(brokers)) return brokers.value
  const up = yield* portsUp
  if (Option.isSome(up) && (yield* Kafka.answers(up.value.kafka))) return `127.0.0.1:${up.value.kafka}`
  if (yield* install) yield* Kafka.jars
  const lacks = yield* Kafka.missing
  if (Option.isSome(lacks)) return yield* missing(lacks.value)
  const port = yield* freePort
  yield* KafkaServer.start({ port }).pipe(
    Effect.flatMap(({ createTopics }) => createTopics()),
    Effect.catch((error) => Effect.sync(() => process.stderr.write(`the Kafka of the tests: ${error.message}\n`))),
    Effect.forkScoped({ startImmediately: true })
  )
  return `127.0.0.1:${port}`
})

const settle = (variable: string, exit: Exit.Exit<string, { readonly message: string }>) => {
  if (Exit.isSuccess(exit)) {
    process.env[variable] = exit.value
    return Option.none<string>()
  }
  const error = Exit.findErrorOption(exit)
  const reason = Option.isSome(error) ? error.value.message : String(exit.cause)
  process.env[whyNot(variable)] = reason
  return Option.some(reason)
}

/** Puts both into the environment of the tests, and answers what is missing, in words. */
export const provide = (
  wanted: { readonly kafka: boolean }
): Effect.Effect<ReadonlyArray<string>, ServiceFailed, Scope.Scope> =>
  Effect.gen(function*() {
    const notWanted = new ServiceFailed({ message: "no test file of this run speaks of Kafka, so none was started" })
    const [redis, kafka] = yield* Effect.all([
      Effect.exit(provideRedis),
      Effect.exit(wanted.kafka ? provideKafka : Effect.fail(notWanted))
    ], { concurrency: "unbounded" })
    const noRedis = settle(redisVariable, redis)
    const noKafka = settle(kafkaVariable, kafka)
    const missing = [
      ...Option.toArray(noRedis).map((reason) => `every test that needs Redis, because ${reason}`),
      ...Option.toArray(wanted.kafka ? noKafka : Option.none()).map((reason) =>
        `every test that needs Kafka, because ${reason}`
      )
    ]
    if (missing.length > 0 && Option.isSome(yield* Effect.orDie(Config.option(Config.String("CI"))))) {
      return yield* new ServiceFailed({ message: `CI runs every test, and cannot run ${missing.join("; nor ")}` })
    }
    return missing
  })

/** Whether a run with these files needs a Kafka: one of them speaks of it. */
export const speakOfKafka = (files: ReadonlyArray<string>): boolean =>
  files.some((file) => /kafka/i.test(readFileSync(file, "utf8")))

const suite = (variable: string) => (name: string, body: () => void): void => {
  const missing = process.env[whyNot(variable)]
  const run = missing === undefined ? describe : describe.skip
  run(missing === undefined ? name : `${name} (not run: ${missing})`, body)
}

/** A suite that runs where the run has a Redis, and says why where it has none. On CI it always runs. */
export const describeWithRedis = suite(redisVariable)

/** A suite that runs where the run has a Kafka, and says why where it has none. On CI it always runs. */
export const describeWithKafka = suite(kafkaVariable)

export const redisUrl: Effect.Effect<string> = Effect.orDie(Config.String(redisVariable))

/** Waits until the run's Kafka answers. */
export const kafkaBrokers: Effect.Effect<string> = Effect.gen(function*() {
  const brokers = yield* Config.String(kafkaVariable)
  const port = Number(brokers.split(",")[0]?.split(":")[1])
  yield* eventually(`a Kafka answers on ${brokers}`, Kafka.answers(port), "2 minutes")
  return brokers
}).pipe(Effect.orDie)
