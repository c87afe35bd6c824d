/** Laws of `JobStore`: what people do to jobs, and what makes them ready. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { JobStore } from "../../src/ports/JobStore.ts"
import * as Jobs from "../support/Jobs.ts"
import * as Steps from "./JobStoreContractSteps.ts"

export const controlLaws: Steps.Laws = (it, pass) => {
  it.effect("11: cancel ends a waiting job", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const pending = yield* Steps.submitted()
      const future = yield* Steps.submitted({ runAtMs: (yield* store.now) + 3_600_000 })
      const failed = yield* Steps.submitted()
      yield* Steps.settled((yield* Steps.held(pass, failed)).claim, "fail", { delayMs: 60_000 })
      for (const { id } of [pending, future, failed]) {
        const answer = yield* store.cancel(id)

        const job = yield* Steps.read(id)
        assert.deepStrictEqual(answer, { _tag: "Cancelled", job, cutOff: null })
        assert.include(job, { state: "dead", reason: "cancelled" })
        assert.isNotNull(job.finishedAtMs)
      }
      assert.lengthOf(yield* Steps.take(pending), 0)
      assert.strictEqual((yield* store.cancel(yield* Jobs.freshId))._tag, "NotFound")
    }))

  it.effect("11: cancel of a running job names the claim that was cut off, and what that reports is stale", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* Steps.submitted()
      const { claim } = yield* Steps.held(pass, job)
      const token = yield* Steps.tokenOf(claim.lease)

      const answer = yield* store.cancel(job.id)

      assert.strictEqual(answer._tag, "Cancelled")
      assert.deepStrictEqual(answer._tag === "Cancelled" && answer.cutOff, { lease: claim.lease, epoch: 1 })
      const cancelled = yield* Steps.read(job.id)
      assert.include(cancelled, { state: "dead", reason: "cancelled" })
      assert.include(cancelled.events[0], { kind: "cancel_requested", epoch: 1 })
      assert.deepStrictEqual(yield* Steps.settle(claim, "complete"), { _tag: "Stale", currentEpoch: 1 })
      const refused = yield* Steps.read(job.id)
      assert.include(refused, { state: "dead", staleWrites: 1 })
      assert.include(refused.events.at(-1), { kind: "stale_write", worker: cancelled.worker, outcome: "complete" })
      const reclaimed = yield* Steps.reclaim(claim.lease, token)
      assert.deepStrictEqual(reclaimed._tag === "Reclaimed" && reclaimed.jobs, [])
      assert.include(yield* Steps.read(job.id), { state: "dead", reason: "cancelled", leaseLosses: 0 })
    }))

  it.effect("11: cancel of a final job is refused, with its state", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const [completed, dead] = [yield* Steps.submitted(), yield* Steps.submitted()]
      yield* Steps.settled((yield* Steps.held(pass, completed)).claim, "complete")
      yield* store.cancel(dead.id)

      assert.deepStrictEqual(yield* store.cancel(completed.id), { _tag: "Refused", state: "completed" })
      assert.deepStrictEqual(yield* store.cancel(dead.id), { _tag: "Refused", state: "dead" })
    }))

  it.effect("11: when a settle and a cancel meet, exactly one of them wins", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      for (let round = 0; round < 20; round++) {
        const job = yield* Steps.submitted()
        const { claim } = yield* Steps.held(pass, job)
        const answers: Record<string, string> = {}
        const settling = Effect.map(Steps.settle(claim, "complete"), (answer) => {
          answers["settle"] = answer._tag
        })
        const cancelling = Effect.map(store.cancel(job.id), (answer) => {
          answers["cancel"] = answer._tag
        })

        yield* Effect.all(round % 2 === 0 ? [settling, cancelling] : [cancelling, settling], {
          concurrency: "unbounded"
        })

        const { state } = yield* Steps.read(job.id)
        const completed = { settle: "Settled", cancel: "Refused" }
        const dead = { settle: "Stale", cancel: "Cancelled" }
        assert.deepStrictEqual(answers, state === "completed" ? completed : dead)
        assert.include(["completed", "dead"], state)
      }
    }))

  it.effect("11: when a claim and a cancel meet, the job is dead, and a claim that was first is cut off", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      for (let round = 0; round < 20; round++) {
        const job = yield* Steps.submitted()
        const asked = yield* Steps.request(job)
        let cutOff = false
        let claimed = 0
        const claiming = Effect.map(store.claim(asked), (jobs) => {
          claimed = jobs.length
        })
        const cancelling = Effect.map(store.cancel(job.id), (answer) => {
          cutOff = answer._tag === "Cancelled" && answer.cutOff !== null
        })

        yield* Effect.all(round % 2 === 0 ? [claiming, cancelling] : [cancelling, claiming], {
          concurrency: "unbounded"
        })

        assert.include(yield* Steps.read(job.id), { state: "dead", reason: "cancelled", epoch: claimed })
        assert.strictEqual(cutOff, claimed === 1)
      }
    }))

  it.effect("11: many cancels at once are one", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* Steps.submitted()
      yield* Steps.held(pass, job)

      const answers = yield* Effect.forEach(Array.from({ length: 6 }), () => store.cancel(job.id), {
        concurrency: "unbounded"
      })

      assert.strictEqual(answers.filter(({ _tag }) => _tag === "Cancelled").length, 1)
      assert.strictEqual(answers.filter(({ _tag }) => _tag === "Refused").length, 5)
      const { events } = yield* Steps.read(job.id)
      assert.lengthOf(events.filter(({ kind }) => kind === "cancel_requested"), 1)
    }))

  it.effect("12: retry re-books a failed job for now, its counters kept", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* Steps.submitted()
      yield* Steps.settled((yield* Steps.held(pass, job)).claim, "fail", { delayMs: 3_600_000 })

      const answer = yield* store.retry(job.id)

      const rebooked = yield* Steps.read(job.id)
      assert.deepStrictEqual(answer, { _tag: "Rebooked", job: rebooked })
      assert.include(rebooked, { state: "pending", attempts: 1, epoch: 1, deliveries: 1 })
      assert.isAtMost(rebooked.runAtMs, yield* store.now)
      assert.lengthOf(rebooked.errors, 1)
      assert.strictEqual(rebooked.events.at(-1)?.kind, "retried")
      assert.include((yield* Steps.take(job))[0], { attempts: 1, epoch: 2 })
    }))

  it.effect("12: retry re-books a job that waits for its time", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* Steps.submitted({ runAtMs: (yield* store.now) + 3_600_000 })

      const answer = yield* store.retry(job.id)

      assert.strictEqual(answer._tag, "Rebooked")
      const rebooked = yield* Steps.read(job.id)
      assert.strictEqual(rebooked.state, "pending")
      assert.isAtMost(rebooked.runAtMs, yield* store.now)
      assert.lengthOf(yield* Steps.take(job), 1)
    }))

  it.effect("12: retry of a job that runs or is final is refused, with its state", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* Steps.submitted()
      const { claim } = yield* Steps.held(pass, job)

      assert.deepStrictEqual(yield* store.retry(job.id), { _tag: "Refused", state: "running" })
      yield* Steps.settled(claim, "complete")
      assert.deepStrictEqual(yield* store.retry(job.id), { _tag: "Refused", state: "completed" })
      const dead = yield* Steps.submitted()
      yield* store.cancel(dead.id)
      assert.deepStrictEqual(yield* store.retry(dead.id), { _tag: "Refused", state: "dead" })
      assert.deepStrictEqual(yield* store.retry(yield* Jobs.freshId), { _tag: "NotFound" })
    }))

  it.effect("12: resubmit makes a new job from a final one, linked to it", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const queue = yield* Jobs.freshQueue
      const job = yield* Steps.submitted({
        queue,
        payload: "{\"a\":1}",
        priority: 5,
        maxAttempts: 2,
        backoff: { kind: "fixed", delay_ms: 9 },
        tags: ["t"],
        timeoutMs: 99,
        key: { key: yield* Jobs.freshKey, fingerprint: "f" }
      })
      yield* Steps.settled((yield* Steps.held(pass, job)).claim, "die")
      const as = yield* Jobs.freshId

      const answer = yield* store.resubmit(job.id, as)

      const made = yield* Steps.read(as)
      assert.deepStrictEqual(answer, { _tag: "Created", job: made })
      assert.include(made, {
        state: "pending",
        type: job.type,
        queue,
        priority: 5,
        maxAttempts: 2,
        timeoutMs: 99,
        attempts: 0,
        epoch: 0,
        resubmittedFrom: job.id
      })
      assert.deepStrictEqual([made.payload, made.tags, made.errors], [{ a: 1 }, ["t"], []])
      assert.deepStrictEqual(made.backoff, { kind: "fixed", delay_ms: 9 })
      assert.include(yield* Steps.read(job.id), { state: "dead", resubmittedAs: as })
      const claimed = yield* Steps.held(pass, made)
      assert.isNull(claimed.job.key)
    }))

  it.effect("1, 12: resubmit asked again under the same id makes nothing further", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* Steps.submitted()
      yield* store.cancel(job.id)
      const as = yield* Jobs.freshId
      yield* store.resubmit(job.id, as)
      yield* Steps.settled((yield* Steps.held(pass, { ...job, id: as })).claim, "complete")

      const again = yield* store.resubmit(job.id, as)

      assert.strictEqual(again._tag, "Created")
      assert.include(yield* Steps.read(as), { state: "completed", epoch: 1 })
      assert.lengthOf(yield* Steps.take(job), 0)
    }))

  it.effect("12: resubmit of a job that is not final is refused, with its state", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* Steps.submitted()
      const as = yield* Jobs.freshId
      assert.deepStrictEqual(yield* store.resubmit(job.id, as), { _tag: "Refused", state: "pending" })
      const { claim } = yield* Steps.held(pass, job)
      assert.deepStrictEqual(yield* store.resubmit(job.id, as), { _tag: "Refused", state: "running" })
      yield* Steps.settled(claim, "fail", { delayMs: 60_000 })
      assert.deepStrictEqual(yield* store.resubmit(job.id, as), { _tag: "Refused", state: "failed" })
      assert.deepStrictEqual(yield* store.resubmit(yield* Jobs.freshId, as), { _tag: "NotFound" })
      assert.lengthOf(yield* store.get([as]), 0)
    }))

  it.effect("3: promote makes due jobs ready, and says how long until the next", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const type = yield* Jobs.freshType
      const queue = yield* Jobs.freshQueue
      const now = yield* store.now
      const late = yield* Steps.submitted({ type, queue, runAtMs: now + 1_100 })
      const soon = yield* Steps.submitted({ type, queue, runAtMs: now + 1_000 })
      const early = yield* store.promote(1_000)
      // Unless both of them were due by then.
      assert.isTrue(early.jobs.some(({ id }) => id === late.id) || (early.nextInMs ?? Number.NaN) <= 1_000)
      yield* Steps.reached(pass, now + 1_100)

      const { jobs } = yield* store.promote(1_000)

      const ours = [...early.jobs, ...jobs].filter((job) => job.type === type)
      assert.deepStrictEqual(ours.map(({ id }) => id), [soon.id, late.id])
      assert.isTrue(ours.every((job) => job.queue === queue))
      assert.strictEqual((yield* Steps.read(late.id)).state, "pending")
      assert.lengthOf((yield* store.promoteIds([soon.id, late.id])).jobs, 0)
      assert.deepStrictEqual(Steps.idsOf(yield* Steps.take({ type })), [soon.id, late.id])
    }))

  it.effect("3: promote takes at most its limit", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const runAtMs = (yield* store.now) + 2_000
      const jobs = yield* Steps.submittedAll(3, { runAtMs })
      yield* store.promote(1_000)
      yield* Steps.reached(pass, runAtMs)

      const first = yield* store.promote(2)
      const rest = yield* store.promote(1_000)

      assert.lengthOf(first.jobs, 2)
      assert.strictEqual(first.nextInMs, 0)
      const ours = [...first.jobs, ...rest.jobs].filter(({ type }) => type === jobs[0]!.type)
      assert.deepStrictEqual(ours.map(({ id }) => id).toSorted(), jobs.map(({ id }) => id).toSorted())
    }))

  it.effect("3: promoteIds makes ready what is due among the ids, once", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const runAtMs = (yield* store.now) + 2_000
      const [due] = yield* Steps.submittedAll(1, { runAtMs })
      const [far] = yield* Steps.submittedAll(1, { runAtMs: runAtMs + 3_600_000 })
      const ids = [far!.id, due!.id, yield* Jobs.freshId]
      assert.lengthOf((yield* store.promoteIds(ids)).jobs, 0)
      yield* Steps.reached(pass, runAtMs)

      const answers = yield* Effect.forEach(Array.from({ length: 3 }), () => store.promoteIds(ids), {
        concurrency: "unbounded"
      })

      assert.deepStrictEqual(answers.flatMap(({ jobs }) => jobs), [{
        id: due!.id,
        type: due!.type,
        queue: due!.queue,
        ordered: false
      }])
      assert.lengthOf(yield* Steps.take(due!), 1)
      assert.lengthOf(yield* Steps.take(far!), 0)
    }))

  it.effect("3: a promoted job that has a priority or was taken back keeps the store's order", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const lost = yield* Steps.submitted()
      yield* Steps.lapsed((yield* Steps.held(pass, lost)).claim.lease)
      const runAtMs = (yield* store.now) + 1_000
      const [first] = yield* Steps.submittedAll(1, { runAtMs, priority: 1 })
      yield* Steps.reached(pass, runAtMs)
      const { jobs } = yield* store.promoteIds([first!.id, lost.id])
      const ordered = jobs.filter((job) => job.ordered).map(({ id }) => id)
      assert.sameMembers(ordered, [first!.id, lost.id])
    }))

  it.effect("15: upcoming answers what waits within the length, earliest first, and changes nothing", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const start = yield* store.now
      const type = yield* Jobs.freshType
      const late = yield* Steps.submitted({ type, runAtMs: start + 50_000 })
      const soon = yield* Steps.submitted({ type, runAtMs: start + 40_000 })
      const far = yield* Steps.submitted({ type, runAtMs: start + 90_000 })
      const ready = yield* Steps.submitted({ type })
      const retried = yield* Steps.submitted()
      yield* Steps.settled((yield* Steps.held(pass, retried)).claim, "fail", { delayMs: 45_000 })
      const all = [late, soon, far, ready, retried].map(({ id }) => id)
      const upcoming = Effect.fnUntraced(function*(withinMs: number, fromMs: number | null, limit = 1_000) {
        const { jobs, nowMs } = yield* store.upcoming(withinMs, fromMs, limit)
        assert.isAtLeast(nowMs, start)
        return jobs.filter(({ id }) => all.includes(id))
      })

      const within = yield* upcoming(60_000, null)

      assert.deepStrictEqual(within.map(({ id }) => id), [soon.id, retried.id, late.id])
      assert.deepStrictEqual(within[0]?.runAtMs, start + 40_000)
      assert.deepStrictEqual((yield* upcoming(60_000, start + 50_000)).map(({ id }) => id), [late.id])
      assert.deepStrictEqual((yield* upcoming(60_000, start + 50_001)).map(({ id }) => id), [])
      assert.lengthOf((yield* store.upcoming(60_000, null, 1)).jobs, 1)
      assert.lengthOf((yield* store.promoteIds(all)).jobs, 0)
      assert.deepStrictEqual((yield* upcoming(60_000, null)).length, 3)
    }))

  it.effect("3: promote leaves a failed job failed until it is claimed", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* Steps.submitted()
      yield* Steps.settled((yield* Steps.held(pass, job)).claim, "fail", { delayMs: 100 })
      yield* pass(120)

      const { jobs } = yield* store.promoteIds([job.id])

      assert.lengthOf(jobs, 1)
      assert.strictEqual((yield* Steps.read(job.id)).state, "failed")
      assert.lengthOf(yield* Steps.take(job), 1)
    }))
}
