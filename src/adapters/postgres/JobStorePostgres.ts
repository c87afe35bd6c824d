/**
 * The store of jobs in Postgres, put together from its parts.
 *
 * Each method is one statement for the whole batch, and a second one where what the first did not find must be looked
 * up in a new snapshot.
 */
import { Effect, Layer } from "effect"
import { JobStore } from "../../ports/JobStore.ts"
import { Database } from "./Database.ts"
import * as Chores from "./store/Chores.ts"
import * as Claim from "./store/Claim.ts"
import * as Control from "./store/Control.ts"
import * as Leases from "./store/Leases.ts"
import * as Notes from "./store/Notes.ts"
import * as Reads from "./store/Reads.ts"
import type { StoreOptions } from "./store/Rows.ts"
import * as Settle from "./store/Settle.ts"
import * as Submit from "./store/Submit.ts"

export type { StoreOptions }

const make = (options: StoreOptions) =>
  Effect.map(Database, (db) => {
    const reads = Reads.make(db)
    return JobStore.of({
      ...Submit.make(db, options),
      ...Claim.make(db),
      ...Settle.make(db, options),
      ...Notes.make(db),
      ...Leases.make(db, options),
      ...reads,
      ...Control.make(db, options, reads),
      ...Chores.make(db, options)
    })
  })

export const layer = (options: StoreOptions): Layer.Layer<JobStore, never, Database> =>
  Layer.effect(JobStore, make(options))
