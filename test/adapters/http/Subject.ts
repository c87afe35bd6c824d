/** A listening server over the memory store, for tests that speak HTTP to it. */
import { Layer, type Redacted } from "effect"
import * as Server from "../../../src/adapters/http/Server.ts"
import * as DelayedJobsMemory from "../../../src/adapters/memory/DelayedJobsMemory.ts"
import * as JobStoreMemory from "../../../src/adapters/memory/JobStoreMemory.ts"
import * as LeaseRegisterMemory from "../../../src/adapters/memory/LeaseRegisterMemory.ts"
import * as QueuesMemory from "../../../src/adapters/memory/QueuesMemory.ts"
import * as SchedulesMemory from "../../../src/adapters/memory/SchedulesMemory.ts"
import * as SessionsMemory from "../../../src/adapters/memory/SessionsMemory.ts"
import * as TransportMemory from "../../../src/adapters/memory/TransportMemory.ts"
import * as JobStorePostgres from "../../../src/adapters/postgres/JobStorePostgres.ts"
import * as LeaseRegisterPostgres from "../../../src/adapters/postgres/LeaseRegisterPostgres.ts"
import * as QueuesPostgres from "../../../src/adapters/postgres/QueuesPostgres.ts"
import * as SchedulesPostgres from "../../../src/adapters/postgres/SchedulesPostgres.ts"
import type { JobStore } from "../../../src/ports/JobStore.ts"
import type { LeaseRegister } from "../../../src/ports/LeaseRegister.ts"
import type { Queues } from "../../../src/ports/Queues.ts"
import type { Schedules } from "../../../src/ports/Schedules.ts"
import * as Flagged from "../../../src/programs/process/Flagged.ts"
import * as Loops from "../../../src/programs/process/Loops.ts"
import * as Stopping from "../../../src/programs/process/Stopping.ts"
import * as RemoteWorkers from "../../../src/programs/remote/RemoteWorkers.ts"
import * as StatusView from "../../../src/programs/server/StatusView.ts"
import * as GroupCommit from "../../../src/programs/submit/GroupCommit.ts"
import * as FaultyStore from "../../support/FaultyStore.ts"
import * as Postgres from "../../support/Postgres.ts"

export interface Options {
  readonly token?: Redacted.Redacted
  readonly host?: string
  readonly store?: Layer.Layer<JobStore | JobStoreMemory.SharedTables>
  readonly headersMs?: number
  readonly requestMs?: number
  readonly unreadMs?: number
}

const identity = Layer.succeed(StatusView.Identity, {
  version: "0.0.0-test",
  profile: "test",
  adapters: { JobStore: "memory" }
})

const over = <A>(store: Layer.Layer<A | JobStore | LeaseRegister | Queues | Schedules>, options: Options) =>
  Server.layer({
    host: options.host ?? "127.0.0.1",
    port: 0,
    token: options.token ?? null,
    ...(options.headersMs === undefined ? {} : { headersMs: options.headersMs }),
    ...(options.requestMs === undefined ? {} : { requestMs: options.requestMs }),
    ...(options.unreadMs === undefined ? {} : { unreadMs: options.unreadMs })
  }).pipe(
    Layer.provideMerge(StatusView.layer),
    Layer.provideMerge(Layer.merge(GroupCommit.layer, RemoteWorkers.layer)),
    Layer.provideMerge(Layer.provideMerge(Flagged.layer, store)),
    Layer.provideMerge(Layer.mergeAll(
      TransportMemory.layer,
      DelayedJobsMemory.layer,
      SessionsMemory.layer,
      Loops.layer,
      Stopping.layer,
      identity
    ))
  )

export const layer = (options: Options = {}) =>
  over(
    Layer.merge(
      Layer.provideMerge(Layer.merge(QueuesMemory.layer, SchedulesMemory.layer), options.store ?? JobStoreMemory.layer),
      LeaseRegisterMemory.layer
    ),
    options
  )

/** Over a fresh database of the run's Postgres. */
export const layerPostgres = (options: Options = {}) =>
  over(
    Layer.mergeAll(
      JobStorePostgres.layer({ wake: true, keyTtlMs: 86_400_000 }),
      LeaseRegisterPostgres.layer,
      QueuesPostgres.layer({ wake: true }),
      SchedulesPostgres.layer({ wake: true, keyTtlMs: 86_400_000 })
    ).pipe(Layer.provide(Postgres.layer)),
    options
  )

/** What is true whatever the store. */
export const both = [["memory", layer()], ["postgres", layerPostgres()]] as const

export const layerFaulty = (options: Options = {}) =>
  over(Layer.merge(FaultyStore.layer, LeaseRegisterMemory.layer), options)
