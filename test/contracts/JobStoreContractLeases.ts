/** Laws of `JobStore`: claims whose answer was lost, and the records of leases. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import type { LeaseId } from "../../src/domain/Claim.ts"
import { claimedToken, JobStore, type JobStoreUnavailable } from "../../src/ports/JobStore.ts"
import * as Jobs from "../support/Jobs.ts"
import * as Steps from "./JobStoreContractSteps.ts"

export const leaseLaws: Steps.Laws = (it, pass) => {
  it.effect("4: a claim asked again under its lease takes nothing further", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const jobs = yield* Steps.submittedAll(6)
      const asked = yield* Steps.request(jobs[0]!, { limit: 2 })
      const first = yield* store.claim(asked)

      const late = yield* store.claim(asked)
      const byIds = yield* store.claimIds({ ...asked, ids: jobs.map(({ id }) => id) })

      assert.lengthOf(first, 2)
      assert.lengthOf(late, 0)
      assert.lengthOf(byIds.claimed, 0)
      assert.lengthOf(yield* Steps.take(jobs[0]!), 4)
    }))

  it.effect("4: two twins of one claim at once take no more than one of them would", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      for (let round = 0; round < 5; round++) {
        const jobs = yield* Steps.submittedAll(6)
        const asked = yield* Steps.request(jobs[0]!, { limit: 2 })

        const twins = yield* Effect.all([store.claim(asked), store.claim(asked), store.claim(asked)], {
          concurrency: "unbounded"
        })

        assert.lengthOf(twins.flat(), 2)
        assert.deepStrictEqual(Steps.sortedIds((yield* store.recall(asked.lease)).jobs), Steps.sortedIds(twins.flat()))
      }
    }))

  it.effect("4: recall answers what the claim took, and moves the token", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const jobs = yield* Steps.submittedAll(3, { payload: "{\"a\":[1]}" })
      const asked = yield* Steps.request(jobs[0]!)
      const taken = yield* store.claim(asked)
      const before = yield* Steps.tokenOf(asked.lease)

      const { jobs: recalled, token } = yield* store.recall(asked.lease)

      const byId = (jobs: typeof taken) => jobs.toSorted((a, b) => a.id < b.id ? -1 : 1)
      assert.deepStrictEqual(byId(recalled), byId(taken))
      const moved = yield* Steps.tokenOf(asked.lease)
      assert.notStrictEqual(moved, before)
      assert.strictEqual(moved, token)
      assert.strictEqual((yield* Steps.reclaim(asked.lease, before))._tag, "Moved")
      yield* Steps.settled(Steps.claimOf(asked.lease, taken[0]!), "complete")
      assert.deepStrictEqual(Steps.sortedIds((yield* store.recall(asked.lease)).jobs), Steps.sortedIds(taken.slice(1)))
      assert.deepStrictEqual((yield* store.recall(yield* Jobs.freshLease)).jobs, [])
    }))

  it.effect("4: abandon hands everything back and charges nothing", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const jobs = yield* Steps.submittedAll(3)
      const asked = yield* Steps.request(jobs[0]!)
      yield* store.claim(asked)
      const ran = (yield* store.recall(asked.lease)).jobs[0]!
      yield* Steps.settled(Steps.claimOf(asked.lease, ran), "complete")

      yield* store.abandon([asked.lease])

      const rest = jobs.map(({ id }) => id).filter((id) => id !== ran.id)
      for (const id of rest) {
        const job = yield* Steps.read(id)
        assert.include(job, { state: "pending", attempts: 0, leaseLosses: 0, staleWrites: 0, epoch: 1, deliveries: 1 })
        assert.deepStrictEqual(job.events, [])
        assert.deepStrictEqual(job.errors, [])
      }
      assert.strictEqual((yield* Steps.read(ran.id)).state, "completed")
      assert.isNull(yield* Steps.recorded(asked.lease))
      const again = yield* Steps.take(jobs[0]!)
      assert.deepStrictEqual(Steps.sortedIds(again), rest.toSorted())
      assert.isTrue(again.every(({ epoch }) => epoch === 2))
    }))

  it.effect("4: handing back takes nothing from who has recalled the claim, or holds its lease", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const hears: ReadonlyArray<(lease: LeaseId) => Effect.Effect<unknown, JobStoreUnavailable>> = [
        store.recall,
        (lease) => store.verify([lease])
      ]
      for (const hear of hears) {
        const jobs = yield* Steps.submittedAll(2)
        const asked = yield* Steps.request(jobs[0]!)
        const taken = yield* store.claim(asked)
        assert.strictEqual(yield* Steps.tokenOf(asked.lease), claimedToken)
        yield* hear(asked.lease)

        yield* store.handBack(asked.lease, claimedToken)

        assert.strictEqual((yield* Steps.read(jobs[0]!.id)).state, "running")
        yield* Steps.settled(Steps.claimOf(asked.lease, taken[0]!), "complete")
        assert.strictEqual((yield* Steps.read(taken[0]!.id)).state, "completed")
      }
    }))

  it.effect("4: handing back what nobody else has asked for charges nothing, after a recall too", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const jobs = yield* Steps.submittedAll(2)
      for (const recalls of [false, true]) {
        const asked = yield* Steps.request(jobs[0]!)
        assert.lengthOf(yield* store.claim(asked), 2)
        const token = recalls ? (yield* store.recall(asked.lease)).token : claimedToken

        yield* store.handBack(asked.lease, token)

        assert.include(yield* Steps.read(jobs[0]!.id), {
          state: "pending",
          attempts: 0,
          leaseLosses: 0,
          staleWrites: 0
        })
        assert.isNull(yield* Steps.recorded(asked.lease))
        yield* store.handBack(asked.lease, token)
      }
      assert.lengthOf(yield* Steps.take(jobs[0]!), 2)
    }))

  it.effect("4: abandon of a lease that took nothing, or of none, changes nothing", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* Steps.submitted()
      const nothing = yield* Steps.request({ type: yield* Jobs.freshType })
      yield* store.claim(nothing)
      const { claim } = yield* Steps.held(pass, job)

      yield* store.abandon([])
      yield* store.abandon([nothing.lease, yield* Jobs.freshLease])

      assert.strictEqual((yield* Steps.read(job.id)).state, "running")
      yield* Steps.settled(claim, "complete")
    }))

  it.effect("4: a twin that comes after the lease was abandoned is abandoned again, at no cost", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* Steps.submitted()
      const asked = yield* Steps.request(job)
      yield* store.abandon([asked.lease])
      yield* store.claim(asked)

      yield* store.abandon([asked.lease])

      assert.include(yield* Steps.read(job.id), { state: "pending", attempts: 0, leaseLosses: 0 })
      yield* Steps.settled((yield* Steps.held(pass, job)).claim, "complete")
    }))

  it.effect("4: an outcome sent after its lease was abandoned changes nothing and counts against nobody", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* Steps.submitted()
      const { claim } = yield* Steps.held(pass, job)
      yield* store.abandon([claim.lease])

      const late = yield* Steps.settle(claim, "complete")

      assert.deepStrictEqual(late, Steps.repeated)
      assert.include(yield* Steps.read(job.id), { state: "pending", staleWrites: 0, finishedAtMs: null })
    }))

  it.effect("4, 10: a lease whose job another one holds by now has nothing running, and hands nothing back", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const handsBack: ReadonlyArray<(lease: LeaseId, token: string) => Effect.Effect<void, JobStoreUnavailable>> = [
        (lease) => store.abandon([lease]),
        store.handBack
      ]
      for (const handBack of handsBack) {
        const job = yield* Steps.submitted()
        const { claim: { lease }, ...first } = yield* Steps.held(pass, job)
        yield* Steps.settled(Steps.claimOf(lease, first.job), "release")
        const second = yield* Steps.held(pass, job)

        assert.deepStrictEqual(yield* store.verify([lease]), [{ _tag: "Stands", lease, running: [], revoked: [] }])
        assert.deepStrictEqual((yield* store.recall(lease)).jobs, [])
        yield* handBack(lease, yield* Steps.tokenOf(lease))

        assert.include(yield* Steps.read(job.id), { state: "running", epoch: 2 })
        assert.isNull(yield* Steps.recorded(lease))
        yield* Steps.settled(second.claim, "complete")
      }
    }))

  it.effect("4: abandoning while others settle loses no outcome and no job", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      for (let round = 0; round < 10; round++) {
        const jobs = yield* Steps.submittedAll(4)
        const asked = yield* Steps.request(jobs[0]!)
        const claims = (yield* store.claim(asked)).map((job) => Steps.claimOf(asked.lease, job))
        assert.lengthOf(claims, 4)
        const settling = Effect.forEach(claims, (claim) => Steps.settle(claim, "complete"), {
          concurrency: "unbounded"
        })
        const both = [settling, Effect.as(store.abandon([asked.lease]), [])]

        const [answers = []] = yield* Effect.all(round % 2 === 0 ? both : both.toReversed(), {
          concurrency: "unbounded"
        }).pipe(Effect.map((answers) => answers.filter((answer) => answer.length > 0)))

        for (const [index, claim] of claims.entries()) {
          const { state } = yield* Steps.read(claim.id)
          assert.strictEqual(answers[index]?._tag, "Settled")
          const wrote = answers[index]?._tag === "Settled" && !answers[index].repeated
          assert.strictEqual(state, wrote ? "completed" : "pending")
        }
      }
    }))

  it.effect("8, 9: look shows each lease under which something was claimed", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const jobs = yield* Steps.submittedAll(3)
      const asked = yield* Steps.request(jobs[0]!, { leaseMs: 12_345, worker: "grace" })
      yield* store.claim(asked)

      const first = yield* store.look
      const second = yield* store.look

      const record = first.leases.find(({ lease }) => lease === asked.lease)
      assert.include(record, { lease: asked.lease, leaseMs: 12_345, worker: "grace", jobs: 3 })
      assert.deepStrictEqual(second.leases.find(({ lease }) => lease === asked.lease), record)
      assert.strictEqual(second.incarnation, first.incarnation)
    }))

  it.effect("9: a lease's record goes when nothing runs under it, and not before", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const jobs = yield* Steps.submittedAll(2)
      const asked = yield* Steps.request(jobs[0]!)
      const [first, second] = (yield* store.claim(asked)).map((job) => Steps.claimOf(asked.lease, job))
      yield* Steps.settled(first!, "complete")

      yield* store.endLeases([asked.lease, yield* Jobs.freshLease])
      assert.isNotNull(yield* Steps.recorded(asked.lease))
      yield* Steps.settled(second!, "fail")
      assert.isNotNull(yield* Steps.recorded(asked.lease))
      yield* store.endLeases([asked.lease])

      assert.isNull(yield* Steps.recorded(asked.lease))
      yield* store.endLeases([])
    }))

  it.effect("9: ending a lease does not touch the job that another lease holds by now", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* Steps.submitted()
      const first = yield* Steps.held(pass, job)
      yield* Steps.settled(first.claim, "release")
      const second = yield* Steps.held(pass, job)

      yield* store.endLeases([first.claim.lease])

      assert.isNull(yield* Steps.recorded(first.claim.lease))
      assert.isNotNull(yield* Steps.recorded(second.claim.lease))
      yield* Steps.settled(second.claim, "complete")
    }))

  it.effect("10: verify says what runs under each lease, and moves its token", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const jobs = yield* Steps.submittedAll(3)
      const asked = yield* Steps.request(jobs[0]!)
      const claims = (yield* store.claim(asked)).map((job) => Steps.claimOf(asked.lease, job))
      const other = yield* Steps.held(pass, yield* Steps.submitted())
      const unknown = yield* Jobs.freshLease
      yield* Steps.settled(claims[0]!, "complete")
      const before = yield* Steps.tokenOf(asked.lease)

      const answers = yield* store.verify([unknown, asked.lease, other.claim.lease])

      assert.deepStrictEqual(answers.map(({ _tag, lease }) => [_tag, lease]), [
        ["Gone", unknown],
        ["Stands", asked.lease],
        ["Stands", other.claim.lease]
      ])
      const running = answers[1]?._tag === "Stands" ? answers[1].running : []
      assert.deepStrictEqual(
        running.toSorted((a, b) => a.id < b.id ? -1 : 1),
        claims.slice(1).map(({ epoch, id }) => ({ id, epoch: Number(epoch) })).toSorted((a, b) => a.id < b.id ? -1 : 1)
      )
      assert.deepStrictEqual(answers[1]?._tag === "Stands" && answers[1].revoked, [])
      assert.notStrictEqual(yield* Steps.tokenOf(asked.lease), before)
      assert.deepStrictEqual(yield* store.verify([]), [])
    }))

  it.effect("10: every verify moves the token, so that no watched token comes back", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const { claim } = yield* Steps.held(pass, yield* Steps.submitted())
      const tokens = new Set<string>([yield* Steps.tokenOf(claim.lease)])
      for (let round = 0; round < 5; round++) {
        yield* store.verify([claim.lease])
        tokens.add(yield* Steps.tokenOf(claim.lease))
      }

      assert.strictEqual(tokens.size, 6)
    }))

  it.effect("10: verify revives nothing", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* Steps.submitted()
      const { claim } = yield* Steps.held(pass, job)
      yield* Steps.lapsed(claim.lease)

      const answers = [...(yield* store.verify([claim.lease])), ...(yield* store.verify([claim.lease]))]

      const gone = { _tag: "Gone", lease: claim.lease } as const
      assert.deepStrictEqual(answers, [gone, gone])
      assert.isNull(yield* Steps.recorded(claim.lease))
      assert.strictEqual((yield* Steps.read(job.id)).state, "pending")
    }))

  it.effect("10, 11: verify names the claims that were cut off", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const jobs = yield* Steps.submittedAll(2)
      const asked = yield* Steps.request(jobs[0]!)
      yield* store.claim(asked)
      yield* store.cancel(jobs[0]!.id)

      const [answer] = yield* store.verify([asked.lease])

      assert.deepStrictEqual(answer, {
        _tag: "Stands",
        lease: asked.lease,
        running: [{ id: jobs[1]!.id, epoch: 1 }],
        revoked: [{ id: jobs[0]!.id, epoch: 1, reason: "cancelled" }]
      })
    }))
}
