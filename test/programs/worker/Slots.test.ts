/** The slots by themselves: what no handler can bring about through a whole worker. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { type ClaimedJob, JobType, plainJob } from "../../../src/domain/Job.ts"
import type { JobId } from "../../../src/domain/JobId.ts"
import type { Handlers } from "../../../src/programs/worker/Handlers.ts"
import * as Leases from "../../../src/programs/worker/Leases.ts"
import * as Slots from "../../../src/programs/worker/Slots.ts"
import * as Ids from "../../support/Ids.ts"

const type = JobType.make("t")

const jobOf = (id: JobId): ClaimedJob => ({
  ...plainJob(type, "null"),
  id,
  epoch: 1,
  deliveries: 1,
  attempts: 0,
  leaseLosses: 0,
  waitedMs: 0,
  key: null
})

it.effect("a start that throws keeps no later job from starting on the spot", () =>
  Effect.gen(function*() {
    const leases = Leases.make({ isRecord: true })
    const offered = (id: JobId) => leases.adopt({ id: Ids.leaseId(), leaseMs: 5_000, sentMs: 0 }, [jobOf(id)], 0)
    const ran: Array<string> = []
    let breaks = true
    const handlers: Handlers["Service"] = {
      types: [type],
      get: () => {
        if (breaks) {
          throw new Error("no handler can be had")
        }
        return ({ id }) => void ran.push(id)
      }
    }
    const slots = Slots.make({
      slots: 2,
      worker: "ada",
      handlers,
      notes: { progress: () => {}, log: () => {}, flush: () => Effect.void, run: Effect.never },
      context: yield* Effect.context<never>(),
      now: () => 0,
      settle: leases.forget,
      forget: leases.forget,
      freed: () => {},
      expire: () => {},
      trialLosses: 4,
      onTrialEnded: () => {},
      limits: () => new Map(),
      onLeft: () => {},
      onRunaways: () => {}
    })
    const [first, second] = [Ids.jobId(), Ids.jobId()]
    assert.throws(() => slots.offer(offered(first), false), "no handler can be had")
    breaks = false
    slots.offer(offered(second), false)
    assert.deepStrictEqual(ran, [first, second])
  }))
