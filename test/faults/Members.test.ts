/**
 * Who gets work, over Postgres, Redis and Kafka: slow jobs before fast ones, workers without a partition, members that
 * join and are killed.
 */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import * as Processes from "../support/Processes.ts"
import * as TestServers from "../support/TestServers.ts"
import * as Scale from "./ScaleStage.ts"
import { Stage } from "./Stage.ts"

const many = (count: number, body: object) => Array.from({ length: count }, () => body)

/** As `Stage` has it. */
const leaseMs = 1_000
/** The group's, in `src/adapters/kafka/Consumer.ts`. */
const sessionMs = 6_000

TestServers.describeWithKafka("members of the group", () => {
  it.layer(Scale.layer([{ topic: "jobs.ready", numPartitions: 1 }]), {
    excludeTestServices: true,
    timeout: "2 minutes"
  })("on one partition", (it) => {
    it.effect(
      "60: fifty fast jobs behind a long one are done in seconds",
      () =>
        Effect.gen(function*() {
          const { clean, ended, jobs, rows, running, shared, submit, worker } = yield* Stage
          const { api } = yield* shared
          yield* worker("a")
          // So that the long one comes by the topic, and is not found in Postgres.
          yield* ended(yield* submit(api, many(5, { type: "noop" })))
          yield* Processes.eventually("it takes part", Scale.caughtUp)
          const [long] = yield* submit(api, [{ type: "sleep", payload: 60_000 }])
          yield* running([long!])
          const fast = yield* submit(api, many(50, { type: "sleep", payload: 10 }))
          yield* ended(fast)
          const [took] = yield* rows<{ ms: number }>(
            `SELECT (max(j.finished_at_ms) - min(b.created_at_ms))::float8 AS ms
             FROM deadman.job j JOIN deadman.body b ON b.id = j.id WHERE j.id IN (${
              fast.map((id) => `'${id}'`).join()
            })`
          )
          assert.isBelow(took?.ms ?? Infinity, 5_000)
          yield* clean(fast, 1)
          assert.deepInclude((yield* jobs([long!]))[0], { state: 1, deliveries: 1 })
          yield* api.send("DELETE", `/jobs/${long}`)
          yield* Processes.eventually("all is committed", Scale.caughtUp)
        }),
      180_000
    )

    it.effect(
      "an idle worker without a partition has work within 2 s while the other one is full",
      () =>
        Effect.gen(function*() {
          const { clean, ended, jobs, running, shared, submit, worker } = yield* Stage
          const { api } = yield* shared
          const env = { DEADMAN_WORKER_THREADS: "2" }
          const full = yield* worker("full", env)
          const long = yield* submit(api, many(2, { type: "sleep", payload: 60_000 }))
          yield* running(long)
          const idle = yield* worker("idle", env)
          yield* Processes.eventually("it is up", Effect.sync(() => idle.output().includes("Kafka")))
          yield* Effect.sleep("3 seconds")
          const fast = yield* submit(api, many(10, { type: "noop" }))
          yield* ended(fast)
          yield* clean(fast, 1)
          const found = yield* jobs(fast)
          assert.isTrue(found.every((job) => job.worker?.startsWith("idle") === true))
          assert.isTrue(full.alive())
          const submitted = yield* Effect.forEach(fast, (id) => api.send("GET", `/jobs/${id}`))
          assert.isBelow(Math.max(...submitted.map(({ body }) => body.started_at_ms - body.created_at_ms)), 2_000)
          yield* Effect.forEach(long, (id) => api.send("DELETE", `/jobs/${id}`))
        }),
      180_000
    )
  })

  it.layer(Scale.layer(), { excludeTestServices: true, timeout: "2 minutes" })("on six partitions", (it) => {
    it.effect(
      "a job of three session timeouts runs once while members come and are killed, and short ones flow",
      () =>
        Effect.gen(function*() {
          const { ended, jobs, running, shared, submit, worker } = yield* Stage
          const { api } = yield* shared
          const steady = yield* worker("steady")
          const [long] = yield* submit(api, [{ type: "sleep", payload: 3 * sessionMs }])
          yield* running([long!])
          const coming = yield* Effect.forkChild(Effect.gen(function*() {
            for (let n = 0;; n++) {
              const guest = yield* worker(`guest${n}`)
              yield* Effect.sleep("3 seconds")
              yield* guest.signal("SIGKILL")
            }
          }))
          const short: Array<string> = []
          while (short.length < 100) {
            short.push(...(yield* submit(api, many(2, { type: "sleep", payload: 100 }))))
            yield* Effect.sleep("300 millis")
          }
          yield* ended([long!])
          yield* Fiber.interrupt(coming)
          yield* ended(short)
          assert.deepInclude((yield* jobs([long!]))[0], { state: 3, deliveries: 1, attempts: 0 })
          const found = yield* jobs(short)
          assert.isTrue(
            found.every(({ attempts, deliveries, losses, state }) =>
              state === 3 && attempts === 0 && deliveries <= 1 + losses
            )
          )
          const waits = yield* Effect.forEach(
            found.filter(({ losses }) => losses === 0),
            ({ id }) =>
              Effect.map(api.send("GET", `/jobs/${id}`), ({ body }) => body.started_at_ms - body.created_at_ms)
          )
          assert.isAbove(waits.length, 80)
          // One that was published to a dead member's partition is found in Postgres a second later.
          assert.isBelow(Math.max(...waits), 3_000)
          assert.isTrue(steady.alive())
        }),
      180_000
    )

    it.effect("twelve workers on six partitions all work", () =>
      Effect.gen(function*() {
        const { clean, ended, jobs, manned, shared, submit, worker } = yield* Stage
        const { api } = yield* shared
        const crew = yield* Effect.forEach(
          Array.from({ length: 12 }, (_, n) => n),
          (n) => worker(`twelve${n}`, { DEADMAN_WORKER_THREADS: "1" }),
          { concurrency: 12 }
        )
        yield* Processes.eventually(
          "all are up",
          Effect.sync(() => crew.every(({ output }) => output().includes("Kafka")))
        )
        yield* manned
        const ids = yield* submit(api, many(240, { type: "sleep", payload: 300 }))
        yield* ended(ids)
        yield* clean(ids)
        assert.strictEqual(new Set((yield* jobs(ids)).map((job) => job.worker)).size, 12)
      }), 180_000)

    it.effect(
      "the jobs of a worker that is killed under a backlog run elsewhere ahead of it",
      () =>
        Effect.gen(function*() {
          const { ended, jobs, rows, running, shared, submit, worker } = yield* Stage
          const { api } = yield* shared
          const victim = yield* worker("victim")
          const held = yield* submit(api, many(4, { type: "sleep", payload: 20_000 }))
          yield* running(held)
          const backlog = yield* submit(api, many(200, { type: "sleep", payload: 300 }))
          yield* worker("heir")
          yield* Processes.eventually(
            "the heir works",
            Effect.map(jobs(backlog), (all) => all.some(({ state }) => state === 3))
          )
          const killedMs = Date.now()
          yield* victim.signal("SIGKILL")
          yield* Processes.eventually(
            "its jobs run elsewhere",
            Effect.map(jobs(held), (all) => all.every(({ deliveries, state }) => deliveries === 2 && state === 1))
          )
          // A lease and 2 s, and the four slots of the heir, free one after the other.
          const latest = Math.max(...(yield* jobs(held)).map(({ started }) => started)) - killedMs
          assert.isBelow(latest, leaseMs + 2_000 + 4 * 300)
          const [left] = yield* rows<{ n: number }>(`SELECT count(*)::int AS n FROM deadman.job WHERE state = 0`)
          assert.isAbove(left?.n ?? 0, 0)
          yield* Effect.forEach(held, (id) => api.send("DELETE", `/jobs/${id}`))
          yield* ended([...held, ...backlog])
        }),
      180_000
    )
  })
})
