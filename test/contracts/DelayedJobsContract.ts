/**
 * The laws of `DelayedJobs`, for any adapter.
 *
 * Every test forgets what it scheduled. Where the index is the store's own,
 * `record` writes the rows that a submit and a promotion would write.
 */
import { assert, it } from "@effect/vitest"
import { Effect, type Layer } from "effect"
import type { JobId } from "../../src/domain/JobId.ts"
import { DelayedJobs } from "../../src/ports/DelayedJobs.ts"
import * as Ids from "../support/Ids.ts"

interface Delayed {
  readonly id: JobId
  readonly runAtMs: number
}

export interface Options<R> {
  readonly record?: {
    readonly schedule: (jobs: ReadonlyArray<Delayed>) => Effect.Effect<void, unknown, R>
    readonly promote: (ids: ReadonlyArray<JobId>) => Effect.Effect<void, unknown, R>
  }
}

export const suite = <R, E>(adapter: string, layer: Layer.Layer<DelayedJobs | R, E>, options: Options<R> = {}) =>
  it.layer(layer, { timeout: "2 minutes", excludeTestServices: true })(`DelayedJobs (${adapter})`, (it) => {
    const schedule = Effect.fnUntraced(function*(jobs: ReadonlyArray<Delayed>) {
      yield* Effect.orDie(options.record?.schedule(jobs) ?? Effect.void)
      yield* (yield* DelayedJobs).schedule(jobs)
    })

    const forget = Effect.fnUntraced(function*(ids: ReadonlyArray<JobId>) {
      yield* Effect.orDie(options.record?.promote(ids) ?? Effect.void)
      yield* (yield* DelayedJobs).forget(ids)
    })

    const elsewhere = options.record === undefined

    /** Far from now, so that no clock but the given one can be meant. */
    const t0 = 4_000_000_000_000

    it.effect("a job is due once the given time has reached its own, and not before, earliest first", () =>
      Effect.gen(function*() {
        const index = yield* DelayedJobs
        const [a, b, c] = [Ids.jobId(), Ids.jobId(), Ids.jobId()]
        yield* schedule([{ id: a, runAtMs: t0 + 30 }, { id: b, runAtMs: t0 + 10 }, { id: c, runAtMs: t0 + 20 }])

        assert.deepInclude(yield* index.due(t0 + 9, 10), { ids: [], nextMs: t0 + 10 })
        assert.deepInclude(yield* index.due(t0 + 10, 10), { ids: [b], nextMs: t0 + 20 })
        assert.deepInclude(yield* index.due(t0 + 25, 10), { ids: [b, c], nextMs: t0 + 30 })
        assert.deepInclude(yield* index.due(t0 + 1_000, 10), { ids: [b, c, a], nextMs: null })
        yield* forget([a, b, c])
      }))

    it.effect("a limit takes the earliest", () =>
      Effect.gen(function*() {
        const index = yield* DelayedJobs
        const jobs = Array.from({ length: 20 }, (_, n) => ({ id: Ids.jobId(), runAtMs: t0 + n }))
        yield* schedule(jobs.toReversed())

        const { ids } = yield* index.due(t0 + 100, 5)

        assert.deepStrictEqual(ids, jobs.slice(0, 5).map(({ id }) => id))
        yield* forget(jobs.map(({ id }) => id))
      }))

    it.effect("it stays due until it is forgotten", () =>
      Effect.gen(function*() {
        const index = yield* DelayedJobs
        const id = Ids.jobId()
        yield* schedule([{ id, runAtMs: t0 }])
        assert.deepStrictEqual((yield* index.due(t0, 10)).ids, [id])
        assert.deepStrictEqual((yield* index.due(t0, 10)).ids, [id])
        yield* forget([id])
        assert.deepInclude(yield* index.due(t0, 10), { ids: [], nextMs: null })
      }))

    it.effect("scheduling again replaces the time", () =>
      Effect.gen(function*() {
        const index = yield* DelayedJobs
        const id = Ids.jobId()
        yield* schedule([{ id, runAtMs: t0 }])
        yield* schedule([{ id, runAtMs: t0 + 50 }])
        assert.deepInclude(yield* index.due(t0 + 49, 10), { ids: [], nextMs: t0 + 50 })
        assert.deepStrictEqual((yield* index.due(t0 + 50, 10)).ids, [id])
        yield* forget([id])
      }))

    it.effect("forgetting what is not there changes nothing", () =>
      Effect.gen(function*() {
        const index = yield* DelayedJobs
        const id = Ids.jobId()
        yield* schedule([{ id, runAtMs: t0 }])
        yield* index.forget([Ids.jobId()])
        yield* index.forget([])
        assert.deepStrictEqual((yield* index.due(t0, 10)).ids, [id])
        yield* forget([id])
      }))

    it.effect("an index apart from the store wants to be filled, until it was, and again when that time is over", () =>
      Effect.gen(function*() {
        const index = yield* DelayedJobs
        const wants = (nowMs: number) => Effect.map(index.due(nowMs, 10), ({ wantsFill }) => wantsFill)
        assert.strictEqual(index.horizonMs !== null, elsewhere)
        assert.strictEqual(yield* wants(t0), elsewhere)
        yield* index.filled(t0 + 1_000)
        assert.isFalse(yield* wants(t0 + 999))
        assert.strictEqual(yield* wants(t0 + 1_000), elsewhere)
        yield* index.filled(t0 + 2_000)
        assert.isFalse(yield* wants(t0 + 1_000))
        assert.deepInclude(yield* index.due(t0 + 5_000, 10), { ids: [], nextMs: null })
        yield* index.filled(0)
      }))

    it.effect("scheduling nothing, and asking for nothing, is allowed", () =>
      Effect.gen(function*() {
        const index = yield* DelayedJobs
        yield* index.schedule([])
        assert.deepStrictEqual((yield* index.due(t0, 0)).ids, [])
      }))
  })
