/**
 * Several workers over one Postgres, woken by the same jobs: no job waits beside a worker that has a slot for it.
 *
 * Each round has a job for every slot of all workers, none of which ends before all of them run. Looking without being
 * woken is a minute away, so that whatever a worker has overlooked is still there when the round has its time.
 */
import { assert, it } from "@effect/vitest"
import { Deferred, Duration, Effect, Layer, Option, Random } from "effect"
import * as Database from "../../../src/adapters/postgres/Database.ts"
import * as DelayedJobsPostgres from "../../../src/adapters/postgres/DelayedJobsPostgres.ts"
import * as JobStorePostgres from "../../../src/adapters/postgres/JobStorePostgres.ts"
import * as LeaseRegisterPostgres from "../../../src/adapters/postgres/LeaseRegisterPostgres.ts"
import * as QueuesPostgres from "../../../src/adapters/postgres/QueuesPostgres.ts"
import * as SessionsPostgres from "../../../src/adapters/postgres/SessionsPostgres.ts"
import * as TransportPostgres from "../../../src/adapters/postgres/TransportPostgres.ts"
import { JobType, Queue } from "../../../src/domain/Job.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import { Queues } from "../../../src/ports/Queues.ts"
import * as Loops from "../../../src/programs/process/Loops.ts"
import type { Handler } from "../../../src/programs/worker/HandlerApi.ts"
import * as Handlers from "../../../src/programs/worker/Handlers.ts"
import * as WorkerConfig from "../../../src/programs/worker/WorkerConfig.ts"
import * as WorkerPool from "../../../src/programs/worker/WorkerPool.ts"
import * as Jobs from "../../support/Jobs.ts"
import * as Postgres from "../../support/Postgres.ts"

/** Of the workers. */
const slots = [1, 2, 1, 2]
const jobsAtOnce = slots.reduce((sum, n) => sum + n, 0)
const rounds = 24
/** A worker that has measured quick runs claims ahead, and a job that waits behind another one is nobody else's then. */
const slowEvery = 4
const slowMs = 1_000

const types = ["ada", "bee", "cay", "slow"].map((name) => JobType.make(name))
const queues = ["left", "right"].map((name) => Queue.make(name))

const ports = Layer.mergeAll(
  JobStorePostgres.layer({ wake: true, keyTtlMs: 60_000 }),
  LeaseRegisterPostgres.layer,
  DelayedJobsPostgres.layer,
  TransportPostgres.layer,
  SessionsPostgres.layer,
  QueuesPostgres.layer({ wake: true }),
  Loops.layer
)

/** A process of its own, as far as its connections go. */
const worker = (count: number, handler: Handler) =>
  Effect.gen(function*() {
    const url = yield* Postgres.Url
    yield* Layer.build(Layer.fresh(
      WorkerPool.layer.pipe(
        Layer.provide(Handlers.layer(Object.fromEntries(types.map((type) => [type, handler])))),
        Layer.provide(WorkerConfig.layer({
          name: `w-${crypto.randomUUID()}`,
          slots: count,
          poll: Duration.minutes(1),
          lease: Duration.minutes(1)
        })),
        Layer.provide(Layer.provide(ports, Database.layer({ url, storePool: 2 })))
      )
    ))
  })

const storeLayer = Layer.merge(
  JobStorePostgres.layer({ wake: true, keyTtlMs: 60_000 }),
  QueuesPostgres.layer({ wake: true })
)

for (const limited of [false, true]) {
  it.layer(Layer.provideMerge(storeLayer, Postgres.layer), { excludeTestServices: true })(
    "workers woken together",
    (it) => {
      it.effect(
        `all have a job as soon as there is one for each${limited ? ", also where a queue has a limit" : ""}`,
        () =>
          Effect.gen(function*() {
            const store = yield* JobStore
            if (limited) {
              yield* (yield* Queues).put(queues[0]!, { concurrency: 2 })
            }
            let running = 0
            let all = Deferred.makeUnsafe<void>()
            const handler: Handler = ({ type }) =>
              Effect.gen(function*() {
                running += 1
                if (running === jobsAtOnce) {
                  yield* Deferred.succeed(all, undefined)
                }
                yield* Deferred.await(all)
                if (type === "slow") {
                  yield* Effect.sleep(slowMs)
                }
              })
            yield* Effect.forEach(slots, (count) => worker(count, handler), { discard: true })
            const draw = (n: number) => Effect.map(Random.next, (next) => Math.floor(next * n))
            for (let round = 0; round < rounds; round++) {
              running = 0
              all = Deferred.makeUnsafe()
              const slow = round % slowEvery === 0
              const kinds = 1 + (yield* draw(3))
              const jobs = yield* Effect.forEach(
                Array.from({ length: jobsAtOnce }),
                () =>
                  Effect.gen(function*() {
                    return yield* Jobs.job({
                      type: slow ? types[3]! : types[yield* draw(kinds)]!,
                      queue: queues[yield* draw(2)]!,
                      priority: (yield* draw(3)) - 1
                    })
                  })
              )
              const batch = 1 + (yield* draw(jobsAtOnce))
              for (let at = 0; at < jobs.length; at += batch) {
                yield* store.submit(jobs.slice(at, at + batch), { atomic: false })
                yield* Effect.sleep(yield* draw(3))
              }
              const inTime = yield* Effect.timeoutOption(Deferred.await(all), "20 seconds")
              assert.isTrue(
                Option.isSome(inTime),
                `round ${round}: ${running} of ${jobsAtOnce} jobs of ${kinds} types run, in batches of ${batch}`
              )
              // So that every slot is free.
              yield* Effect.repeat(Effect.delay(store.counts, 2), {
                until: ({ byState }) => byState.completed === (round + 1) * jobsAtOnce,
                times: 5_000
              })
              if (yield* Effect.map(draw(2), (n) => n === 0)) {
                yield* Effect.sleep(yield* draw(30))
              }
            }
          }),
        180_000
      )
    }
  )
}
