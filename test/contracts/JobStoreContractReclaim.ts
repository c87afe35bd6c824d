/** Laws of `JobStore`: taking back what the dead held. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { lossBaseMs } from "../../src/domain/Backoff.ts"
import type { LeaseId } from "../../src/domain/Claim.ts"
import { JobStore } from "../../src/ports/JobStore.ts"
import * as Jobs from "../support/Jobs.ts"
import * as Steps from "./JobStoreContractSteps.ts"

/** Both at once, now the one first and now the other. */
const meet = <E, R>(round: number, one: Effect.Effect<void, E, R>, other: Effect.Effect<void, E, R>) =>
  Effect.all(round % 2 === 0 ? [one, other] : [other, one], { concurrency: "unbounded", discard: true })

export const reclaimLaws: Steps.Laws = (it, pass) => {
  /** A running job, and the token of its lease. */
  const held = Effect.gen(function*() {
    const { claim } = yield* Steps.held(pass, yield* Steps.submitted())
    return { claim, token: yield* Steps.tokenOf(claim.lease) }
  })

  it.effect("8: reclaim gives back exactly the running jobs of the lease, and says who was lost", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const jobs = yield* Steps.submittedAll(4)
      const asked = yield* Steps.request(jobs[0]!, { worker: "grace" })
      const claims = (yield* store.claim(asked)).map((job) => Steps.claimOf(asked.lease, job))
      const other = yield* Steps.held(pass, yield* Steps.submitted())
      yield* Steps.settled(claims[0]!, "complete")
      yield* Steps.settled(claims[1]!, "fail", { delayMs: 60_000 })
      const claimedAt = (yield* Steps.read(claims[2]!.id)).startedAtMs ?? assert.fail("not started")

      const answer = yield* Steps.lapsed(asked.lease)

      assert.strictEqual(answer.worker, "grace")
      const back = claims.slice(2).map(({ id }) => id).toSorted()
      assert.deepStrictEqual(answer.jobs.map(({ id }) => id).toSorted(), back)
      assert.isTrue(answer.jobs.every(({ state, type }) => state === "pending" && type === jobs[0]!.type))
      assert.isNull(yield* Steps.recorded(asked.lease))
      const states = yield* Effect.forEach(claims, ({ id }) => Effect.map(Steps.read(id), ({ state }) => state))
      assert.deepStrictEqual(states, ["completed", "failed", "pending", "pending"])
      assert.strictEqual((yield* Steps.read(other.claim.id)).state, "running")
      const lost = yield* Steps.read(back[0]!)
      assert.include(lost, { leaseLosses: 1, attempts: 0, epoch: 1, deliveries: 1, finishedAtMs: null })
      assert.lengthOf(lost.events, 1)
      assert.include(lost.events[0], {
        kind: "lease_lost",
        epoch: 1,
        worker: "grace",
        claimedAtMs: claimedAt,
        counted: true
      })
      assert.isAtLeast(lost.events[0]?.lastSeenMs ?? -1, claimedAt)
    }))

  it.effect("8, 10: a loss says when the worker was last seen: at its last check, or when it took the lease over", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      for (const seen of [store.verify, ([lease]: ReadonlyArray<LeaseId>) => store.recall(lease!)]) {
        const { claim } = yield* Steps.held(pass, yield* Steps.submitted())
        const claimedAtMs = (yield* Steps.read(claim.id)).startedAtMs ?? assert.fail("not started")
        yield* pass(20)
        yield* seen([claim.lease])
        yield* Steps.lapsed(claim.lease)
        const loss = (yield* Steps.read(claim.id)).events[0]
        assert.strictEqual(loss?.claimedAtMs, claimedAtMs)
        assert.isAtLeast(loss?.lastSeenMs ?? 0, claimedAtMs + 20)
      }
    }))

  it.effect("8: a lease whose token has moved is not taken", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* Steps.submitted()
      const { claim } = yield* Steps.held(pass, job)
      const watched = yield* Steps.tokenOf(claim.lease)
      yield* store.verify([claim.lease])

      const answer = yield* Steps.reclaim(claim.lease, watched)

      assert.deepStrictEqual(answer, { _tag: "Moved", lease: claim.lease })
      assert.include(yield* Steps.read(job.id), { state: "running", leaseLosses: 0 })
      assert.isNotNull(yield* Steps.recorded(claim.lease))
      yield* Steps.settled(claim, "complete")
    }))

  it.effect("8: a lease that is gone, or never was, is answered so", () =>
    Effect.gen(function*() {
      const job = yield* Steps.submitted()
      const { claim } = yield* Steps.held(pass, job)
      const token = yield* Steps.tokenOf(claim.lease)
      yield* Steps.lapsed(claim.lease)
      const unknown = yield* Jobs.freshLease

      assert.deepStrictEqual(yield* Steps.reclaim(claim.lease, token), { _tag: "Gone", lease: claim.lease })
      assert.deepStrictEqual(yield* Steps.reclaim(unknown, "0"), { _tag: "Gone", lease: unknown })
      assert.strictEqual((yield* Steps.read(job.id)).leaseLosses, 1)
    }))

  it.effect("8: several leases are answered in their order", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const held = yield* Effect.forEach(yield* Steps.submittedAll(3), (job) => Steps.held(pass, job))
      const lapsed = yield* Effect.forEach(
        held,
        ({ claim: { lease } }) => Effect.map(Steps.tokenOf(lease), (token) => ({ lease, token }))
      )
      yield* store.verify([lapsed[1]!.lease])
      const unknown = { lease: yield* Jobs.freshLease, token: "0" }

      const answers = yield* store.reclaim([unknown, ...lapsed], Steps.counting)

      assert.deepStrictEqual(answers.map(({ _tag }) => _tag), ["Gone", "Reclaimed", "Moved", "Reclaimed"])
      assert.deepStrictEqual(answers.map(({ lease }) => lease), [unknown, ...lapsed].map(({ lease }) => lease))
      assert.deepStrictEqual(yield* store.reclaim([], Steps.counting), [])
    }))

  it.effect("8: a lease under which nothing runs goes away without a loss", () =>
    Effect.gen(function*() {
      const job = yield* Steps.submitted()
      const { claim } = yield* Steps.held(pass, job)
      yield* Steps.settled(claim, "release", { recorded: false })
      const before = yield* Steps.read(job.id)

      const answer = yield* Steps.lapsed(claim.lease)

      assert.deepStrictEqual(answer.jobs, [])
      assert.isNull(yield* Steps.recorded(claim.lease))
      assert.deepStrictEqual(yield* Steps.read(job.id), before)
    }))

  it.effect("8: a job that another lease holds by now is not taken back with the old one", () =>
    Effect.gen(function*() {
      const job = yield* Steps.submitted()
      const first = yield* Steps.held(pass, job)
      yield* Steps.settled(first.claim, "release")
      const second = yield* Steps.held(pass, job)

      assert.deepStrictEqual((yield* Steps.lapsed(first.claim.lease)).jobs, [])
      assert.include(yield* Steps.read(job.id), { state: "running", leaseLosses: 0 })
      yield* Steps.settled(second.claim, "complete")
    }))

  it.effect("8: any number of reapers take each orphan once", () =>
    Effect.gen(function*() {
      for (let round = 0; round < 5; round++) {
        const store = yield* JobStore
        const jobs = yield* Steps.submittedAll(3)
        const asked = yield* Steps.request(jobs[0]!)
        yield* store.claim(asked)
        const token = yield* Steps.tokenOf(asked.lease)

        const answers = yield* Effect.forEach(
          Array.from({ length: 8 }),
          () => Steps.reclaim(asked.lease, token),
          { concurrency: "unbounded" }
        )

        const taken = answers.flatMap((answer) => answer._tag === "Reclaimed" ? answer.jobs : [])
        assert.deepStrictEqual(taken.map(({ id }) => id).toSorted(), jobs.map(({ id }) => id).toSorted())
        assert.strictEqual(answers.filter(({ _tag }) => _tag === "Gone").length, 7)
        const losses = (yield* store.get(jobs.map(({ id }) => id))).map(({ leaseLosses }) => leaseLosses)
        assert.deepStrictEqual(losses, [1, 1, 1])
      }
    }))

  it.effect("8: when a settle and a reclaim meet, exactly one of them has the job", () =>
    Effect.gen(function*() {
      for (let round = 0; round < 20; round++) {
        const { claim, token } = yield* held
        const answers: Record<string, string> = {}
        const settling = Effect.map(Steps.settle(claim, "complete"), (answer) => {
          answers["settle"] = answer._tag
        })
        const reclaiming = Effect.map(Steps.reclaim(claim.lease, token), (answer) => {
          answers["reclaim"] = answer._tag === "Reclaimed" ? `took ${answer.jobs.length}` : answer._tag
        })

        yield* meet(round, settling, reclaiming)

        const { leaseLosses, state } = yield* Steps.read(claim.id)
        const won = { settle: "Settled", reclaim: "took 0" }
        const lost = { settle: "Stale", reclaim: "took 1" }
        assert.deepStrictEqual(answers, state === "completed" ? won : lost)
        assert.strictEqual(leaseLosses, state === "completed" ? 0 : 1)
        assert.include(["completed", "pending"], state)
      }
    }))

  it.effect("8, 10: when a verify and a reclaim meet, the lease stands with its jobs or is gone with them", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      for (let round = 0; round < 20; round++) {
        const { claim, token } = yield* held
        const answers: Record<string, string> = {}
        const verifying = Effect.map(store.verify([claim.lease]), ([answer]) => {
          answers["verify"] = answer?._tag === "Stands" ? `Stands with ${answer.running.length}` : "Gone"
        })
        const reclaiming = Effect.map(Steps.reclaim(claim.lease, token), (answer) => {
          answers["reclaim"] = answer._tag
        })

        yield* meet(round, verifying, reclaiming)

        const { state } = yield* Steps.read(claim.id)
        const alive = { verify: "Stands with 1", reclaim: "Moved" }
        const dead = { verify: "Gone", reclaim: "Reclaimed" }
        assert.deepStrictEqual(answers, state === "running" ? alive : dead)
      }
    }))

  it.effect("8: no running job is without its lease, whatever ends leases at once", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      for (let round = 0; round < 10; round++) {
        const jobs = yield* Steps.submittedAll(3)
        const asked = yield* Steps.request(jobs[0]!)
        const claims = (yield* store.claim(asked)).map((job) => Steps.claimOf(asked.lease, job))
        const token = yield* Steps.tokenOf(asked.lease)

        yield* Effect.all([
          store.endLeases([asked.lease]),
          Steps.settle(claims[0]!, "complete"),
          store.endLeases([asked.lease]),
          Steps.reclaim(asked.lease, token),
          store.cancel(claims[1]!.id)
        ], { concurrency: "unbounded" })

        const running = (yield* store.get(jobs.map(({ id }) => id))).filter(({ state }) => state === "running")
        assert.isTrue(running.length === 0 || (yield* Steps.recorded(asked.lease)) !== null)
      }
    }))

  it.effect("8: what was reclaimed comes back within the delay of a first loss, and keeps its place in the order", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const type = yield* Jobs.freshType
      const older = yield* Steps.submitted({ type })
      yield* pass(20)
      const newer = yield* Steps.submitted({ type })
      const before = yield* Steps.read(older.id)
      yield* Steps.lost(pass, older, 1)
      assert.strictEqual((yield* Steps.read(older.id)).runAtMs, before.runAtMs)
      yield* pass(lossBaseMs + 1)
      yield* store.promote(1_000)

      const order = yield* Steps.take({ type })

      assert.deepStrictEqual(Steps.idsOf(order), [older.id, newer.id])
      assert.include(order[0], { epoch: 2, leaseLosses: 1, deliveries: 2 })
    }))

  it.effect("8: jobs that were lost together do not come back together", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const jobs = yield* Steps.submittedAll(40)
      const asked = yield* Steps.request(jobs[0]!)
      yield* store.claim(asked)
      const ids = jobs.map(({ id }) => id)
      const from = yield* store.now
      yield* Steps.lapsed(asked.lease)
      yield* store.promoteIds(ids)

      const early = yield* store.claimIds({ ...(yield* Steps.request(jobs[0]!)), ids })

      // On a machine that took half of the delay for this the draw may have let all of them go by now.
      const slow = (yield* store.now) - from > lossBaseMs / 2
      assert.isTrue(slow || early.notYetDue.length > 0)
      assert.isAtMost(Math.max(0, ...early.notYetDue.map(({ runAtMs }) => runAtMs)), (yield* store.now) + lossBaseMs)
      yield* pass(lossBaseMs + 1)
      yield* store.promoteIds(ids)
      const late = yield* Steps.take(jobs[0]!)
      assert.deepStrictEqual(Steps.sortedIds([...early.claimed, ...late]), ids.toSorted())
    }))

  it.effect("8: after a second loss a job may wait for twice as long as after the first, and no longer", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const jobs = yield* Steps.submittedAll(40)
      const ids = jobs.map(({ id }) => id)
      const lose = Effect.gen(function*() {
        const asked = yield* Steps.request(jobs[0]!)
        assert.lengthOf(yield* store.claim(asked), 40)
        yield* Steps.lapsed(asked.lease)
      })
      yield* lose
      yield* pass(lossBaseMs + 1)
      yield* store.promoteIds(ids)
      const from = yield* store.now
      yield* lose
      const upcoming = yield* store.upcoming(60_000, null, 1_000)
      const lostAtMs = (yield* Steps.read(ids[0]!)).events.at(-1)?.atMs ?? assert.fail("no loss on record")

      const waits = upcoming.jobs.filter(({ id }) => ids.includes(id)).map(({ runAtMs }) => runAtMs - lostAtMs)
      assert.isAtMost(Math.max(0, ...waits), 2 * lossBaseMs)
      // On a machine that took as long as the shorter delay for this, those who wait longer may be due by now.
      const slow = upcoming.nowMs - from > lossBaseMs
      assert.isTrue(slow || Math.max(0, ...waits) > lossBaseMs)
    }))

  it.effect("8: a job that loses its lease too often is dead, with the evidence", () =>
    Effect.gen(function*() {
      const job = yield* Steps.submitted()
      const options = { counted: true, lossesMax: 3 }
      for (const who of ["ada", "grace"]) {
        const { claim } = yield* Steps.held(pass, job, { worker: who })
        assert.strictEqual((yield* Steps.lapsed(claim.lease, options)).jobs[0]?.state, "pending")
      }
      const { claim } = yield* Steps.held(pass, job, { worker: "joan" })

      const answer = yield* Steps.lapsed(claim.lease, options)

      assert.deepStrictEqual(answer.jobs, [{ id: job.id, type: job.type, state: "dead" }])
      const dead = yield* Steps.read(job.id)
      assert.include(dead, { state: "dead", reason: "crash_loop", leaseLosses: 3, attempts: 0 })
      assert.isNotNull(dead.finishedAtMs)
      assert.deepStrictEqual(dead.events.map(({ kind, worker }) => `${kind} ${worker}`), [
        "lease_lost ada",
        "lease_lost grace",
        "lease_lost joan"
      ])
      assert.strictEqual((yield* Steps.settle(claim, "complete"))._tag, "Stale")
    }))

  it.effect("8: losses that do not count never kill a job", () =>
    Effect.gen(function*() {
      const job = yield* Steps.submitted()
      yield* Steps.lost(pass, job, 2, { counted: false, lossesMax: 1 })
      const lost = yield* Steps.read(job.id)
      assert.include(lost, { state: "pending", leaseLosses: 2 })
      assert.deepStrictEqual(lost.events.map(({ counted }) => counted), [false, false])
      yield* Steps.lost(pass, job, 1, { counted: true, lossesMax: 2 })
      assert.include(yield* Steps.read(job.id), { state: "pending", leaseLosses: 3 })

      yield* Steps.lost(pass, job, 1, { counted: true, lossesMax: 2 })

      assert.include(yield* Steps.read(job.id), { state: "dead", reason: "crash_loop", leaseLosses: 4 })
    }))
}
