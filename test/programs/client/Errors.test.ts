/** Whatever a program is told of says something: an error without words sends its reader to the source. */
import { assert, it } from "@effect/vitest"
import * as Claim from "../../../src/domain/Claim.ts"
import { ClaimNotCurrent } from "../../../src/ports/GuardedEffects.ts"
import { JobStoreUnavailable } from "../../../src/ports/JobStore.ts"
import { QueuesUnavailable, TooManyLimits } from "../../../src/ports/Queues.ts"
import { SchedulesUnavailable } from "../../../src/ports/Schedules.ts"
import { SessionsUnavailable } from "../../../src/ports/Sessions.ts"
import { Deadman, Effects, Job } from "../../../src/programs/deadman.ts"
import * as Ids from "../../support/Ids.ts"

const claim = new ClaimNotCurrent({ claim: { id: Ids.jobId(), epoch: Claim.Epoch.make(2), lease: Ids.leaseId() } })

const errors: ReadonlyArray<readonly [words: RegExp, error: Error]> = [
  [/no reason/, new Job.Rejected()],
  [/no reason/, new Job.Rejected("")],
  [/^why$/, new Job.Rejected("why")],
  [/again in 5 ms/, Job.again(5)],
  [
    /payload\.n: no/,
    new Job.JobValueRefused({ type: "t", what: "payload", faults: [{ path: "payload.n", message: "no" }] })
  ],
  [/no job j/, new Deadman.JobNotFound({ id: "j" })],
  [/no schedule s/, new Deadman.ScheduleNotFound({ name: "s" })],
  [/within 5 ms/, new Deadman.WaitTimedOut({ id: "j", timeoutMs: 5 })],
  [/delivery 2/, claim],
  [/at most 7 queues/, new TooManyLimits({ most: 7 })],
  [/Deadman\.start/, new Effects.EffectsNeedPostgres()],
  [/get.*gone/, new JobStoreUnavailable({ operation: "get", cause: new Error("gone") })],
  [/list.*gone/, new QueuesUnavailable({ operation: "list", cause: new Error("gone") })],
  [/list.*gone/, new SchedulesUnavailable({ operation: "list", cause: new Error("gone") })],
  [/list.*gone/, new SessionsUnavailable({ operation: "list", cause: new Error("gone") })]
]

it.each(errors)("%s is what it says", (words, error) => {
  assert.match(error.message, words)
})
