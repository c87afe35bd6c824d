/** Another process over the same database, as far as its store goes, and every failure of a statement in it. */
import { Effect, Layer, type Scope } from "effect"
import * as Database from "../../src/adapters/postgres/Database.ts"
import type { NewJob } from "../../src/domain/Job.ts"
import { JobStore, type JobStoreUnavailable, type Submitted } from "../../src/ports/JobStore.ts"
import * as Postgres from "./Postgres.ts"

type Answers = Effect.Effect<ReadonlyArray<Submitted>, JobStoreUnavailable>

export interface AnotherProcess {
  /** The store itself tries again and tells nobody. */
  readonly failures: ReadonlyArray<string>
  readonly submit: (jobs: ReadonlyArray<NewJob>) => Answers
}

/** By the store of this process. */
export const submit = (jobs: ReadonlyArray<NewJob>) =>
  Effect.flatMap(JobStore, (store) => Effect.map(store.submit(jobs, { atomic: false }), ({ answers }) => answers))

export const make = <E>(
  store: Layer.Layer<JobStore, E, Database.Database>
): Effect.Effect<AnotherProcess, E, Postgres.Url | Scope.Scope> =>
  Effect.gen(function*() {
    const url = yield* Postgres.Url
    const failures: Array<string> = []
    const watched = Layer.effect(
      Database.Database,
      Effect.map(Database.Database, (database) =>
        Database.Database.of({
          ...database,
          query: (lane, text, params, options) =>
            Effect.tapError(
              database.query(lane, text, params, options),
              (error) => Effect.sync(() => failures.push(`${error.kind}: ${error.message}`))
            )
        }))
    ).pipe(Layer.provide(Database.layer({ url })))
    const context = yield* Layer.build(Layer.fresh(Layer.provide(store, watched)))
    return { failures, submit: (jobs) => Effect.provideContext(submit(jobs), context) }
  })
