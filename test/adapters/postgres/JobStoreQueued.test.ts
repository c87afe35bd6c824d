/** A store beside which ids are published wakes for what does not queue there, and for nothing else. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Queue } from "effect"
import * as JobStorePostgres from "../../../src/adapters/postgres/JobStorePostgres.ts"
import * as TransportPostgres from "../../../src/adapters/postgres/TransportPostgres.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import { Transport } from "../../../src/ports/Transport.ts"
import { eventually } from "../../support/Eventually.ts"
import * as Jobs from "../../support/Jobs.ts"
import * as Postgres from "../../support/Postgres.ts"

const layer = Layer.mergeAll(
  JobStorePostgres.layer({ wake: true, queued: true, keyTtlMs: 60_000 }),
  TransportPostgres.layer
).pipe(Layer.provideMerge(Postgres.layer))

it.layer(layer, { excludeTestServices: true, timeout: "2 minutes" })("JobStorePostgres beside a topic", (it) => {
  it.effect("a submit and a promotion leave the telling to the topic, a retry does not", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const transport = yield* Transport
      const { wakes } = yield* transport.subscribe({ worker: true })
      const told: Array<string> = []
      yield* Effect.forkScoped(Effect.forever(Effect.map(Queue.take(wakes), ({ _tag }) => told.push(_tag))))

      const plain = yield* Jobs.job()
      const answer = yield* store.submit([plain], { atomic: false })
      assert.isFalse(answer.announced)
      const soon = yield* Jobs.job({ runAtMs: (yield* store.now) + 1_500 })
      yield* store.submit([soon], { atomic: false })
      yield* eventually("the keeper is told that something is due", Effect.sync(() => told.includes("Due")))
      yield* eventually(
        "the promotion",
        Effect.map(store.promote(10), ({ announced, jobs }) => !announced && jobs.some(({ id }) => id === soon.id))
      )
      const far = yield* Jobs.job({ runAtMs: (yield* store.now) + 3_600_000 })
      yield* store.submit([far], { atomic: false })
      assert.deepStrictEqual(told, ["Due"])
      yield* store.retry(far.id)
      yield* eventually("the workers are told", Effect.sync(() => told.includes("Ready")))
    }).pipe(Effect.scoped))
})
