/** Laws of `JobStore`: outcomes, their repeats, and what is too late. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { Epoch } from "../../src/domain/Claim.ts"
import { firstKept, newestKept } from "../../src/domain/History.ts"
import { JobStore, type Settled } from "../../src/ports/JobStore.ts"
import * as Jobs from "../support/Jobs.ts"
import * as Steps from "./JobStoreContractSteps.ts"

const stale = (currentEpoch: number): Settled => ({ _tag: "Stale", currentEpoch })

export const settleLaws: Steps.Laws = (it, pass) => {
  it.effect("6: a completed job keeps its result", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* Steps.submitted()
      const { claim } = yield* Steps.held(pass, job)
      const before = yield* store.now

      yield* Steps.settled(claim, "complete", { result: "{\"sum\":[1,\"é😀\",null]}" })

      const done = yield* Steps.read(job.id)
      assert.include(done, { state: "completed", reason: null, attempts: 0, worker: Steps.worker, epoch: 1 })
      assert.deepStrictEqual(done.result, { sum: [1, "é😀", null] })
      assert.isAtLeast(done.finishedAtMs ?? -1, before)
      assert.deepStrictEqual([done.errors, done.events], [[], []])
      const { claim: other } = yield* Steps.held(pass, yield* Steps.submitted())
      yield* Steps.settled(other, "complete", { result: null })
      assert.isNull((yield* Steps.read(other.id)).result)
    }))

  it.effect("6, 7: a failed job keeps the error, and waits for its time", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* Steps.submitted()
      const { claim } = yield* Steps.held(pass, job)
      const before = yield* store.now
      const delayMs = 3_600_000
      yield* Steps.settled(claim, "fail", { delayMs, failure: { name: "Oops", message: "a \"quoted\" é" } })
      const failed = yield* Steps.read(job.id)

      assert.include(failed, { state: "failed", attempts: 1, finishedAtMs: null, reason: null })
      assert.isAtLeast(failed.runAtMs, before + delayMs)
      const [error] = failed.errors
      assert.include(error, { attempt: 1, epoch: 1, worker: Steps.worker, name: "Oops", message: "a \"quoted\" é" })
      assert.strictEqual(error?.claimedAtMs, failed.startedAtMs)
      assert.isAtLeast(error?.atMs ?? 0, before)
      yield* store.promoteIds([job.id])
      const early = yield* store.claimIds({ ...(yield* Steps.request(job)), ids: [job.id] })
      assert.deepStrictEqual(early, {
        claimed: [],
        notYetDue: [{ id: job.id, runAtMs: failed.runAtMs }],
        inOrder: [],
        left: []
      })
    }))

  it.effect("6: a failed job runs again when its delay is over, and not before", () =>
    Effect.gen(function*() {
      const job = yield* Steps.submitted()
      yield* Steps.settled((yield* Steps.held(pass, job)).claim, "fail", { delayMs: 300 })
      const { runAtMs } = yield* Steps.read(job.id)
      const next = yield* Steps.held(pass, job)
      assert.include(next.job, { epoch: 2, attempts: 1 })
      assert.isAtLeast((yield* Steps.read(job.id)).startedAtMs ?? 0, runAtMs)
    }))

  it.effect("6: a failed job without a delay may run at once", () =>
    Effect.gen(function*() {
      const job = yield* Steps.submitted()
      yield* Steps.settled((yield* Steps.held(pass, job)).claim, "fail")

      assert.strictEqual((yield* Steps.held(pass, job)).job.attempts, 1)
    }))

  it.effect("6, 7: a job that dies keeps its reason and the last error", () =>
    Effect.gen(function*() {
      const [exhausted, rejected] = [yield* Steps.submitted(), yield* Steps.submitted()]

      yield* Steps.settled((yield* Steps.held(pass, exhausted)).claim, "die")
      yield* Steps.settled((yield* Steps.held(pass, rejected)).claim, "die", { reason: "rejected" })

      assert.include(yield* Steps.read(exhausted.id), { state: "dead", reason: "attempts_exhausted", attempts: 1 })
      const job = yield* Steps.read(rejected.id)
      assert.include(job, { state: "dead", reason: "rejected", attempts: 1, errorsOmitted: 0 })
      assert.include(job.errors[0], { name: "Boom", attempt: 1 })
      assert.isNotNull(job.finishedAtMs)
    }))

  it.effect("6: a released job may run at once, and says that it was released if that was asked", () =>
    Effect.gen(function*() {
      const job = yield* Steps.submitted()
      const first = yield* Steps.held(pass, job)
      yield* Steps.settled(first.claim, "release", { recorded: false })
      assert.deepStrictEqual((yield* Steps.read(job.id)).events, [])
      assert.lengthOf(yield* Steps.take(job, { limit: 1 }), 1)
      const running = yield* Steps.read(job.id)
      assert.include(running, { state: "running", epoch: 2 })
    }))

  it.effect("6: a release that is recorded is an event", () =>
    Effect.gen(function*() {
      const job = yield* Steps.submitted()
      yield* Steps.settled((yield* Steps.held(pass, job)).claim, "release")

      const { events } = yield* Steps.read(job.id)

      assert.lengthOf(events, 1)
      assert.include(events[0], { kind: "released", epoch: 1, worker: Steps.worker })
    }))

  it.effect("6: a job that asked to run again later does so at its time, at no cost", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* Steps.submitted()
      const { claim } = yield* Steps.held(pass, job)
      const before = yield* store.now
      yield* Steps.settled(claim, "again", { delayMs: 1_000 })

      const waiting = yield* Steps.read(job.id)
      assert.include(waiting, { state: "pending", attempts: 0 })
      assert.isAtLeast(waiting.runAtMs, before + 1_000)
      yield* store.promoteIds([job.id])
      assert.lengthOf(yield* Steps.take(job), 0)
      yield* Steps.held(pass, job)
      assert.isAtLeast((yield* Steps.read(job.id)).startedAtMs ?? 0, waiting.runAtMs)
    }))

  it.effect("6: a repeat answers Settled whatever it carries, and changes nothing", () =>
    Effect.gen(function*() {
      const steps = ["complete", "fail", "die", "release", "again"] as const
      for (const first of steps) {
        const job = yield* Steps.submitted()
        const { claim } = yield* Steps.held(pass, job)
        yield* Steps.settled(claim, first, { delayMs: 60_000 })
        const before = yield* Steps.read(job.id)
        for (const again of steps) {
          assert.deepStrictEqual(yield* Steps.settle(claim, again), Steps.repeated, `${again} after ${first}`)
        }
        assert.deepStrictEqual(yield* Steps.read(job.id), before)
      }
    }))

  it.effect("6: a repeat answers Settled also after the job has moved on", () =>
    Effect.gen(function*() {
      const job = yield* Steps.submitted()
      const first = yield* Steps.held(pass, job)
      yield* Steps.settled(first.claim, "fail")
      const second = yield* Steps.held(pass, job)
      const running = yield* Steps.read(job.id)

      assert.deepStrictEqual(yield* Steps.settle(first.claim, "fail"), Steps.repeated)
      assert.deepStrictEqual(yield* Steps.settle(first.claim, "complete"), Steps.repeated)
      assert.deepStrictEqual(yield* Steps.read(job.id), running)
      yield* Steps.settled(second.claim, "release", { recorded: false })
      const third = yield* Steps.held(pass, job)
      for (const claim of [first.claim, second.claim]) {
        assert.deepStrictEqual(yield* Steps.settle(claim, "die"), Steps.repeated)
      }
      yield* Steps.settled(third.claim, "complete")
      for (const claim of [first.claim, second.claim, third.claim]) {
        assert.deepStrictEqual(yield* Steps.settle(claim, "fail"), Steps.repeated)
      }
      assert.include(yield* Steps.read(job.id), { state: "completed", attempts: 1, staleWrites: 0, epoch: 3 })
    }))

  it.effect("6: twins sent at once are written once", () =>
    Effect.gen(function*() {
      for (let round = 0; round < 5; round++) {
        const job = yield* Steps.submitted()
        const { claim } = yield* Steps.held(pass, job)

        const answers = yield* Effect.forEach(
          Array.from({ length: 4 }),
          () => Steps.settle(claim, "fail", { delayMs: 60_000 }),
          { concurrency: "unbounded" }
        )

        assert.deepStrictEqual(answers.filter(({ _tag }) => _tag !== "Settled"), [])
        assert.strictEqual(answers.filter((answer) => answer._tag === "Settled" && !answer.repeated).length, 1)
        const after = yield* Steps.read(job.id)
        assert.include(after, { attempts: 1, staleWrites: 0 })
        assert.lengthOf(after.errors, 1)
      }
    }))

  it.effect("6: one claim twice in one batch is written once", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* Steps.submitted()
      const { claim } = yield* Steps.held(pass, job)

      const answers = yield* store.settle([
        Steps.settlement(claim, "fail", { delayMs: 60_000 }),
        Steps.settlement(claim, "fail", { delayMs: 60_000 })
      ])

      assert.deepStrictEqual(answers.map(({ _tag }) => _tag), ["Settled", "Settled"])
      const after = yield* Steps.read(job.id)
      assert.include(after, { attempts: 1, state: "failed" })
      assert.lengthOf(after.errors, 1)
    }))

  it.effect("6: a write under another lease than the current one is stale", () =>
    Effect.gen(function*() {
      const job = yield* Steps.submitted()
      const { claim } = yield* Steps.held(pass, job)
      const forged = { ...claim, lease: yield* Jobs.freshLease }

      assert.deepStrictEqual(yield* Steps.settle(forged, "complete"), stale(1))
      assert.include(yield* Steps.read(job.id), { state: "running", staleWrites: 1 })
      yield* Steps.settled(claim, "complete")
      assert.deepStrictEqual(yield* Steps.settle(forged, "complete"), stale(1))
      assert.include(yield* Steps.read(job.id), { state: "completed", staleWrites: 2 })
    }))

  it.effect("6: a write whose epoch was settled under another lease is stale, also after the job has moved on", () =>
    Effect.gen(function*() {
      const job = yield* Steps.submitted()
      const first = yield* Steps.held(pass, job)
      yield* Steps.settled(first.claim, "release")
      const second = yield* Steps.held(pass, job)

      const forged = { ...first.claim, lease: yield* Jobs.freshLease }

      assert.deepStrictEqual(yield* Steps.settle(forged, "complete"), stale(2))
      assert.deepStrictEqual(yield* Steps.settle({ ...forged, lease: second.claim.lease }, "complete"), stale(2))
      assert.include(yield* Steps.read(job.id), { state: "running", staleWrites: 2 })
      yield* Steps.settled(second.claim, "complete")
    }))

  it.effect("6: a write of an epoch that was never given out is stale", () =>
    Effect.gen(function*() {
      const job = yield* Steps.submitted()
      const forged = { id: job.id, epoch: Epoch.make(1), lease: yield* Jobs.freshLease }
      assert.deepStrictEqual(yield* Steps.settle(forged, "complete"), stale(0))
      const { claim } = yield* Steps.held(pass, job)

      const ahead = { ...claim, epoch: Epoch.make(2) }

      assert.deepStrictEqual(yield* Steps.settle(ahead, "complete"), stale(1))
      assert.include(yield* Steps.read(job.id), { state: "running", staleWrites: 2 })
    }))

  it.effect("6: a write whose epoch was lost is stale, counted and shown", () =>
    Effect.gen(function*() {
      const job = yield* Steps.submitted()
      const first = yield* Steps.held(pass, job)
      yield* Steps.lapsed(first.claim.lease)
      const waiting = yield* Steps.settle(first.claim, "complete")
      const second = yield* Steps.held(pass, job)
      const running = yield* Steps.settle(first.claim, "fail")
      yield* Steps.settled(second.claim, "complete")
      const final = yield* Steps.settle(first.claim, "complete")

      assert.deepStrictEqual([waiting, running, final], [stale(1), stale(2), stale(2)])
      const after = yield* Steps.read(job.id)
      assert.include(after, { state: "completed", staleWrites: 3, attempts: 0, leaseLosses: 1 })
      const refused = after.events.filter(({ kind }) => kind === "stale_write")
      assert.deepStrictEqual(
        refused.map(({ currentEpoch, epoch, outcome }) => ({ currentEpoch, epoch, outcome })),
        [
          { currentEpoch: 1, epoch: 1, outcome: "complete" },
          { currentEpoch: 2, epoch: 1, outcome: "fail" },
          { currentEpoch: 2, epoch: 1, outcome: "complete" }
        ]
      )
      assert.isTrue(refused.every(({ atMs }) => atMs >= after.createdAtMs))
      const [loser] = after.events
      assert.isString(loser?.worker)
      assert.deepStrictEqual(refused.map(({ worker }) => worker), [1, 2, 3].map(() => loser?.worker))
    }))

  it.effect("6: the epochs of several losses all stay lost", () =>
    Effect.gen(function*() {
      const job = yield* Steps.submitted()
      const claims = []
      for (let loss = 0; loss < 3; loss++) {
        const { claim } = yield* Steps.held(pass, job)
        claims.push(claim)
        yield* Steps.lapsed(claim.lease)
      }
      const last = yield* Steps.held(pass, job)
      yield* Steps.settled(last.claim, "complete")

      for (const claim of claims) {
        assert.strictEqual((yield* Steps.settle(claim, "complete"))._tag, "Stale")
      }
      assert.deepStrictEqual(yield* Steps.settle(last.claim, "complete"), Steps.repeated)
    }))

  it.effect("6: a write about a job that is gone is stale", () =>
    Effect.gen(function*() {
      const claim = { id: yield* Jobs.freshId, epoch: Epoch.make(1), lease: yield* Jobs.freshLease }

      assert.deepStrictEqual(yield* Steps.settle(claim, "complete"), stale(0))
    }))

  it.effect("6: a batch is answered in its order, and what is stale leaves the others alone", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const jobs = yield* Steps.submittedAll(5)
      const held = yield* Effect.forEach(jobs, (job) => Steps.held(pass, job))
      const [done, failed, released, lost, twice] = held.map(({ claim }) => claim)
      yield* Steps.lapsed(lost!.lease)
      yield* Steps.settled(twice!, "complete")
      const unknown = { ...done!, id: yield* Jobs.freshId }

      const answers = yield* store.settle([
        Steps.settlement(twice!, "complete"),
        Steps.settlement(lost!, "complete"),
        Steps.settlement(released!, "release"),
        Steps.settlement(unknown, "complete"),
        Steps.settlement(failed!, "fail", { delayMs: 60_000 }),
        Steps.settlement(done!, "complete")
      ])

      const { repeated, written } = Steps
      assert.deepStrictEqual(answers, [repeated, stale(1), written, stale(0), written, written])
      const states = yield* Effect.forEach(jobs, ({ id }) => Effect.map(Steps.read(id), ({ state }) => state))
      assert.deepStrictEqual(states, ["completed", "failed", "pending", "pending", "completed"])
      assert.deepStrictEqual(yield* store.settle([]), [])
    }))

  it.effect("6: large batches settle in any order, also when two overlap", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const jobs = yield* Steps.submittedAll(100)
      const asked = yield* Steps.request(jobs[0]!)
      const claims = (yield* store.claim(asked)).map((job) => Steps.claimOf(asked.lease, job))
      const batch = claims.map((claim) => Steps.settlement(claim, "complete"))

      const answers = yield* Effect.all([store.settle(batch), store.settle(batch.toReversed())], {
        concurrency: "unbounded"
      })

      assert.deepStrictEqual(answers.flat().filter(({ _tag }) => _tag === "Stale"), [])
      yield* Effect.forEach(claims, (claim) =>
        Effect.map(Steps.settle(claim, "complete"), (answer) => assert.strictEqual(answer._tag, "Settled")))
      const states = (yield* store.get(jobs.map(({ id }) =>
        id
      ))).map(({ state, staleWrites }) => `${state} ${staleWrites}`)
      assert.deepStrictEqual(
        states,
        jobs.map(() =>
          "completed 0"
        )
      )
    }))

  it.effect("7: attempts counts failures, and nothing else", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* Steps.submitted()
      const attempts = () => Effect.map(Steps.read(job.id), ({ attempts }) => attempts)
      yield* Steps.settled((yield* Steps.held(pass, job)).claim, "release")
      yield* Steps.settled((yield* Steps.held(pass, job)).claim, "again")
      yield* store.abandon([(yield* Steps.held(pass, job)).claim.lease])
      yield* Steps.lost(pass, job, 1)
      assert.strictEqual(yield* attempts(), 0)
      yield* Steps.settled((yield* Steps.held(pass, job)).claim, "fail", { delayMs: 60_000 })
      yield* store.retry(job.id)
      assert.strictEqual(yield* attempts(), 1)
      yield* Steps.settled((yield* Steps.held(pass, job)).claim, "release")
      yield* Steps.settled((yield* Steps.held(pass, job)).claim, "die")
      assert.strictEqual(yield* attempts(), 2)
      const clean = yield* Steps.submitted()
      yield* Steps.settled((yield* Steps.held(pass, clean)).claim, "complete")

      assert.strictEqual((yield* Steps.read(clean.id)).attempts, 0)
      const { errors } = yield* Steps.read(job.id)
      assert.deepStrictEqual(errors.map(({ attempt }) => attempt), [1, 2])
    }))

  it.effect("6: errors and events keep the first few and the newest, and say how many they left out", () =>
    Effect.gen(function*() {
      const rounds = firstKept + newestKept + 4
      const job = yield* Steps.submitted({ maxAttempts: 100 })
      for (let round = 1; round <= rounds; round++) {
        const failure = { name: "Boom", message: `failure ${round}` }
        yield* Steps.settled((yield* Steps.held(pass, job)).claim, "fail", { failure, recorded: true })
      }
      const kept = Array.from({ length: rounds }, (_, index) => index + 1)
        .filter((round) => round <= firstKept || round > rounds - newestKept)

      const after = yield* Steps.read(job.id)

      assert.deepStrictEqual(after.errors.map(({ attempt }) => attempt), kept)
      assert.deepStrictEqual(after.errors.map(({ message }) => message), kept.map((round) => `failure ${round}`))
      assert.include(after, { attempts: rounds, errorsOmitted: 4, eventsOmitted: 4 })
      assert.deepStrictEqual(after.events.map(({ epoch }) => epoch), kept)
    }))
}
