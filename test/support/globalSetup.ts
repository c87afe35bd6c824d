/**
 * What the whole run shares: one Postgres and, in it, the template that `Database.ts` clones.
 *
 * With `DEADMAN_TEST_DATABASE_URL` set it is that server, and only the template is made and dropped in it; else one
 * is started from the npm programs and is gone after the run. The test files find both in their environment.
 */
import { Config, Effect, Exit, Option, Redacted, Scope } from "effect"
import * as Migrations from "../../src/adapters/postgres/Migrations.ts"
import * as Database from "./Database.ts"
import * as PostgresServer from "./PostgresServer.ts"

const scope = Scope.makeUnsafe()

const start = Effect.gen(function*() {
  const given = yield* Config.option(Config.Redacted("DEADMAN_TEST_DATABASE_URL"))
  const url = Option.isSome(given) ? given.value : (yield* PostgresServer.start()).url
  const template = yield* Database.template(url, Migrations.migrate)
  process.env["DEADMAN_TEST_DATABASE_URL"] = Redacted.value(url)
  process.env["DEADMAN_TEST_TEMPLATE"] = template.name
}).pipe(Scope.provide(scope))

/** A start that fails half-way stops what it started: vitest calls no teardown then. */
export const setup = (): Promise<void> =>
  Effect.runPromise(Effect.onError(start, (cause) => Scope.close(scope, Exit.failCause(cause))))

export const teardown = (): Promise<void> => Effect.runPromise(Scope.close(scope, Exit.void))
