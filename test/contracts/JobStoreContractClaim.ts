/** Laws of `JobStore`: what a claim takes, and in which order. */
import { assert, describe } from "@effect/vitest"
import { Effect } from "effect"
import { JobType } from "../../src/domain/Job.ts"
import type { JobId } from "../../src/domain/JobId.ts"
import { JobStore } from "../../src/ports/JobStore.ts"
import * as Jobs from "../support/Jobs.ts"
import * as Steps from "./JobStoreContractSteps.ts"

/** `limit`: what is asked for where a law does not say. Few are taken by another statement than many. */
const lawsOf = (limit: number): Steps.Laws => (it, pass) => {
  const take: typeof Steps.take = (job, change) => Steps.take(job, { limit, ...change })
  const request: typeof Steps.request = (job, change) => Steps.request(job, { limit, ...change })

  it.effect("3: a claim carries what is needed to run the job, and shows on it", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* Steps.submitted({
        payload: "{\"n\":1}",
        maxAttempts: 4,
        backoff: { kind: "fixed", delay_ms: 9 },
        timeoutMs: 77
      })
      const before = yield* store.now

      const claimed = yield* take(job, { worker: "grace" })

      assert.deepStrictEqual(claimed, [{
        id: job.id,
        epoch: 1,
        type: job.type,
        queue: job.queue,
        payload: { n: 1 },
        attempts: 0,
        maxAttempts: 4,
        backoff: { kind: "fixed", delay_ms: 9 },
        timeoutMs: 77,
        deliveries: 1,
        leaseLosses: 0,
        waitedMs: claimed[0]?.waitedMs ?? -1,
        key: null
      }])
      const running = yield* Steps.read(job.id)
      assert.strictEqual(claimed[0]?.waitedMs, (running.startedAtMs ?? 0) - running.runAtMs)
      assert.include(running, { state: "running", epoch: 1, deliveries: 1, worker: "grace", attempts: 0 })
      assert.isAtLeast(running.startedAtMs ?? -1, before)
    }))

  it.effect("3: each claim raises the epoch by exactly one and counts a delivery", () =>
    Effect.gen(function*() {
      const job = yield* Steps.submitted()
      for (let round = 1; round <= 4; round++) {
        const { claim, job: claimed } = yield* Steps.held(pass, job)
        assert.include(claimed, { epoch: round, deliveries: round })
        assert.include(yield* Steps.read(job.id), { epoch: round, deliveries: round, state: "running" })
        yield* Steps.settled(claim, round === 2 ? "fail" : "release")
        assert.include(yield* Steps.read(job.id), { epoch: round, deliveries: round })
      }
    }))

  it.effect("3: a running job is not claimed", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* Steps.submitted()
      yield* Steps.held(pass, job)

      assert.lengthOf(yield* take(job), 0)
      const byId = yield* store.claimIds({ ...(yield* request(job)), ids: [job.id] })
      assert.deepStrictEqual(byId, { claimed: [], notYetDue: [], inOrder: [], left: [] })
    }))

  it.effect("3: racing workers share the jobs out, each to one", () =>
    Effect.gen(function*() {
      const jobs = yield* Steps.submittedAll(60)

      const claims = yield* Effect.forEach(
        Array.from({ length: 10 }),
        (_, index) => take(jobs[0]!, { limit: 9, worker: `w${index}` }),
        { concurrency: "unbounded" }
      )

      const taken = claims.flat()
      assert.strictEqual(new Set(Steps.idsOf(taken)).size, taken.length)
      assert.isTrue(claims.every((claim) => claim.length <= 9))
      const rest = yield* take(jobs[0]!)
      assert.deepStrictEqual(Steps.sortedIds([...taken, ...rest]), jobs.map(({ id }) => id).toSorted())
      assert.isTrue([...taken, ...rest].every(({ epoch }) => epoch === 1))
    }))

  it.effect("3: workers racing for the same ids get each of them once", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const jobs = yield* Steps.submittedAll(20)
      const ids = jobs.map(({ id }) => id)

      const claims = yield* Effect.forEach(
        Array.from({ length: 6 }),
        (_, index) =>
          Effect.flatMap(
            request(jobs[0]!),
            (request) => store.claimIds({ ...request, ids: index % 2 === 0 ? ids : ids.toReversed() })
          ),
        { concurrency: "unbounded" }
      )

      assert.deepStrictEqual(Steps.sortedIds(claims.flatMap(({ claimed }) => claimed)), ids.toSorted())
    }))

  it.effect("3: what was submitted first is claimed first", () =>
    Effect.gen(function*() {
      const type = yield* Jobs.freshType
      const order = []
      for (let n = 0; n < 5; n++) {
        order.push((yield* Steps.submitted({ type, queue: yield* Jobs.freshQueue })).id)
        yield* pass(10)
      }

      const first = yield* take({ type }, { limit: 2 })
      const rest = yield* take({ type }, { limit: 10 })

      assert.deepStrictEqual([...Steps.idsOf(first), ...Steps.idsOf(rest)], order)
    }))

  it.effect("3: a higher priority goes first, a lower one last, over all queues and types", () =>
    Effect.gen(function*() {
      const types = [yield* Jobs.freshType, yield* Jobs.freshType]
      const priorities = [0, 1_000, -5, 3, -1_000, 40]
      const jobs = yield* Effect.forEach(priorities, (priority, index) =>
        Effect.flatMap(
          Jobs.freshQueue,
          (queue) => Steps.submitted({ type: types[index % 2]!, queue, priority })
        ))
      const byPriority = jobs.toSorted((a, b) => b.priority - a.priority).map(({ id }) => id)

      const first = yield* take(jobs[0]!, { types, limit: 1 })
      const next = yield* take(jobs[0]!, { types, limit: 3 })
      const last = yield* take(jobs[0]!, { types })

      assert.lengthOf(first, 1)
      assert.deepStrictEqual(Steps.idsOf([...first, ...next, ...last]), byPriority)
    }))

  it.effect("3: what one claim brings is in the order in which it is to start", () =>
    Effect.gen(function*() {
      const type = yield* Jobs.freshType
      const jobs = yield* Effect.forEach([0, -5, 40, 3], (priority) =>
        Effect.flatMap(Jobs.freshQueue, (queue) => Steps.submitted({ type, queue, priority })))

      assert.deepStrictEqual(
        Steps.idsOf(yield* take({ type })),
        jobs.toSorted((a, b) =>
          b.priority - a.priority
        ).map(({ id }) => id)
      )
    }))

  it.effect("3: a claim that is sent twice takes nothing the second time", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const type = yield* Jobs.freshType
      const jobs = [yield* Steps.submitted({ type }), yield* Steps.submitted({ type })]
      const asked = yield* request({ type })
      assert.lengthOf(yield* store.claim(asked), 2)
      const later = yield* Steps.submitted({ type })

      assert.deepStrictEqual(yield* store.claim(asked), [])
      assert.deepStrictEqual(Steps.idsOf(yield* take({ type })), [later.id])
      assert.deepStrictEqual(
        Steps.sortedIds((yield* store.recall(asked.lease)).jobs),
        jobs.map(({ id }) => id).toSorted()
      )
    }))

  it.effect("3: a claim takes at most its limit", () =>
    Effect.gen(function*() {
      const jobs = yield* Steps.submittedAll(7)

      assert.lengthOf(yield* take(jobs[0]!, { limit: 3 }), 3)
      assert.lengthOf(yield* take(jobs[0]!, { limit: 3 }), 3)
      assert.lengthOf(yield* take(jobs[0]!, { limit: 3 }), 1)
      assert.lengthOf(yield* take(jobs[0]!, { limit: 3 }), 0)
    }))

  it.effect("3: a claim by ids takes at most its limit, and what is left stays ready", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const jobs = yield* Steps.submittedAll(5)
      const ids = jobs.map(({ id }) => id)

      const { claimed } = yield* store.claimIds({ ...(yield* request(jobs[0]!, { limit: 2 })), ids })

      assert.lengthOf(claimed, 2)
      assert.lengthOf(yield* take(jobs[0]!), 3)
    }))

  it.effect("3: a claim by more ids than there is room for says what is left, and asking for that comes to an end", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const jobs = yield* Steps.submittedAll(4)
      const type = jobs[0]!.type
      const over = yield* Steps.submitted({ type })
      yield* store.cancel(over.id)
      const later = yield* Steps.submitted({ type, runAtMs: (yield* store.now) + 60_000 })
      const ids = [over.id, later.id, yield* Jobs.freshId, ...jobs.map(({ id }) => id)]
      const ask = (asked: ReadonlyArray<JobId>, limit = 3, types = [type]) =>
        Effect.flatMap(
          request({ type }, { limit, types }),
          (request) => store.claimIds({ ...request, ids: asked })
        )

      const none = yield* ask(ids, 3, [yield* Jobs.freshType])
      const first = yield* ask(ids)
      const second = yield* ask(first.left)
      const third = yield* ask(ids)

      assert.deepStrictEqual(none.left, [])
      assert.lengthOf(first.claimed, 3)
      assert.deepStrictEqual(first.notYetDue.map(({ id }) => id), [later.id])
      assert.lengthOf(first.left, 1)
      assert.deepStrictEqual(Steps.idsOf(second.claimed), first.left)
      assert.deepStrictEqual(
        Steps.sortedIds([...first.claimed, ...second.claimed]),
        jobs.map(({ id }) => id).toSorted()
      )
      assert.deepStrictEqual([second.left, third.claimed, third.left], [[], [], []])
    }))

  it.effect("3: a claim takes at most its bytes of payload, but always one job", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const payload = JSON.stringify("x".repeat(10_000))
      const jobs = yield* Steps.submittedAll(6, { payload })

      const two = yield* take(jobs[0]!, { bytes: 25_000 })
      const one = yield* take(jobs[0]!, { bytes: 10 })
      const ids = jobs.map(({ id }) => id)
      const byIds = yield* store.claimIds({ ...(yield* request(jobs[0]!, { bytes: 25_000 })), ids })

      assert.lengthOf(two, 2)
      assert.lengthOf(one, 1)
      assert.lengthOf(byIds.claimed, 2)
      assert.lengthOf(yield* take(jobs[0]!), 1)
    }))

  it.effect("3: a claim takes the asked types from the asked queues and no others", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const [a, b] = [yield* Jobs.freshQueue, yield* Jobs.freshQueue]
      const type = yield* Jobs.freshType
      const inA = yield* Steps.submitted({ type, queue: a })
      const inB = yield* Steps.submitted({ type, queue: b })
      const other = yield* Steps.submitted({ queue: a })
      const ids = [inA.id, inB.id, other.id]

      assert.lengthOf(yield* take({ type: yield* Jobs.freshType }), 0)
      assert.lengthOf(yield* take({ type }, { types: [] }), 0)
      assert.lengthOf(yield* take({ type }, { queues: [yield* Jobs.freshQueue] }), 0)
      assert.lengthOf(yield* take({ type }, { types: [JobType.make("never-seen")], queues: [a] }), 0)
      const byIds = yield* store.claimIds({ ...(yield* request({ type }, { queues: [b] })), ids })
      assert.deepStrictEqual(Steps.idsOf(byIds.claimed), [inB.id])
      assert.deepStrictEqual(Steps.idsOf(yield* take({ type }, { queues: [a, b] })), [inA.id])
      assert.deepStrictEqual(Steps.idsOf(yield* take(other)), [other.id])
    }))

  it.effect("3: a job that is not due is not ready", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const runAtMs = (yield* store.now) + 3_600_000
      const far = yield* Steps.submitted({ runAtMs })
      yield* store.promote(1_000)
      yield* store.promoteIds([far.id])

      assert.lengthOf(yield* take(far), 0)
      const early = yield* store.claimIds({ ...(yield* request(far)), ids: [far.id] })
      assert.deepStrictEqual(early, { claimed: [], notYetDue: [{ id: far.id, runAtMs }], inOrder: [], left: [] })
    }))

  it.effect("3: a claim by ids takes what is due, though nobody has made it ready", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const runAtMs = (yield* store.now) + 30
      const job = yield* Steps.submitted({ runAtMs })
      yield* Steps.reached(pass, runAtMs)
      const { claimed } = yield* store.claimIds({ ...(yield* request(job)), ids: [job.id] })
      assert.deepStrictEqual(Steps.idsOf(claimed), [job.id])
    }))

  it.effect("3: a job is not claimed before its time, and then it is", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const runAtMs = (yield* store.now) + 400
      const job = yield* Steps.submitted({ runAtMs })
      const taken = yield* Steps.held(pass, job)
      assert.strictEqual(taken.job.id, job.id)
      assert.isAtLeast((yield* Steps.read(job.id)).startedAtMs ?? 0, runAtMs)
    }))

  it.effect("3: what a claim by ids does not know how to run it leaves out", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const type = yield* Jobs.freshType
      const ready = yield* Steps.submitted({ type })
      const running = yield* Steps.submitted({ type })
      const completed = yield* Steps.submitted({ type })
      const cancelled = yield* Steps.submitted({ type })
      yield* Steps.held(pass, running)
      yield* Steps.settled((yield* Steps.held(pass, completed)).claim, "complete")
      yield* store.cancel(cancelled.id)
      const unknown = yield* Jobs.freshId
      const ids = [unknown, running.id, completed.id, ready.id, cancelled.id, ready.id]

      const answer = yield* store.claimIds({ ...(yield* request({ type })), ids })

      assert.deepStrictEqual(Steps.idsOf(answer.claimed), [ready.id])
      assert.deepStrictEqual(answer.notYetDue, [])
    }))

  it.effect("3: readyForMs leaves out what has only just become ready", () =>
    Effect.gen(function*() {
      const job = yield* Steps.submitted()

      assert.lengthOf(yield* take(job, { readyForMs: 600_000 }), 0)
      yield* pass(40)
      assert.deepStrictEqual(Steps.idsOf(yield* take(job, { readyForMs: 20 })), [job.id])
    }))

  it.effect("5: a job with two losses is claimed alone, and only into a free slot", () =>
    Effect.gen(function*() {
      const type = yield* Jobs.freshType
      const suspect = yield* Steps.submitted({ type })
      yield* Steps.lost(pass, suspect, 2)
      yield* pass(2_000)
      const others = yield* Steps.submittedAll(4, { type })
      const store = yield* JobStore
      yield* store.promoteIds([suspect.id])

      const full = yield* take({ type }, { freeSlots: 0, limit: 2 })
      assert.lengthOf(full, 2)
      assert.notInclude(Steps.idsOf(full), suspect.id)

      const free = [yield* take({ type }, { freeSlots: 1 }), yield* take({ type }, { freeSlots: 1 })]
      assert.deepStrictEqual(
        Steps.sortedIds(free.flat().concat(full)),
        [suspect, ...others].map(({ id }) => id).toSorted()
      )
      for (const claim of free) {
        assert.isTrue(claim.length === 1 || !Steps.idsOf(claim).includes(suspect.id), "claimed together with others")
      }
    }))

  it.effect("5: a job with two losses is claimed alone where all that is ready would be taken", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const type = yield* Jobs.freshType
      const suspect = yield* Steps.submitted({ type })
      yield* Steps.lost(pass, suspect, 2)
      yield* pass(2_000)
      yield* store.promoteIds([suspect.id])
      const others = yield* Steps.submittedAll(2, { type })

      const claims = [yield* take({ type }), yield* take({ type })]
      assert.deepStrictEqual(claims.map((claim) => claim.length).toSorted(), [1, 2])
      assert.deepStrictEqual(Steps.sortedIds(claims.flat()), [suspect, ...others].map(({ id }) => id).toSorted())
      assert.isTrue(claims.some((claim) => claim.length === 1 && claim[0]?.id === suspect.id))
    }))

  it.effect("5: a claim by ids takes a job with two losses alone, and only into a free slot", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const type = yield* Jobs.freshType
      const suspect = yield* Steps.submitted({ type })
      yield* Steps.lost(pass, suspect, 2)
      const others = yield* Steps.submittedAll(2, { type })
      const ids = [suspect.id, ...others.map(({ id }) => id)]
      yield* pass(2_000)
      yield* store.promoteIds([suspect.id])

      const full = yield* store.claimIds({ ...(yield* request({ type }, { freeSlots: 0 })), ids: [suspect.id] })
      const free = [
        yield* store.claimIds({ ...(yield* request({ type })), ids }),
        yield* store.claimIds({ ...(yield* request({ type })), ids })
      ].map(({ claimed }) => claimed)

      assert.lengthOf(full.claimed, 0)
      assert.deepStrictEqual(Steps.sortedIds(free.flat()), ids.toSorted())
      assert.deepStrictEqual(free.map((claim) => claim.length).toSorted(), [1, 2])
      assert.isTrue(free.some((claim) => claim.length === 1 && claim[0]?.id === suspect.id))
    }))

  it.effect("5: a job with as many losses as a claim leaves to others is not taken by it", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const type = yield* Jobs.freshType
      const accused = yield* Steps.submitted({ type })
      yield* Steps.lost(pass, accused, 3)
      yield* pass(4_000)
      yield* store.promoteIds([accused.id])
      const other = yield* Steps.submitted({ type })
      const below = yield* request({ type }, { lossesBelow: 3 })

      const left = yield* store.claimIds({ ...below, ids: [accused.id] })
      assert.lengthOf(left.claimed, 0)
      assert.deepStrictEqual(Steps.idsOf(yield* take({ type }, { lossesBelow: 3 })), [other.id])
      assert.deepStrictEqual(Steps.idsOf(yield* take({ type }, { lossesBelow: 4 })), [accused.id])
    }))

  it.effect("5: a job with one loss is claimed like any other", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const type = yield* Jobs.freshType
      const once = yield* Steps.submitted({ type })
      yield* Steps.lost(pass, once, 1)
      yield* Steps.submittedAll(2, { type })
      yield* pass(300)
      yield* store.promoteIds([once.id])

      assert.lengthOf(yield* take({ type }, { freeSlots: 0 }), 3)
    }))
}

export const claimLaws: Steps.Laws = (it, pass) => {
  for (const limit of [60, 100]) {
    describe(`claims of ${limit} at most`, () => {
      lawsOf(limit)(it, pass)
    })
  }
}
