/** Whom the statements wake, and where claims begin: what workers feel of the store besides its answers. */
import { assert, it } from "@effect/vitest"
import { Clock, Effect, Layer, Queue } from "effect"
import * as Database from "../../../src/adapters/postgres/Database.ts"
import * as JobStorePostgres from "../../../src/adapters/postgres/JobStorePostgres.ts"
import { claim as claimText, claimAll as claimAllText } from "../../../src/adapters/postgres/store/ClaimSql.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import {
  claimOf,
  counting,
  held,
  request,
  settlement,
  submittedAll,
  tokenOf
} from "../../contracts/JobStoreContractSteps.ts"
import { wait } from "../../support/Clock.ts"
import * as Jobs from "../../support/Jobs.ts"
import * as Postgres from "../../support/Postgres.ts"

const store = (wake: boolean) => JobStorePostgres.layer({ wake, keyTtlMs: 60_000 })

it.layer(Layer.provideMerge(store(true), Postgres.layer), { excludeTestServices: true })(
  "JobStorePostgres: wakes",
  (it) => {
    it.effect("each statement wakes once, for what it made ready and for what is due soon", () =>
      Effect.gen(function*() {
        const { notifications } = yield* (yield* Database.Database).listen("deadman_wake")
        const database = yield* Database.Database
        const jobStore = yield* JobStore
        /** What was said since, up to a word of our own. */
        const heard = Effect.gen(function*() {
          yield* database.query("read", `SELECT pg_notify('deadman_wake', 'end')`)
          const said: Array<string> = []
          for (;;) {
            const { payload } = yield* Queue.take(notifications)
            if (payload === "end") return said.toSorted()
            said.push(payload)
          }
        })
        const after = (ms: number) => Effect.map(jobStore.now, (now) => now + ms)

        const answer = yield* jobStore.submit(yield* Jobs.jobs(50), { atomic: false })
        assert.isTrue(answer.announced)
        assert.deepStrictEqual(yield* heard, ["r"])
        yield* jobStore.submit([yield* Jobs.job({ runAtMs: yield* after(1_500) }), yield* Jobs.job()], {
          atomic: false
        })
        assert.deepStrictEqual(yield* heard, ["d", "r"])
        yield* jobStore.submit([yield* Jobs.job({ runAtMs: yield* after(3_600_000) })], { atomic: false })
        assert.deepStrictEqual(yield* heard, [])
        const key = { key: { key: yield* Jobs.freshKey, fingerprint: "f" } }
        for (const own of [{}, key, { retainMs: 60_000 }]) {
          const [soon, far] = [yield* Jobs.job({ ...own, delayMs: 1_500 }), yield* Jobs.job({ delayMs: 3_600_000 })]
          yield* jobStore.submit([soon], { atomic: false })
          assert.deepStrictEqual(yield* heard, ["d"])
          yield* jobStore.submit([far], { atomic: false })
          assert.deepStrictEqual(yield* heard, [])
        }

        const jobs = yield* submittedAll(6)
        const asked = yield* request(jobs[0]!)
        yield* heard
        const claims = (yield* jobStore.claim(asked)).map((job) => claimOf(asked.lease, job))
        yield* jobStore.settle([settlement(claims[0]!, "complete", { result: null })])
        yield* jobStore.settle([settlement(claims[1]!, "fail", { delayMs: 60_000 })])
        assert.deepStrictEqual(yield* heard, [], "nothing to run")
        yield* jobStore.settle([settlement(claims[2]!, "fail", { delayMs: 500 })])
        assert.deepStrictEqual(yield* heard, ["d"])
        yield* jobStore.settle([settlement(claims[3]!, "release")])
        assert.deepStrictEqual(yield* heard, ["r"])
        yield* jobStore.reclaim([{ lease: asked.lease, token: yield* tokenOf(asked.lease) }], counting)
        assert.deepStrictEqual(yield* heard, ["d"])
        const { claim } = yield* held(wait, { id: claims[4]!.id, type: jobs[0]!.type })
        yield* heard
        yield* jobStore.abandon([claim.lease])
        assert.deepStrictEqual(yield* heard, ["r"])
      }))
  }
)

it.layer(Postgres.layer, { excludeTestServices: true })("JobStorePostgres: where claims begin", (it) => {
  it.effect("full claims begin where the last one did, and what sorts before that is found within a second or so", () =>
    Effect.gen(function*() {
      const starts: Array<string> = []
      const watched = Layer.effect(
        Database.Database,
        Effect.map(Database.Database, (database) =>
          Database.Database.of({
            ...database,
            query: (lane, text, params, options) => {
              if (text === claimText || text === claimAllText(false)) starts.push(String(params?.[8]))
              return database.query(lane, text, params, options)
            }
          }))
      )
      yield* Effect.gen(function*() {
        const jobStore = yield* JobStore
        const [job] = yield* submittedAll(400)
        const take = Effect.gen(function*() {
          const [taken] = yield* jobStore.claim(yield* request(job!, { limit: 1 }))
          return taken?.id
        })
        yield* take
        yield* take
        assert.strictEqual(starts[0], "-9223372036854775808")
        assert.isAbove(Number(starts[1]), 0, "the second claim does not walk from the start")
        const urgent = yield* Jobs.job({ type: job!.type, priority: 1_000 })
        yield* jobStore.submit([urgent], { atomic: false })
        const from = yield* Clock.monotonicTimeNanos
        let taken = yield* take
        while (taken !== undefined && taken !== urgent.id) {
          yield* Effect.sleep("10 millis")
          taken = yield* take
        }
        const ms = Number(((yield* Clock.monotonicTimeNanos) - from) / 1_000_000n)
        assert.strictEqual(taken, urgent.id)
        assert.isBelow(ms, 2_000)
        // A claim that was not full found the end: the next one walks from the start.
        yield* jobStore.claim(yield* request(job!, { limit: 1_000 }))
        yield* take
        assert.strictEqual(starts.at(-1), "-9223372036854775808")
      }).pipe(Effect.provide(Layer.provide(store(false), watched)))
    }))
})
