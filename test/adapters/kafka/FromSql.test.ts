/** Jobs that came by `deadman.submit` while Kafka carries the others: woken for, and not behind the topic. */
import { assert, it } from "@effect/vitest"
import { Clock, Effect } from "effect"
import type { JobId } from "../../../src/domain/JobId.ts"
import type { HandlerJob } from "../../../src/programs/worker/HandlerApi.ts"
import { eventually } from "../../support/Eventually.ts"
import * as TestServers from "../../support/TestServers.ts"
import * as Stage from "./Stage.ts"

/** A stage with one worker that takes part in the deliveries, and when each job began. */
const manned = Effect.fnUntraced(function*(slots: number) {
  const system = yield* Stage.make(yield* TestServers.kafkaBrokers)
  const began = new Map<string, number>()
  const during = (ms: number) => ({ id }: HandlerJob) =>
    Effect.gen(function*() {
      began.set(id, yield* Clock.currentTimeMillis)
      yield* Effect.sleep(ms)
    })
  const worker = yield* system.worker({ fast: during(5), short: during(20) }, { slots })
  yield* eventually("it is well", Effect.map(worker.reasons, ({ length }) => length === 0), "60 seconds")
  const submit = Effect.fnUntraced(function*(type: string, options: object = {}) {
    const [row] = yield* system.sql("SELECT deadman.submit($1::text, '1', $2::text::jsonb) AS id", [
      type,
      JSON.stringify(options)
    ])
    return String(row?.["id"]) as JobId
  })
  return { ...system, began, fromSql: submit }
})

TestServers.describeWithKafka("jobs from SQL beside Kafka", () => {
  it.live(
    "are woken for: an idle worker begins at once, without the safety net of a second",
    () =>
      Effect.gen(function*() {
        const { began, completed, fromSql, offsets } = yield* manned(2)
        const waits: Array<number> = []
        for (let round = 0; round < 9; round++) {
          const from = yield* Clock.currentTimeMillis
          const id = yield* fromSql("fast")
          yield* eventually("it is done", completed([id]))
          waits.push((began.get(id) ?? Number.NaN) - from)
        }
        const median = waits.toSorted((a, b) => a - b)[4] ?? Number.NaN
        assert.isBelow(median, 500, `ms until each began: ${waits.join(" ")}`)
        assert.isTrue((yield* offsets).every((offset) => offset <= 0), "no message was sent for them")
      }).pipe(Effect.scoped),
    180_000
  )

  it.live("do not queue behind the topic: they come in the order of their rank", () =>
    Effect.gen(function*() {
      const { completed, fromSql, states, submit } = yield* manned(1)
      const backlog = yield* submit("short", 300)
      yield* eventually("some are done", Effect.map(states(backlog), (all) => all.includes("completed")))
      const urgent = yield* fromSql("fast", { priority: 10 })
      const plain = yield* fromSql("fast")
      yield* eventually("the urgent one is done", completed([urgent]))
      assert.include(yield* states(backlog), "pending")
      // Claimed from Postgres in its turn: when everything older is done, and not when the topic has come to it.
      yield* eventually("the plain one is done", completed([plain]), "60 seconds")
    }).pipe(Effect.scoped), 180_000)

  it.live("of one transaction are run after its commit, each once, with the topic full", () =>
    Effect.gen(function*() {
      const { began, sql, states, submit } = yield* manned(4)
      yield* submit("short", 100)
      const rows = yield* sql(
        `SELECT deadman.submit('fast', to_jsonb(n), jsonb_build_object('priority', n % 2)) AS id
         FROM generate_series(1, 200) n`
      )
      const ids = rows.map((row) => String(row["id"]) as JobId)
      yield* eventually(
        "all are done",
        Effect.map(states(ids), (all) => all.length === 200 && all.every((state) => state === "completed")),
        "60 seconds"
      )
      assert.isTrue(ids.every((id) => began.has(id)))
    }).pipe(Effect.scoped), 180_000)
})
