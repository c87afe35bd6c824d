/**
 * Two processes, workers and keepers, over Postgres and a Redis that is flushed, frozen, cut, refusing and evicting.
 *
 * Whatever happens to Redis: no job of a live worker is taken, none is lost or runs twice, and what is due runs on time.
 */
import { assert, it } from "@effect/vitest"
import { Clock, Duration, Effect, Layer, Redacted, References } from "effect"
import * as JobStorePostgres from "../../../src/adapters/postgres/JobStorePostgres.ts"
import * as QueuesPostgres from "../../../src/adapters/postgres/QueuesPostgres.ts"
import * as SchedulesPostgres from "../../../src/adapters/postgres/SchedulesPostgres.ts"
import * as SessionsPostgres from "../../../src/adapters/postgres/SessionsPostgres.ts"
import * as TransportPostgres from "../../../src/adapters/postgres/TransportPostgres.ts"
import * as DelayedJobsRedis from "../../../src/adapters/redis/DelayedJobsRedis.ts"
import * as LeaseRegisterRedis from "../../../src/adapters/redis/LeaseRegisterRedis.ts"
import * as Client from "../../../src/adapters/redis/Redis.ts"
import { JobType, type NewJob } from "../../../src/domain/Job.ts"
import type { JobId } from "../../../src/domain/JobId.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import { LeaseRegister } from "../../../src/ports/LeaseRegister.ts"
import * as Keeper from "../../../src/programs/keeper/Keeper.ts"
import * as KeeperConfig from "../../../src/programs/keeper/KeeperConfig.ts"
import * as Loops from "../../../src/programs/process/Loops.ts"
import * as Handlers from "../../../src/programs/worker/Handlers.ts"
import * as WorkerConfig from "../../../src/programs/worker/WorkerConfig.ts"
import * as WorkerPool from "../../../src/programs/worker/WorkerPool.ts"
import { eventually } from "../../support/Eventually.ts"
import * as Jobs from "../../support/Jobs.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as Redis from "../../support/Redis.ts"
import type * as RedisServer from "../../support/RedisServer.ts"
import * as TestServers from "../../support/TestServers.ts"

const leaseMs = 2_000
const type = JobType.make("nap")
const quiet = Layer.succeed(References.MinimumLogLevel, "Error")

const store = Layer.mergeAll(
  JobStorePostgres.layer({ wake: true, keyTtlMs: 60_000 }),
  TransportPostgres.layer,
  SessionsPostgres.layer,
  QueuesPostgres.layer({ wake: true }),
  SchedulesPostgres.layer({ wake: true, keyTtlMs: 60_000 })
).pipe(Layer.provide(Postgres.layer))

const onRedis = (url: string) =>
  Layer.mergeAll(LeaseRegisterRedis.layer, DelayedJobsRedis.layer).pipe(
    Layer.provideMerge(Client.layer({ url: Redacted.make(url) })),
    Layer.orDie
  )

interface Run {
  readonly atMs: number
}

/** Workers and keepers as in a process of its own, with a connection to Redis of its own. */
const start = (url: string, runs: Map<string, Array<Run>>) =>
  Layer.build(Layer.fresh(
    Layer.merge(WorkerPool.layer, Keeper.layer).pipe(
      Layer.provide(Layer.mergeAll(
        Loops.layer,
        KeeperConfig.layer(),
        WorkerConfig.layer({ slots: 10, lease: Duration.millis(leaseMs), drain: Duration.millis(100) }),
        Handlers.layer({
          nap: ({ id, payload }) =>
            Effect.gen(function*() {
              const all = runs.get(id) ?? []
              all.push({ atMs: yield* Clock.currentTimeMillis })
              runs.set(id, all)
              yield* Effect.sleep(Duration.millis(Number(payload)))
            })
        })
      )),
      Layer.provide(onRedis(url)),
      Layer.provide(quiet)
    )
  ))

const submit = Effect.fnUntraced(function*(jobs: ReadonlyArray<Partial<NewJob>>) {
  const made = yield* Effect.forEach(jobs, (change) => Jobs.job({ type, ...change }))
  yield* (yield* JobStore).submit(made, { atomic: false })
  return made.map(({ id }) => id)
})

const all = (ids: ReadonlyArray<JobId>) => Effect.flatMap(JobStore, (store) => store.get(ids))

const completed = (ids: ReadonlyArray<JobId>) =>
  eventually(
    "all jobs are completed",
    Effect.map(all(ids), (jobs) => jobs.length === ids.length && jobs.every(({ state }) => state === "completed")),
    "90 seconds"
  )

/** A worker that claims and dies, before or after it has told Redis. */
const ghost = Effect.fnUntraced(function*(url: string, told: boolean) {
  const store = yield* JobStore
  const [id] = yield* submit([{ payload: "1" }])
  const lease = yield* Jobs.freshLease
  const claimed = yield* store.claim({
    lease,
    leaseMs,
    worker: "ghost",
    types: [type],
    limit: 1,
    freeSlots: 1,
    bytes: 1_000
  })
  assert.deepStrictEqual(claimed.map((job) => job.id), [id])
  if (told) {
    yield* Effect.flatMap(LeaseRegister, (register) => register.hold([{ lease, leaseMs }])).pipe(
      Effect.provide(onRedis(url))
    )
  }
  return id!
})

type Fault = (server: RedisServer.RedisServer) => Effect.Effect<void, { readonly message: string }>

const every = (ms: number, what: Effect.Effect<unknown, unknown>, times: number) =>
  Effect.forEach(
    Array.from({ length: times }),
    () => Effect.andThen(Effect.ignore(what), Effect.sleep(Duration.millis(ms))),
    { discard: true }
  )

const junk = "x".repeat(20_000)

const faults: Readonly<Record<string, Fault>> = {
  "is well": () => Effect.sleep("2 seconds"),
  "loses every lease all the time": (server) =>
    every(
      200,
      server.call(
        "EVAL",
        "for _, key in ipairs(redis.call('KEYS', 'deadman:lease:*')) do redis.call('DEL', key) end",
        "0"
      ),
      30
    ),
  "is flushed all the time": (server) => every(300, server.flushAll, 20),
  "hangs for three leases": (server) =>
    server.freeze.pipe(Effect.andThen(Effect.sleep(3 * leaseMs)), Effect.andThen(server.thaw)),
  "is away for three leases": (server) =>
    server.kill.pipe(Effect.andThen(Effect.sleep(3 * leaseMs)), Effect.andThen(server.start)),
  "cuts its connections all the time": (server) => every(200, server.call("CLIENT", "KILL", "TYPE", "normal"), 25),
  "is read-only for three leases": (server) =>
    server.call("REPLICAOF", "127.0.0.1", "1").pipe(
      Effect.andThen(Effect.sleep(3 * leaseMs)),
      Effect.andThen(server.call("REPLICAOF", "NO", "ONE")),
      Effect.asVoid
    ),
  "starts again and again from an old file": (server) =>
    Effect.andThen(
      server.call("SAVE"),
      every(1_500, Effect.andThen(server.kill, server.start), 3)
    ),
  "goes back in time again and again": (server) =>
    Effect.andThen(server.call("SAVE"), every(400, server.call("DEBUG", "RELOAD", "NOSAVE"), 15)),
  "throws keys away": (server) =>
    Effect.gen(function*() {
      yield* server.configSet("maxmemory-policy", "allkeys-lru")
      yield* server.configSet("maxmemory", "3000000")
      for (let n = 0; n < 400; n++) {
        yield* server.call("SET", `junk:${n}`, junk)
        yield* Effect.sleep("10 millis")
      }
    }),
  "has no memory left": (server) =>
    Effect.gen(function*() {
      yield* server.configSet("maxmemory-policy", "noeviction")
      yield* server.configSet("maxmemory", "1000000")
      yield* Effect.sleep(3 * leaseMs)
      yield* server.configSet("maxmemory", "0")
    })
}

TestServers.describeWithRedis("workers and keepers over Postgres and Redis", () => {
  for (const [what, fault] of Object.entries(faults)) {
    it.layer(Layer.mergeAll(store, Redis.server(), quiet), { excludeTestServices: true, timeout: "2 minutes" })(
      "",
      (it) => {
        it.effect(
          `Redis ${what}: no job of a live worker is taken, none is lost or late`,
          () =>
            Effect.gen(function*() {
              const server = yield* Redis.Server
              const runs = new Map<string, Array<Run>>()
              const dead = [yield* ghost(server.url, true), yield* ghost(server.url, false)]
              const diedMs = yield* Clock.currentTimeMillis
              yield* start(server.url, runs)
              yield* start(server.url, runs)
              const now = yield* (yield* JobStore).now
              const delayed = Array.from({ length: 40 }, (_, n) => ({ payload: "1", runAtMs: now + 1_000 + n * 130 }))
              const ids = yield* submit([
                ...Array.from({ length: 8 }, () => ({ payload: "7000" })),
                ...Array.from({ length: 150 }, (_, n) => ({ payload: String(n) })),
                ...delayed
              ])
              // What is stored after its time cannot run at it.
              const storedMs = yield* (yield* JobStore).now
              yield* eventually("they run", Effect.sync(() => runs.size > 20))
              yield* Effect.orDie(fault(server))
              yield* completed([...ids, ...dead])
              for (const job of yield* all(ids)) {
                assert.strictEqual(job.leaseLosses, 0)
                assert.strictEqual(job.staleWrites, 0)
                assert.lengthOf(runs.get(job.id) ?? [], 1)
              }
              const late = ids.slice(158).map((id, n) =>
                runs.get(id)![0]!.atMs - Math.max(storedMs, delayed[n]!.runAtMs)
              )
              assert.isAtMost(Math.max(...late), 2_000, "ms late")
              // Those whose workers died, once their leases were over.
              for (const orphan of yield* all(dead)) {
                assert.strictEqual(orphan.leaseLosses, 1)
                assert.isAbove(runs.get(orphan.id)![0]!.atMs - diedMs, leaseMs)
              }
            }).pipe(Effect.scoped),
          180_000
        )
      }
    )
  }
})
