/** What a claim does not take although it is ready, and how who asks learns of it. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { Database, uuids } from "../../../src/adapters/postgres/Database.ts"
import { unavailable } from "../../../src/adapters/postgres/DatabaseFailed.ts"
import * as JobStorePostgres from "../../../src/adapters/postgres/JobStorePostgres.ts"
import * as Claim from "../../../src/adapters/postgres/store/Claim.ts"
import { left } from "../../../src/adapters/postgres/store/ClaimSql.ts"
import { Queue } from "../../../src/domain/Job.ts"
import type { JobId } from "../../../src/domain/JobId.ts"
import { type ClaimRequest, JobStore } from "../../../src/ports/JobStore.ts"
import { idsOf, request, sortedIds, submittedAll } from "../../contracts/JobStoreContractSteps.ts"
import { during } from "../../support/ForeignSession.ts"
import * as Jobs from "../../support/Jobs.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as Rows from "../../support/Rows.ts"

const storeLayer = JobStorePostgres.layer({ wake: false, keyTtlMs: 60_000 })

/** A claim, and whether it said that there may be more. */
const take = Effect.fnUntraced(function*(change: Partial<ClaimRequest> & Pick<ClaimRequest, "types">) {
  const store = yield* JobStore
  let more = false
  const jobs = yield* store.claim({
    ...(yield* request({ type: change.types[0]! }, change)),
    onMore: () => {
      more = true
    }
  })
  return { ids: idsOf(jobs), more }
})

/** As if they had been submitted so long before. */
const earlier = (ids: ReadonlyArray<JobId>, ms: number, losses = 0) =>
  Rows.query(
    `UPDATE deadman.job SET run_at_ms = run_at_ms - $2::int, rank = rank - $2::int, losses = $3::int
     WHERE id = ANY ($1::uuid[])`,
    [uuids(ids), ms, losses]
  )

it.layer(Layer.provideMerge(storeLayer, Postgres.layer), { excludeTestServices: true })(
  "JobStorePostgres: what a claim leaves",
  (it) => {
    it.effect("a suspect that claims without a free slot went past is the first job of the next free one", () =>
      Effect.gen(function*() {
        const jobs = yield* submittedAll(40)
        const types = [jobs[0]!.type]
        const suspect = jobs[7]!.id
        yield* earlier([suspect], 60_000, 2)
        // They come back full, and each begins where the last one did.
        for (let n = 0; n < 3; n++) {
          assert.notInclude((yield* take({ types, limit: 5, freeSlots: 0 })).ids, suspect)
        }
        assert.deepStrictEqual((yield* take({ types, limit: 1, freeSlots: 1 })).ids, [suspect])
      }))

    it.effect("a job that was left to others is the first one of a claim that may take it", () =>
      Effect.gen(function*() {
        const jobs = yield* submittedAll(40)
        const types = [jobs[0]!.type]
        const accused = jobs[7]!.id
        yield* earlier([accused], 60_000, 4)
        for (let n = 0; n < 3; n++) {
          assert.notInclude((yield* take({ types, limit: 5, lossesBelow: 3 })).ids, accused)
        }
        assert.deepStrictEqual((yield* take({ types, limit: 5 })).ids, [accused])
      }))

    it.effect("claims of two kinds in turn each begin where the last one of their kind did", () =>
      Effect.gen(function*() {
        const store = yield* JobStore
        const kinds = [{ freeSlots: 1 }, { freeSlots: 0 }]
        // A start is good for a second, so a slow round of a busy machine says nothing.
        for (let round = 0; round < 20; round++) {
          const [first] = yield* submittedAll(8)
          const types = [first!.type]
          const turns = yield* Effect.forEach([...kinds, ...kinds], (kind) => take({ types, limit: 1, ...kind }))
          assert.isTrue(turns.every(({ ids }) => ids.length === 1))
          const urgent = yield* Jobs.job({ type: first!.type, priority: 10 })
          yield* store.submit([urgent], { atomic: false })
          const after = yield* Effect.forEach(kinds, (kind) => take({ types, limit: 1, ...kind }))
          if (!after.some(({ ids }) => ids.includes(urgent.id))) {
            return
          }
        }
        assert.fail("each time one of them walked from the beginning")
      }))

    it.effect("who finds the end of a backlog is told that something may have come before its beginning", () =>
      Effect.gen(function*() {
        const store = yield* JobStore
        const [first] = yield* submittedAll(10)
        const types = [first!.type]
        assert.isFalse((yield* take({ types, limit: 4 })).more, "there was as much as was asked for")
        const urgent = yield* Jobs.job({ type: first!.type, priority: 10 })
        yield* store.submit([urgent], { atomic: false })
        const end = yield* take({ types, limit: 60 })
        assert.lengthOf(end.ids, 6)
        assert.notInclude(end.ids, urgent.id)
        assert.isTrue(end.more)
        assert.deepStrictEqual(yield* take({ types, limit: 60 }), { ids: [urgent.id], more: false })
        assert.deepStrictEqual(yield* take({ types, limit: 60 }), { ids: [], more: false })
      }))

    it.effect("who loses the head of a queue with a limit to others is told that there is more behind it", () =>
      Effect.gen(function*() {
        const queue = Queue.make("narrow")
        const head = yield* submittedAll(2, { queue })
        const rest = yield* submittedAll(2, { queue })
        yield* earlier(idsOf(head), 60_000)
        const claim = take({ types: [head[0]!.type, rest[0]!.type], limit: 10, rooms: [{ queue, room: 2 }] })
        const others = yield* during(
          `SELECT id FROM deadman.job WHERE id = ANY ($1::uuid[]) FOR NO KEY UPDATE`,
          [uuids(idsOf(head))],
          claim
        )
        assert.deepStrictEqual(others, { ids: [], more: true })
        const after = yield* claim
        assert.deepStrictEqual({ ...after, ids: after.ids.toSorted() }, { ids: sortedIds(head), more: false })
      }))

    it.effect("what a claim by ids took is told, though nobody says what became of the other ids", () =>
      Effect.gen(function*() {
        const database = yield* Database
        const { claimIds } = Claim.make({
          ...database,
          query: (lane, text, ...rest) =>
            text === left ? Effect.fail(unavailable("no answer")) : database.query(lane, text, ...rest)
        })
        const jobs = yield* submittedAll(2)
        const ids = idsOf(jobs)
        const asked = { ...(yield* request(jobs[0]!, { limit: 1 })), ids }
        const first = yield* claimIds(asked)
        assert.lengthOf(first.claimed, 1)
        assert.deepStrictEqual(first, { ...first, notYetDue: [], inOrder: [], left: [] })
        // Where nothing was taken the look is all that there is to answer.
        const none = yield* Effect.flip(claimIds({ ...(yield* request(jobs[0]!)), ids: idsOf(first.claimed) }))
        assert.strictEqual(none._tag, "JobStoreUnavailable")
      }))

    for (const rooms of [[], [{ queue: Queue.make("elsewhere"), room: 1 }]]) {
      const how = rooms.length === 0 ? "" : ", also where a queue has a limit"

      it.effect(`who loses the head of several types to others is told that there is more behind it${how}`, () =>
        Effect.gen(function*() {
          const head = yield* submittedAll(5)
          const rest = yield* submittedAll(5)
          yield* earlier(idsOf(head), 60_000)
          const types = [head[0]!.type, rest[0]!.type]
          const others = yield* during(
            `SELECT id FROM deadman.job WHERE id = ANY ($1::uuid[]) FOR NO KEY UPDATE`,
            [uuids(idsOf(head))],
            Effect.all([take({ types, limit: 5, rooms }), take({ types: types.slice(0, 1), limit: 5, rooms })])
          )
          assert.deepStrictEqual(others, [{ ids: [], more: true }, {
            ids: [],
            // Of one type it takes what is behind without being told.
            more: rooms.length > 0
          }])
          const after = yield* take({ types, limit: 5, rooms })
          assert.deepStrictEqual({ ...after, ids: after.ids.toSorted() }, { ids: sortedIds(head), more: false })
          assert.deepStrictEqual((yield* take({ types, limit: 5, rooms })).ids.toSorted(), sortedIds(rest))
        }))
    }
  }
)
