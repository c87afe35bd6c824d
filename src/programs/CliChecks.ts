/**
 * What `deadman migrate` and `deadman doctor` do.
 *
 * Apart from the commands, which load it when one of them runs: the drivers of three services come with it, and no
 * other command needs one.
 */
import { Clock, type Config, Effect, Option, type Scope } from "effect"
import { existsSync } from "node:fs"
import { join, resolve } from "node:path"
import * as EmbeddedPostgres from "../adapters/embedded/EmbeddedPostgres.ts"
import { defaults, http, make } from "../adapters/http/Client.ts"
import * as KafkaCheckup from "../adapters/kafka/Checkup.ts"
import * as PostgresCheckup from "../adapters/postgres/Checkup.ts"
import * as Migrations from "../adapters/postgres/Migrations.ts"
import type { Server } from "../adapters/postgres/Target.ts"
import * as RedisCheckup from "../adapters/redis/Checkup.ts"
import * as Table from "./cli/Table.ts"
import { type Answer, CliFailed, exits, root, tokenOf, Unsaid, usage } from "./CliRoot.ts"
import * as Finding from "./doctor/Finding.ts"
import * as KafkaFindings from "./doctor/KafkaFindings.ts"
import * as PostgresFindings from "./doctor/PostgresFindings.ts"
import * as RedisFindings from "./doctor/RedisFindings.ts"
import * as KafkaConfig from "./KafkaConfig.ts"
import * as Variables from "./process/Variables.ts"
import * as RedisConfig from "./RedisConfig.ts"
import * as StoreConfig from "./StoreConfig.ts"
import { version } from "./Version.ts"

type Misconfigured = Variables.Misconfigured | Config.ConfigError

/** The chosen database. The embedded one is joined or started, and left again with the scope. */
const databaseOf = (
  profile: StoreConfig.Profile
): Effect.Effect<Server, EmbeddedPostgres.EmbeddedPostgresFailed, Scope.Scope> =>
  profile._tag === "postgres" ? Effect.succeed(profile) : EmbeddedPostgres.acquire({ dataDir: profile.dataDir })

/** Brings the schema up to date; with `check` it only says whether it is. */
export const migrate = Effect.fnUntraced(function*(check: boolean, { show }: Answer) {
  const { profile } = yield* StoreConfig.fromEnv
  const { schemaVersion } = Migrations
  const away = (message: string) => new CliFailed({ code: "unavailable", exit: exits.unavailable, message })
  const { pem, url } = yield* Effect.mapError(databaseOf(profile), ({ message }) => away(message))
  const before = yield* Effect.mapError(
    PostgresCheckup.look(url, pem),
    ({ advice, message, refused }) =>
      refused
        ? new CliFailed({
          code: "refused",
          exit: exits.refused,
          message: `The database cannot be used: ${message}.${advice === null ? "" : ` ${advice}.`}`
        })
        : away(
          `The database does not answer: ${message}. ${advice ?? "Is it up, and is DEADMAN_DATABASE_URL right?"}`
            .replace(/(?<![.?])$/, ".")
        )
  )
  if (check && before.schemaVersion !== schemaVersion) {
    return yield* new CliFailed({
      code: "schema",
      exit: exits.refused,
      message: `The schema has version ${before.schemaVersion ?? 0} and this program needs ${schemaVersion}: ` +
        `run \`deadman migrate\` as a role that may.`
    })
  }
  yield* Effect.mapError(Migrations.migrate(url, pem), (error) =>
    new CliFailed({
      code: error._tag === "MigrationFailed" ? "migration_failed" : "schema",
      exit: Migrations.isHopeless(error) ? exits.refused : exits.unavailable,
      message: error.message
    }))
  const from = before.schemaVersion ?? 0
  yield* show(
    { schema_version: schemaVersion, from_version: from },
    () =>
      from === schemaVersion
        ? `The schema has version ${schemaVersion}: nothing to do.`
        : `The schema has version ${schemaVersion} now; before it was ${from === 0 ? "not there" : from}.`
  )
}, Effect.scoped)

type Found = ReadonlyArray<Finding.Finding>

const without = (advice: string): string => `${advice}. Without it nothing runs.`

const postgres = (profile: StoreConfig.Profile, oldMs: number): Effect.Effect<Found> =>
  Effect.suspend(() => {
    if (profile._tag === "embedded" && !existsSync(join(resolve(profile.dataDir), "postgres"))) {
      return Effect.succeed<Found>([Finding.look(
        "postgres",
        "no_data",
        `DEADMAN_DATABASE_URL is not set, and ${profile.dataDir} holds no data`,
        "Start `deadman dev` here, or set DEADMAN_DATABASE_URL or DEADMAN_DATA_DIR to what the others use."
      )])
    }
    return Effect.scoped(
      Effect.flatMap(databaseOf(profile), ({ pem, url }) => PostgresCheckup.look(url, pem))
    ).pipe(
      Effect.match({
        onSuccess: (facts): Found => [
          ...PostgresFindings.of(facts, { version, schema: Migrations.schemaVersion, oldMs }),
          ...(profile._tag === "postgres" && profile.unverified ? [PostgresFindings.unverified] : [])
        ],
        onFailure: (error): Found => [
          "refused" in error && error.refused
            ? Finding.refused("postgres", error.message, without(error.advice ?? "Mend that"))
            : Finding.away(
              "postgres",
              error.message,
              "advice" in error && error.advice !== null
                ? without(error.advice)
                : "Start it, or mend DEADMAN_DATABASE_URL: without it nothing runs."
            )
        ]
      })
    )
  })

const redis: Effect.Effect<Found, Misconfigured> = Effect.gen(function*() {
  const config = yield* RedisConfig.fromEnv
  return config === null ? [] : yield* RedisCheckup.look(config).pipe(
    Effect.match({
      onSuccess: RedisFindings.of,
      onFailure: ({ advice, message }) => [
        advice === null
          ? Finding.away("redis", message, "Start it, or mend DEADMAN_REDIS_URL; until then Postgres does its work.")
          : Finding.refused(
            "redis",
            message,
            `${advice}; until then no program starts, and those that run use Postgres.`
          )
      ]
    })
  )
})

const kafka: Effect.Effect<Found, Misconfigured> = Effect.gen(function*() {
  const config = yield* KafkaConfig.fromEnv
  return config === null ? [] : yield* KafkaCheckup.look(config).pipe(
    Effect.match({
      onSuccess: (facts) => [
        ...KafkaFindings.of(facts),
        ...(config.login !== null && config.tls === null ? [KafkaFindings.cleartext] : [])
      ],
      onFailure: ({ advice, reason }) => [
        advice === null
          ? Finding.away(
            "kafka",
            reason,
            "Start it, or mend DEADMAN_KAFKA_BROKERS; jobs are found in Postgres meanwhile."
          )
          : Finding.refused("kafka", reason, `${advice}; jobs are found in Postgres meanwhile.`)
      ]
    })
  )
})

/** What is wrong with one is no reason to be silent about the others. */
const misconfigured = (about: string, look: Effect.Effect<Found, Misconfigured>) =>
  Effect.catchTag(
    look,
    "Misconfigured",
    ({ message }) => Effect.succeed<Found>([Finding.refused(about, message, "Mend it: no program starts with this.")])
  )

/** Only a server that was named has to be there: a machine with workers alone has none. */
const server = Effect.gen(function*() {
  const given = Option.getOrNull((yield* root).url) ?? (yield* Variables.text("DEADMAN_URL"))
  const client = yield* make({ url: given ?? defaults.url, token: yield* tokenOf, tries: 1, deadlineMs: 5_000 }).pipe(
    Effect.provide(http),
    Effect.mapError((error) => usage(`--url, or DEADMAN_URL, ${error.message.slice("url: ".length)}`))
  )
  return yield* client.ready.pipe(Effect.match({
    onSuccess: ({ ready, reasons }): Found => [
      ready
        ? Finding.good("server", "ready", `${client.url} is ready`)
        : Finding.look(
          "server",
          "not_ready",
          `${client.url} is not ready: ${reasons.join("; ")}`,
          "docs/operations.md says what each of these means."
        )
    ],
    onFailure: (error): Found =>
      given === null
        ? []
        : [Finding.away("server", error.message, "Start it, or mend --url, DEADMAN_URL or the token.")]
  }))
})

const marks: Readonly<Record<Finding.Finding["level"], readonly [string, Table.Tone]>> = {
  good: ["ok", "good"],
  "worth a look": ["look", "busy"],
  bad: ["BAD", "bad"]
}

const textOf = ({ look }: Answer, findings: Found): string => {
  const rows = findings.map(({ about, advice, level, text }) => {
    const [mark, tone] = marks[level]
    const head = `${look.paint(mark.padEnd(4), tone)}  ${about.padEnd(9)}  ${Table.cell(text).text}`
    return advice === null ? head : `${head}\n${" ".repeat(17)}${look.paint(Table.cell(advice).text, "quiet")}`
  })
  const count = (level: Finding.Finding["level"]) => findings.filter((finding) => finding.level === level).length
  return [...rows, "", `${count("bad")} bad, ${count("worth a look")} worth a look, ${count("good")} well`].join("\n")
}

/** Looks at everything that is configured; a transaction is old after `oldMs`. */
export const doctor = Effect.fnUntraced(function*(oldMs: number, answer: Answer) {
  const { profile } = yield* StoreConfig.fromEnv
  const found = yield* Effect.all(
    [postgres(profile, oldMs), misconfigured("redis", redis), misconfigured("kafka", kafka), server],
    { concurrency: "unbounded" }
  )
  const findings = found.flat()
  const well = findings.every(({ level }) => level !== "bad")
  const atMs = yield* Clock.currentTimeMillis
  yield* answer.show({ well, version, at_ms: atMs, findings }, () => textOf(answer, findings))
  if (!well) {
    return yield* new Unsaid({ exit: exits.refused })
  }
})
