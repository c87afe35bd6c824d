/**
 * What the whole run shares: one Postgres and, in it, the template that `Database.ts` clones; a Redis and a Kafka.
 *
 * With `DEADMAN_TEST_DATABASE_URL` set it is that server, and only the template is made and dropped in it; else one
 * is started from the npm programs and is gone after the run. Redis and Kafka: see `TestServers.ts`. The test files
 * find all of it in their environment.
 */
import { Config, Effect, Exit, Option, Redacted, Scope } from "effect"
import { type TestProject } from "vitest/node"
import * as Migrations from "../../src/adapters/postgres/Migrations.ts"
import * as Database from "./Database.ts"
import * as PostgresServer from "./PostgresServer.ts"
import * as TestServers from "./TestServers.ts"

const scope = Scope.makeUnsafe()
let missing: ReadonlyArray<string> = []

const postgres = Effect.gen(function*() {
  const given = yield* Config.option(Config.Redacted("DEADMAN_TEST_DATABASE_URL"))
  const url = Option.isSome(given) ? given.value : (yield* PostgresServer.start()).url
  const template = yield* Database.template(url, Migrations.migrate)
  process.env["DEADMAN_TEST_DATABASE_URL"] = Redacted.value(url)
  process.env["DEADMAN_TEST_TEMPLATE"] = template.name
})

/** The words of the command line that choose test files. */
const filters = process.argv.slice(2).filter((word, index) => index > 0 && !word.startsWith("-"))

const others = (project: TestProject) =>
  Effect.gen(function*() {
    const { testFiles } = yield* Effect.promise(() => project.globTestFiles(filters))
    // A word that chooses none was the value of an option: then it is the whole suite.
    missing = yield* TestServers.provide({ kafka: testFiles.length === 0 || TestServers.speakOfKafka(testFiles) })
  })

/** A start that fails half-way stops what it started: vitest calls no teardown then. */
export const setup = (project: TestProject): Promise<void> =>
  Effect.all([postgres, others(project)], { concurrency: "unbounded", discard: true }).pipe(
    Scope.provide(scope),
    Effect.onError((cause) => Scope.close(scope, Exit.failCause(cause))),
    Effect.runPromise
  )

export const teardown = (): Promise<void> =>
  Scope.close(scope, Exit.void).pipe(
    Effect.andThen(Effect.sync(() => {
      // After the results, where it is seen.
      for (const what of missing) process.stderr.write(`\nskipped: ${what}\n`)
    })),
    Effect.runPromise
  )
