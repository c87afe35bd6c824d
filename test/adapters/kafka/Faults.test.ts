/** A broker that is killed, wiped, frozen or gone, under a system that works. */
import { assert, it } from "@effect/vitest"
import { Clock, Effect, Exit } from "effect"
import type { JobId } from "../../../src/domain/JobId.ts"
import { eventually } from "../../support/Eventually.ts"
import * as KafkaServer from "../../support/KafkaServer.ts"
import * as TestServers from "../../support/TestServers.ts"
import * as Stage from "./Stage.ts"

const nowMs = Clock.currentTimeMillis

/** A broker of its own, and workers on it that count the runs of each job. */
const system = Effect.gen(function*() {
  const server = yield* KafkaServer.start()
  const stage = yield* Stage.make(server.brokers)
  const runs = new Map<string, number>()
  const count = ({ id }: { readonly id: string }) => {
    runs.set(id, (runs.get(id) ?? 0) + 1)
    return Effect.sleep(5)
  }
  const start = stage.worker({ fast: count }, { slots: 4 })
  const workers = [yield* start, yield* start]
  const well = Effect.map(
    Effect.forEach(workers, ({ reasons }) => reasons),
    (all) => all.every(({ length }) => length === 0)
  )
  yield* eventually("all workers are well", well, "60 seconds")
  const once = (ids: ReadonlyArray<JobId>) => ids.every((id) => runs.get(id) === 1)
  const before = yield* stage.submit("fast", 60)
  yield* eventually(
    "deliveries are committed",
    Effect.map(Effect.exit(stage.lag), (lag) => Exit.isSuccess(lag) && lag.value === 0),
    "60 seconds"
  )
  yield* eventually("they are done", stage.completed(before))
  return { server, workers, well, once, start, ...stage }
})

/** How many messages are committed in all. */
const consumed = (offsets: ReadonlyArray<number>) => offsets.reduce((sum, offset) => sum + Math.max(0, offset), 0)

TestServers.describeWithKafka("Kafka in trouble", () => {
  it.live(
    "killed and started again: jobs run meanwhile, and deliveries go on within 10 s, each job run once",
    () =>
      Effect.gen(function*() {
        const { completed, offsets, once, server, submit, well, workers } = yield* system
        const ids: Array<JobId> = []
        const loading = yield* Effect.forkScoped(Effect.forever(Effect.gen(function*() {
          ids.push(...(yield* submit("fast", 5)))
          yield* Effect.sleep("100 millis")
        })))
        for (const how of [server.kill, server.stop]) {
          const committed = consumed(yield* offsets)
          yield* how
          yield* eventually(
            "readiness says so",
            Effect.map(workers[0]!.reasons, (reasons) => reasons.some((reason) => reason.includes("hints"))),
            "60 seconds"
          )
          const during = yield* submit("fast", 50)
          yield* eventually("jobs run without it", completed(during), "60 seconds")
          yield* server.start
          const startMs = yield* nowMs
          yield* eventually(
            "what was published since is committed",
            // The broker answers before it knows its topics and groups again.
            Effect.map(Effect.exit(offsets), (exit) => Exit.isSuccess(exit) && consumed(exit.value) > committed),
            "60 seconds"
          )
          assert.isBelow((yield* nowMs) - startMs, 10_000)
          yield* eventually("all workers are well", well, "60 seconds")
        }
        loading.interruptUnsafe()
        yield* eventually("all are done", completed(ids), "60 seconds")
        assert.isTrue(once(ids))
      }).pipe(Effect.scoped),
    180_000
  )

  it.live("wiped while jobs wait: they run, once, and those that are done do not", () =>
    Effect.gen(function*() {
      const { completed, once, server, start, submit, workers } = yield* system
      const done = yield* submit("fast", 200)
      yield* eventually("the first are done", completed(done), "60 seconds")
      for (const { stop } of workers) {
        yield* stop
      }
      const waiting = yield* submit("fast", 100)
      yield* server.wipe
      const again = yield* start
      yield* eventually("the waiting ones are done", completed(waiting), "60 seconds")
      yield* eventually("the worker is well", Effect.map(again.reasons, ({ length }) => length === 0), "60 seconds")
      assert.isTrue(once([...done, ...waiting]))
    }).pipe(Effect.scoped), 180_000)

  it.live("frozen: jobs are submitted and run meanwhile, and a worker stops in time", () =>
    Effect.gen(function*() {
      const { completed, server, submit, workers } = yield* system
      yield* server.freeze
      const during = yield* submit("fast", 50)
      yield* eventually("jobs run without it", completed(during), "60 seconds")
      yield* eventually(
        "readiness says so",
        Effect.map(workers[0]!.reasons, (reasons) => reasons.some((reason) => reason.includes("hints"))),
        "60 seconds"
      )
      const startMs = yield* nowMs
      yield* workers[1]!.stop
      assert.isBelow((yield* nowMs) - startMs, 6_000)
      yield* server.thaw
      yield* eventually(
        "the other is well again",
        Effect.map(workers[0]!.reasons, ({ length }) => length === 0),
        "60 seconds"
      )
    }).pipe(Effect.scoped), 180_000)
})
