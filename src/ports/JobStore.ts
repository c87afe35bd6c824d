/**
 * Port: where jobs are kept, and the only place where their state changes.
 *
 * Laws, which `test/contracts/JobStoreContract.ts` holds every adapter to:
 *
 *  1. A submitted job is found by `get`, and a job submitted again under its id changes nothing and answers the same.
 *  2. One Idempotency-Key is one job, under any concurrency: later submits answer `Replayed`, or `KeyMismatch` if
 *     their fingerprint differs. Refused entries of a batch that is not atomic leave the others alone; an atomic
 *     batch stores everything or nothing.
 *  3. A job is under at most one current claim. A claim raises the epoch by exactly one, counts a delivery, and takes
 *     ready jobs of the asked types in the order of their rank, at most `limit` of them and at most `bytes` of payload
 *     (but always one), of a queue in `rooms` at most so many. Paused queues and jobs that are not due are not ready.
 *     With `limitsByName` it takes of a queue with a limit what that leaves beside what runs under leases of the
 *     worker's name, also where claims of one name meet.
 *     By id it takes nothing that must keep its place in the order: no job with a priority, and none of a queue that
 *     is in `rooms` or has a step of its own. It names their queues instead.
 *     A priority counts whichever way a job became ready. What was handed back keeps its place in the order; what has
 *     failed or asked to run again has that of its new time.
 *  4. A claim asked again under its lease takes nothing further: `recall` answers what it took and moves the token;
 *     `abandon` hands all of it back and charges nothing, also when it took nothing. `handBack` does so only while the
 *     token is the one that the claim or the recall left: somebody else may have recalled it, or hold it.
 *  5. A job with two losses or more is claimed alone, and only if `freeSlots` is above zero; one with `lossesBelow`
 *     losses or more is left to others.
 *  6. `settle` writes only under the current claim: id, epoch, lease and `running`, checked by the writing statement.
 *     A repeat is known by its claim, whatever it carries, and answers `Settled`, also after the job has moved on. A
 *     write whose epoch was lost or cancelled, or was settled under another lease, answers `Stale` and is counted and
 *     shown on the job. A job that somebody locks answers `Undecided`, and the others of the batch are settled.
 *  7. `attempts` counts the steps `fail` and `die` and no others.
 *  8. `reclaim` takes a lease only if its token is the given one, gives back exactly its running jobs, each once, and
 *     leaves no running job without its lease. What it takes can no longer be settled under the old claim. A lease
 *     under which nothing runs goes away without a loss. Reclaimed jobs keep their place in the order, and wait a moment
 *     that may be twice as long with each loss.
 *  9. A lease's record goes only by a statement that sees no running job under it (`endLeases`, `reclaim`, `abandon`).
 * 10. `verify` says whether a lease's record stands, which jobs run under it and which claims were cut off, and moves
 *     its token. It revives nothing.
 * 11. `cancel` ends a waiting or a running job; a running one names the claim that was cut off. Nothing leaves
 *     `completed` or `dead`.
 * 12. Every change of state is a step of `domain/JobState.ts`; any other is refused and changes nothing.
 * 13. A job that is dead is announced by `deadLetters` until `announced` was told so.
 * 14. `list` walks with a cursor: no job twice, and none missed that was there before the first page and matches
 *     throughout.
 * 15. `upcoming` answers what waits for a time within the given length from now, earliest first, and changes nothing.
 * 16. `counts` is how many jobs there are, by state, type and queue, and how many are `pending`, by type. A type or
 *     queue without any may be missing. Besides it says how long the oldest job that may start has been due: of each type
 *     and queue the one that comes first in the order, paused queues left out; of jobs of one priority that is the oldest.
 * 17. A job that is unique is stored if no job stands in its way: one of its type, with the same of the fields it names,
 *     that is young enough and in one of the states it names. Else it answers `Skipped`; `replace` cancels what waits
 *     and takes its place, in one step. Under any concurrency one of several is stored.
 * 18. A job with a time to start by is not claimed after it, and `expire` moves it to `dead`, unless it was claimed
 *     before. A job with a retention of its own is kept for that, and others for what `prune` is told.
 * 19. `note` keeps lines and progress under the claim they were made with, while it is the current one and after it
 *     has settled its job; what a lost claim notes is left out. It changes no state, and keeps the newest lines only.
 * 20. A job with a delay is due so long after the instant at which it is stored, which is the one that it was created at,
 *     and that is what the answer says.
 *
 * Time is the store's own: lengths go in, instants come out. No method hangs: each has a deadline of the adapter's, and
 * then fails with `JobStoreUnavailable`. What was sent may still take effect; that is why submits carry ids, claims
 * carry leases, and settles may be repeated.
 */
import { Context, type Effect, Schema } from "effect"
import { because } from "../domain/Because.ts"
import type { LeaseId } from "../domain/Claim.ts"
import type { ClaimedJob, Job, JobType, NewJob, Queue } from "../domain/Job.ts"
import type { JobId } from "../domain/JobId.ts"
import type { DeadReason, JobState } from "../domain/JobState.ts"
import type { Note } from "../domain/Notes.ts"
import type { Settlement } from "../domain/Outcome.ts"
import type { RecordedLease } from "../domain/Watch.ts"

/** The store did not answer, or not in time. Whether the operation took effect is not known. Perhaps later. */
export class JobStoreUnavailable extends Schema.TaggedError<JobStoreUnavailable>()("JobStoreUnavailable", {
  operation: Schema.String,
  cause: Schema.Defect()
}) {
  override get message(): string {
    return `the store did not answer (${this.operation}): ${because(this.cause)}`
  }
}

/** The answer to one entry of a submit, in the order of the entries. */
export type Submitted =
  | { readonly _tag: "Created"; readonly id: JobId; readonly createdAtMs: number; readonly runAtMs: number }
  /** The key is known, with the same fingerprint. */
  | { readonly _tag: "Replayed"; readonly id: JobId }
  /** The key is known, with another fingerprint. */
  | { readonly _tag: "KeyMismatch"; readonly id: JobId }
  /** It is unique, and this job stands in its way. A key it came with is that job's now. */
  | { readonly _tag: "Skipped"; readonly id: JobId }
  /** Somebody's open transaction holds the key, or what must be unique. Perhaps later. */
  | { readonly _tag: "KeyLocked" }
  /**
   * Not known yet: what it shares with others is locked, and no key of its own. Ask again. No entry of an atomic batch is
   * answered so: nothing of it is stored then, and it fails with `JobStoreUnavailable`.
   */
  | { readonly _tag: "Undecided" }
  /** The store cannot hold this entry, however often it is asked. */
  | { readonly _tag: "Refused"; readonly message: string }
  /** Another entry of the same atomic batch was refused. */
  | { readonly _tag: "Aborted" }

export interface SubmitAnswer {
  readonly answers: ReadonlyArray<Submitted>
  /** Whether the store has woken the workers itself, so that publishing would say it twice. */
  readonly announced: boolean
}

export interface ClaimRequest {
  readonly lease: LeaseId
  readonly leaseMs: number
  /** For people; the lease is what fences. */
  readonly worker: string
  readonly types: ReadonlyArray<JobType>
  /** Absent: all queues. */
  readonly queues?: ReadonlyArray<Queue>
  /** How many jobs there is room for. */
  readonly limit: number
  /** How many of these would start at once. A suspect job is only taken into such a slot. */
  readonly freeSlots: number
  /** Absent: whatever a job has lost. */
  readonly lossesBelow?: number
  /** Bytes of payload there is room for. */
  readonly bytes: number
  /** Only jobs that have been ready for longer than this. */
  readonly readyForMs?: number
  /** Nobody said that there is a job: look first, where that costs less than a claim that brings nothing. */
  readonly glance?: boolean
  /** Queues with a limit, and how many more jobs of each there is room for; absent or empty: none has one. */
  readonly rooms?: ReadonlyArray<{ readonly queue: Queue; readonly room: number }>
  /** For a worker that does not count itself, in place of `rooms`: the store counts what runs under its name. */
  readonly limitsByName?: boolean
  /**
   * Called where fewer jobs come than there is room for, and asking again at once may bring more: others were at them in
   * the same moment, or they sort before where this claim began.
   */
  readonly onMore?: () => void
}

/** What became of a claim by ids. Ids in none of the lists are final, running, held back or unknown: drop them. */
export interface ClaimedIds {
  readonly claimed: ReadonlyArray<ClaimedJob>
  readonly notYetDue: ReadonlyArray<{ readonly id: JobId; readonly runAtMs: number }>
  /** Queues of those among the ids that are ready and must be claimed in order. */
  readonly inOrder: ReadonlyArray<Queue>
  /** Ready, and beyond the room that there was. Empty where nothing was claimed, so that asking again has an end. */
  readonly left: ReadonlyArray<JobId>
}

export interface Recalled {
  readonly jobs: ReadonlyArray<ClaimedJob>
  /** As this recall left it; where no record stands, it is nobody's. */
  readonly token: string
}

/** The token of every lease as its claim leaves it. */
export const claimedToken = "0"

export type Settled =
  /** Recorded now, or found recorded; `state` is what the record says the run led to. */
  | { readonly _tag: "Settled"; readonly repeated: boolean }
  | { readonly _tag: "Stale"; readonly currentEpoch: number }
  /** Not known yet: somebody has the row locked. Ask again, alone. */
  | { readonly _tag: "Undecided" }

export type Verified =
  | {
    readonly _tag: "Stands"
    readonly lease: LeaseId
    readonly running: ReadonlyArray<{ readonly id: JobId; readonly epoch: number }>
    readonly revoked: ReadonlyArray<{ readonly id: JobId; readonly epoch: number; readonly reason: string }>
  }
  | { readonly _tag: "Gone"; readonly lease: LeaseId }

export interface LeaseRecord extends RecordedLease {
  readonly worker: string
  readonly jobs: number
}

export interface LeaseLook {
  /** Changes when the server that answers is another one, or was restarted: what was watched before proves nothing. */
  readonly incarnation: string
  readonly leases: ReadonlyArray<LeaseRecord>
}

export type Reclaimed =
  | {
    readonly _tag: "Reclaimed"
    readonly lease: LeaseId
    readonly worker: string
    readonly jobs: ReadonlyArray<{ readonly id: JobId; readonly type: JobType; readonly state: JobState }>
  }
  /** The token has moved: it is alive. */
  | { readonly _tag: "Moved"; readonly lease: LeaseId }
  | { readonly _tag: "Gone"; readonly lease: LeaseId }
  /** Somebody has one of its rows locked, or it took too long. Ask again. */
  | { readonly _tag: "Locked"; readonly lease: LeaseId }

export type Cancelled =
  | {
    readonly _tag: "Cancelled"
    readonly job: Job
    readonly cutOff: { readonly lease: LeaseId; readonly epoch: number } | null
  }
  | { readonly _tag: "NotFound" }
  | { readonly _tag: "Refused"; readonly state: JobState }

export type Rebooked =
  | { readonly _tag: "Rebooked"; readonly job: Job }
  | { readonly _tag: "NotFound" }
  | { readonly _tag: "Refused"; readonly state: JobState }

export type Resubmitted =
  | { readonly _tag: "Created"; readonly job: Job }
  | { readonly _tag: "NotFound" }
  | { readonly _tag: "Refused"; readonly state: JobState }

export interface ListRequest {
  readonly state?: JobState
  readonly type?: JobType
  readonly queue?: Queue
  readonly tag?: string
  readonly limit: number
  readonly offset: number
  /** The `next` of an earlier page. */
  readonly before?: JobId
}

export interface ListPage {
  readonly jobs: ReadonlyArray<Job>
  /** `null` at the end; a short or empty page may have one. */
  readonly next: JobId | null
}

export interface Counts {
  readonly byState: Readonly<Record<JobState, number>>
  readonly byType: Readonly<Record<string, number>>
  readonly byQueue: Readonly<Record<string, number>>
  /** What waits, of the types of which something does. */
  readonly pendingByType: Readonly<Record<string, number>>
  /** `null` where no job may start. */
  readonly oldestReadyMs: number | null
  readonly asOfMs: number
}

export interface Promoted {
  readonly jobs: ReadonlyArray<{
    readonly id: JobId
    readonly type: JobType
    readonly queue: Queue
    /** It has a priority, or was taken back: it does not queue behind what was published. */
    readonly ordered: boolean
  }>
  /** How long until the next one is due, 0 where more are; `null` where nothing waits. */
  readonly nextInMs: number | null
  /** Whether the store has woken the workers itself. */
  readonly announced: boolean
}

/** What will be due soon, by the store's clock. */
export interface Upcoming {
  readonly nowMs: number
  readonly jobs: ReadonlyArray<{ readonly id: JobId; readonly runAtMs: number }>
}

export interface Expired {
  readonly jobs: number
  readonly nextInMs: number | null
}

export interface DeadLetter {
  readonly id: JobId
  readonly type: JobType
  readonly queue: Queue
  readonly reason: DeadReason
  readonly attempts: number
  readonly diedAtMs: number
}

export interface Pruned {
  readonly jobs: number
  readonly keys: number
  /** Whether there may be more to prune at once. */
  readonly more: boolean
}

type Answer<A> = Effect.Effect<A, JobStoreUnavailable>

/**
 * How long a job stays after its end, however short its own retention: a submit whose answer was lost is sent again under
 * the same id within some ten seconds, and where the job has ended and is gone by then it would be stored and run again.
 */
export const keptLeastMs = 60_000

export class JobStore extends Context.Service<JobStore, {
  readonly submit: (
    jobs: ReadonlyArray<NewJob>,
    options: { readonly atomic: boolean }
  ) => Answer<SubmitAnswer>

  /** Takes ready jobs in order. An empty array means that none are ready, but for what `onMore` says. */
  readonly claim: (request: ClaimRequest) => Answer<ReadonlyArray<ClaimedJob>>
  /** Takes those of `ids` that may run now: for transports that carry ids. There may be more of them than room. */
  readonly claimIds: (request: ClaimRequest & { readonly ids: ReadonlyArray<JobId> }) => Answer<ClaimedIds>
  /** What a claim under this lease took, if its answer was lost. */
  readonly recall: (lease: LeaseId) => Answer<Recalled>
  /** Hands back whatever runs under these leases, at no cost. */
  readonly abandon: (leases: ReadonlyArray<LeaseId>) => Answer<void>
  /** The same for one lease, unless its token is another by now: then somebody goes by it. */
  readonly handBack: (lease: LeaseId, token: string) => Answer<void>

  readonly settle: (settlements: ReadonlyArray<Settlement>) => Answer<ReadonlyArray<Settled>>
  /** Keeps what runs have noted down. */
  readonly note: (notes: ReadonlyArray<Note>) => Answer<void>
  /** Lets go of the records of leases under which nothing runs any more. */
  readonly endLeases: (leases: ReadonlyArray<LeaseId>) => Answer<void>
  readonly verify: (leases: ReadonlyArray<LeaseId>) => Answer<ReadonlyArray<Verified>>

  readonly look: Answer<LeaseLook>
  readonly reclaim: (
    lapsed: ReadonlyArray<{ readonly lease: LeaseId; readonly token: string }>,
    options: {
      /** Whether these losses count towards the crash-loop limit. */
      readonly counted: boolean
      readonly lossesMax: number
    }
  ) => Answer<ReadonlyArray<Reclaimed>>

  readonly cancel: (id: JobId) => Answer<Cancelled>
  readonly retry: (id: JobId) => Answer<Rebooked>
  readonly resubmit: (id: JobId, as: JobId) => Answer<Resubmitted>

  /** The jobs that exist among `ids`, in no particular order. */
  readonly get: (ids: ReadonlyArray<JobId>) => Answer<ReadonlyArray<Job>>
  readonly list: (request: ListRequest) => Answer<ListPage>
  readonly counts: Answer<Counts>
  /** The store's clock. */
  readonly now: Answer<number>

  /** Makes jobs ready that are due, oldest first. */
  readonly promote: (limit: number) => Answer<Promoted>
  /** Makes those of `ids` ready that are due. */
  readonly promoteIds: (ids: ReadonlyArray<JobId>) => Answer<Promoted>
  /** What waits for a time from now (or from `fromMs`, if that is later) until `withinMs` from now: to be indexed. */
  readonly upcoming: (withinMs: number, fromMs: number | null, limit: number) => Answer<Upcoming>
  /** Ends what was not started in time. Answers how many, and how long until the next one; `null` where none waits. */
  readonly expire: (limit: number) => Answer<Expired>
  readonly deadLetters: (limit: number) => Answer<ReadonlyArray<DeadLetter>>
  readonly announced: (ids: ReadonlyArray<JobId>) => Answer<void>
  /**
   * Deletes one batch of what is final for longer than this, and of keys whose time is over. A job with a retention of
   * its own is kept for that, but for `leastMs` at least (`keptLeastMs` where it is not said).
   */
  readonly prune: (options: {
    readonly completedMs: number
    readonly deadMs: number
    readonly leastMs?: number
    readonly limit: number
  }) => Answer<Pruned>
}>()("deadman/ports/JobStore") {}
