/**
 * Submits share their commits.
 *
 * Keyed and unique submits go apart from the others, since a key that somebody's open transaction holds makes a
 * statement wait.
 * Ids are drawn before anything is sent, so a flush whose outcome is not known is sent again under the same ids, until
 * its callers have run out of time. One fiber watches the deadlines, and only while somebody waits: a store that hangs
 * cannot make a caller hang.
 *
 * Shutdown is the scope closing, upwards: new submits are refused, those under way get their answers, within the time
 * that a submit has anyway.
 */
import { Cause, Clock, Effect, Exit, FiberSet, Latch, Layer, Random, Semaphore } from "effect"
import type { Job, NewJob } from "../../domain/Job.ts"
import type { JobId } from "../../domain/JobId.ts"
import type { DelayedJobs } from "../../ports/DelayedJobs.ts"
import { JobStore, type Submitted } from "../../ports/JobStore.ts"
import { type Answered, type JobDraft, Submitter, SubmitUnavailable } from "../../ports/Submitter.ts"
import type { Transport } from "../../ports/Transport.ts"
import * as Meters from "../process/Meters.ts"
import * as Announcer from "./Announcer.ts"
import * as JobIds from "./JobIds.ts"
import * as Lane from "./Lane.ts"

/** How long a caller waits at most. */
export const deadlineMs = 4_000
/** An atomic batch may be thousands of rows. */
export const batchDeadlineMs = 10_000
/** Atomic batches under way, and those that wait for their turn. */
export const batchesMax = 2
export const batchesWaitingMax = 16

/** What is under way when the process stops has its own deadline; this is for a store that forgot about it. */
const closeMs = deadlineMs + 1_000
/** Jobs that are read at once for answers that show them: each brings its payload and its result along. */
const readMax = 50
const rowOverheadBytes = 400
const tick = "100 millis"

const nanosOf = (ms: number) => BigInt(ms) * 1_000_000n
const deadlineNanos = nanosOf(deadlineMs)
const batchDeadlineNanos = nanosOf(batchDeadlineMs)

const bytesOf = (job: NewJob) => job.payload.length + rowOverheadBytes

/** The first of each key, and those that repeat one within the flush. */
const leaders = (entries: ReadonlyArray<Lane.Entry>) => {
  if (entries.every((entry) => entry.job.key === null)) {
    return { first: entries, repeats: [] }
  }
  const byKey = new Map<string, Lane.Entry>()
  const first: Array<Lane.Entry> = []
  const repeats: Array<{ readonly entry: Lane.Entry; readonly leader: Lane.Entry }> = []
  for (const entry of entries) {
    const key = entry.job.key
    const leader = key === null ? undefined : byKey.get(key.key)
    if (leader === undefined) {
      first.push(entry)
      if (key !== null) {
        byKey.set(key.key, entry)
      }
    } else {
      repeats.push({ entry, leader })
    }
  }
  return { first, repeats }
}

const make = Effect.gen(function*() {
  const store = yield* JobStore
  const clock = yield* Clock.Clock
  const draw = yield* JobIds.make
  const announce = yield* Announcer.make
  const fork = yield* FiberSet.makeRuntime<never, void, never>()
  let stopping = false
  let watching = false
  let batches = 0
  /** Callers that have no answer yet. */
  let unanswered = 0
  const answered = yield* Latch.make()
  const turns = yield* Semaphore.make(batchesMax)

  // Made once: an error draws its stack, and one is asked for with each entry.
  const refusals = {
    full: new SubmitUnavailable({ reason: "full" }),
    stopping: new SubmitUnavailable({ reason: "stopping" }),
    store: new SubmitUnavailable({ reason: "store" })
  }
  const unavailable = (reason: SubmitUnavailable["reason"]) => refusals[reason]
  const isLate = (entry: Lane.Entry) => clock.monotonicTimeNanosUnsafe() >= entry.deadlineNanos

  const pause = (attempt: number) =>
    Effect.flatMap(
      Random.next,
      (draw) => Effect.sleep(Math.floor(50 + draw * Math.min(500, 100 * 2 ** Math.min(attempt, 4))))
    )

  /**
   * Sends the same jobs again while it is not known what became of them and somebody still waits. A batch has a turn for
   * each try and none while it pauses: what one waits for is not what the others need.
   */
  const persist = Effect.fnUntraced(function*(entries: ReadonlyArray<Lane.Entry>, atomic: boolean) {
    for (let attempt = 0;; attempt++) {
      const waiting = attempt === 0 ? entries : entries.filter((entry) => entry.answer !== null && !isLate(entry))
      if (waiting.length === 0 || (atomic && waiting.length < entries.length)) {
        return null
      }
      const sent = Effect.suspend(() => store.submit(waiting.map((entry) => entry.job), { atomic }))
      const exit = yield* Effect.exit(atomic ? turns.withPermits(1)(sent) : sent)
      if (Exit.isSuccess(exit)) {
        return { waiting, answer: exit.value }
      }
      if (Cause.hasDies(exit.cause)) {
        yield* Effect.logError("a submit met a defect", exit.cause)
        return null
      }
      yield* pause(attempt)
    }
  })

  /** The jobs behind replays, or `null` if the store did not say. */
  const jobsOf = (ids: ReadonlyArray<JobId>) =>
    store.get([...new Set(ids)]).pipe(
      Effect.map((jobs): Map<JobId, Job> | null => new Map(jobs.map((job) => [job.id, job]))),
      Effect.catch(() => Effect.succeed(null))
    )

  const stored = (entries: ReadonlyArray<Lane.Entry>, answers: ReadonlyArray<Submitted>) => {
    const jobs: Array<Announcer.StoredJob> = []
    for (const [index, { job }] of entries.entries()) {
      const answer = answers[index]
      if (answer?._tag === "Created") {
        const { createdAtMs, runAtMs } = answer
        jobs.push({ id: job.id, type: job.type, queue: job.queue, ordered: job.priority !== 0, createdAtMs, runAtMs })
      }
    }
    return jobs
  }

  /**
   * What the answer to the first of a key means for one that repeats it; `null` if it says nothing. Of an undecided one
   * nothing is known, and so of its repeats.
   */
  const answerToRepeat = (repeat: Lane.Entry, leader: Lane.Entry, answer: Submitted): Submitted | null => {
    if (repeat.job.key?.fingerprint === leader.job.key?.fingerprint) {
      return answer._tag === "Created" ? { _tag: "Replayed", id: answer.id } : answer
    }
    return answer._tag === "Created" || answer._tag === "Replayed" || answer._tag === "Skipped"
      ? { _tag: "KeyMismatch", id: answer.id }
      : answer._tag === "KeyLocked" || answer._tag === "Undecided"
      ? answer
      : null
  }

  /**
   * Answers those of `entries` of which something is known, and gives back those that need another turn: at once, or
   * `later`, where something is locked that is not theirs alone.
   */
  const settle = Effect.fnUntraced(function*(entries: ReadonlyArray<Lane.Entry>, atomic: boolean) {
    const { first, repeats } = leaders(entries)
    const done = yield* persist(first, atomic)
    if (done === null) {
      return { again: [], later: [] }
    }
    const { answer, waiting } = done
    announce(() => stored(waiting, answer.answers), answer.announced)
    // Nearly always: then there is nothing to look up and nobody to wait for.
    if (repeats.length === 0 && answer.answers.every((said) => said._tag === "Created")) {
      yield* Meters.add("submitted", waiting.length)
      for (const [index, entry] of waiting.entries()) {
        const said = answer.answers[index]
        if (said?._tag === "Created") {
          Lane.answerOnce(entry, said)
        }
      }
      return { again: [], later: [] }
    }
    const answers = new Map<Lane.Entry, Submitted>()
    for (const [index, entry] of waiting.entries()) {
      const submitted = answer.answers[index]
      if (submitted !== undefined) {
        answers.set(entry, submitted)
      }
    }
    const again: Array<Lane.Entry> = []
    const later = new Set<Lane.Entry>()
    for (const { entry, leader } of repeats) {
      const said = answers.get(leader)
      const submitted = said === undefined ? null : answerToRepeat(entry, leader, said)
      if (submitted !== null) {
        answers.set(entry, submitted)
      } else if (atomic) {
        answers.set(entry, { _tag: "Aborted" })
      } else {
        again.push(entry)
      }
    }
    const shown = Array.from(answers).flatMap(([entry, said]) =>
      said._tag === "Replayed" || said._tag === "Skipped" ? [{ entry, said }] : []
    )
    const created = answer.answers.filter((said) => said._tag === "Created").length
    yield* Meters.add("submitted", created)
    yield* Meters.add("replayed", shown.filter(({ said }) => said._tag === "Replayed").length)
    // Nobody who created a job waits for the reading of somebody else's.
    for (const [entry, said] of answers) {
      if (said._tag === "Undecided") {
        later.add(entry)
      } else if (said._tag !== "Replayed" && said._tag !== "Skipped") {
        Lane.answerOnce(entry, said)
      }
    }
    const show = Effect.gen(function*() {
      for (let at = 0; at < shown.length; at += readMax) {
        // Whoever ran out of time is answered.
        const some = shown.slice(at, at + readMax).filter(({ entry }) => entry.answer !== null)
        const jobs = yield* jobsOf(some.map(({ said }) => said.id))
        for (const { entry, said } of some) {
          const job = jobs?.get(said.id)
          Lane.answerOnce(
            entry,
            said._tag === "Replayed" && jobs !== null
              ? { _tag: "Replayed", id: said.id, job: job ?? null }
              // Pruned between the two statements: asked again, nothing is in the way.
              : said._tag === "Skipped" && job !== undefined
              ? { _tag: "Skipped", id: said.id, job }
              : unavailable("store")
          )
        }
      }
    })
    if (shown.length > 0) {
      // One turn for all of it: whoever waits for one each time waits for every other batch again.
      yield* (atomic ? turns.withPermits(1)(show) : show)
    }
    return { again, later: entries.filter((entry) => later.has(entry)) }
  })

  const makeLane = (): Lane.Lane => {
    const lane: Lane.Lane = Lane.make((entries) => {
      fork(
        settle(entries, false).pipe(
          Effect.onExit((exit) => {
            const { again, later } = Exit.isSuccess(exit) ? exit.value : { again: [], later: [] }
            const open = new Set([...again, ...later])
            for (const entry of entries) {
              if (!open.has(entry)) {
                Lane.answerOnce(entry, unavailable("store"))
              }
            }
            lane.again(again)
            lane.aside(later)
            lane.landed(entries)
            return Effect.void
          }),
          Effect.tap(({ later }) =>
            later.length === 0 ? Effect.void : pause(1).pipe(
              Effect.andThen(Effect.sync(() => lane.again(later))),
              Effect.onInterrupt(() =>
                Effect.sync(() => later.forEach((entry) => Lane.answerOnce(entry, unavailable("store"))))
              )
            )
          ),
          Effect.asVoid,
          Effect.catchCause((cause) => Effect.logError("a flush of submits failed", cause))
        )
      )
    })
    return lane
  }
  const unkeyed = makeLane()
  const keyed = makeLane()

  const waiting = () => [...unkeyed.unanswered(), ...keyed.unanswered()]

  const watch = Effect.gen(function*() {
    while (true) {
      yield* Effect.sleep(tick)
      const entries = waiting()
      if (entries.length === 0) {
        watching = false
        return
      }
      for (const entry of entries) {
        if (isLate(entry)) {
          Lane.answerOnce(entry, unavailable("store"))
        }
      }
    }
  })

  const entryOf = (draft: JobDraft, untilNanos: bigint, answer: NonNullable<Lane.Entry["answer"]>): Lane.Entry => {
    const job: NewJob = { ...draft, id: draw() }
    unanswered += 1
    const counted: Lane.Entry["answer"] = (said) => {
      unanswered -= 1
      if (unanswered === 0 && stopping) {
        answered.openUnsafe()
      }
      answer(said)
    }
    return { job, bytes: bytesOf(job), deadlineNanos: untilNanos, answer: counted }
  }

  const submitThen: Submitter["Service"]["submitThen"] = (draft, answer) => {
    if (stopping) {
      answer(unavailable("stopping"))
      return
    }
    const lane = draft.key === null && (draft.unique ?? null) === null ? unkeyed : keyed
    const entry = entryOf(draft, clock.monotonicTimeNanosUnsafe() + deadlineNanos, answer)
    if (!lane.offer(entry)) {
      Lane.answerOnce(entry, unavailable("full"))
      return
    }
    if (!watching) {
      watching = true
      fork(watch)
    }
  }

  const submit: Submitter["Service"]["submit"] = (draft) =>
    Effect.callback<Answered, SubmitUnavailable>((resume) =>
      submitThen(
        draft,
        (answered) => resume(answered._tag === "SubmitUnavailable" ? Effect.fail(answered) : Effect.succeed(answered))
      )
    )

  const submitAll: Submitter["Service"]["submitAll"] = Effect.fnUntraced(function*(drafts) {
    if (stopping) {
      return yield* unavailable("stopping")
    }
    if (batches >= batchesMax + batchesWaitingMax) {
      return yield* unavailable("full")
    }
    batches += 1
    return yield* Effect.callback<ReadonlyArray<Answered>, SubmitUnavailable>((resume) => {
      const answers: Array<Answered> = new Array(drafts.length)
      const untilNanos = clock.monotonicTimeNanosUnsafe() + batchDeadlineNanos
      let open = drafts.length
      const entries = drafts.map((draft, index) =>
        entryOf(draft, untilNanos, (answered) => {
          if (answered._tag === "SubmitUnavailable") {
            resume(Effect.fail(answered))
            return
          }
          answers[index] = answered
          open -= 1
          if (open === 0) {
            resume(Effect.succeed(answers))
          }
        })
      )
      // In a fiber of its own: a caller that goes away must not leave half a batch unsaid to the workers.
      fork(
        settle(entries, true).pipe(
          Effect.timeoutOption(batchDeadlineMs),
          Effect.asVoid,
          Effect.catchCause((cause) => Effect.logError("a batch failed", cause)),
          Effect.ensuring(Effect.sync(() => {
            batches -= 1
            for (const entry of entries) {
              Lane.answerOnce(entry, unavailable("store"))
            }
          }))
        )
      )
    }).pipe(
      Effect.timeoutOrElse({ duration: batchDeadlineMs, orElse: () => unavailable("store") })
    )
  })

  yield* Effect.addFinalizer(() =>
    Effect.suspend(() => {
      stopping = true
      return unanswered === 0 ? Effect.void : Effect.timeoutOption(answered.await, closeMs)
    })
  )

  return Submitter.of({ submit, submitThen, submitAll, drawId: Effect.sync(draw) })
})

export const layer: Layer.Layer<Submitter, never, JobStore | Transport | DelayedJobs> = Layer.effect(Submitter, make)
