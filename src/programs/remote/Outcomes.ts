/**
 * Brings what workers elsewhere report to the store.
 *
 * Unlike a worker here, one that is told nothing asks again: so nothing is kept past the request, and a batch whose fate
 * is not known is refused as a whole. What its jobs are bound to (attempts, backoff) is remembered from the claim or
 * read, and only failures need it. A row that somebody locks is tried again alone, for as long as the asker can wait.
 */
import { Effect, Random, type Scope } from "effect"
import type { LeaseId } from "../../domain/Claim.ts"
import type { JobId } from "../../domain/JobId.ts"
import { type Settlement, settlement } from "../../domain/Outcome.ts"
import { JobStore, type Settled } from "../../ports/JobStore.ts"
import { type RemoteOutcome, type RemoteSettled, RemoteUnavailable } from "../../ports/RemoteWorkers.ts"
import * as Meters from "../process/Meters.ts"
import * as Deadline from "../worker/Deadline.ts"
import * as Batches from "./Batches.ts"
import type { Grants, Terms } from "./Grants.ts"

/** Of one request, and of one statement. */
export const outcomesMax = 1_000
const bytesMax = 16 * 1_048_576
/** Of all requests together, sent or not: a store that is slow must not fill the memory. */
const heldMax = 64 * 1_048_576
/** Reading jobs brings their payloads along. */
const readMax = 50
const deadlineMs = 3_500
/** How long locked rows are tried again. */
const lockedMs = 2_000
const lockedPauseMs = 100

/** For outcomes that count no attempt: what they mean does not depend on the job. */
const nobody: Terms = { attempts: 0, maxAttempts: 1, backoff: { kind: "fixed", delay_ms: 0 } }

const store503 = new RemoteUnavailable({ reason: "store" })

/** The same job may come twice, under two claims: one statement must not see both. */
const roundsOf = (settlements: ReadonlyArray<Settlement>): ReadonlyArray<ReadonlyArray<Settlement>> => {
  const seen = new Map<JobId, number>()
  const rounds: Array<Array<Settlement>> = []
  for (const one of settlements) {
    const round = seen.get(one.claim.id) ?? 0
    seen.set(one.claim.id, round + 1)
    rounds[round] ??= []
    rounds[round].push(one)
  }
  return rounds
}

const weigh = ({ failure, result }: Settlement) => (result?.length ?? 0) + (failure?.message.length ?? 0) + 200

export interface Outcomes {
  readonly settle: (outcomes: ReadonlyArray<RemoteOutcome>) => Effect.Effect<RemoteSettled, RemoteUnavailable>
}

export const make = Effect.fnUntraced(function*(options: {
  readonly grants: Grants
  readonly now: () => number
  /** Something under this lease has ended; `last`: nothing else is known to run under it. */
  readonly ended: (lease: LeaseId, last: boolean) => void
}): Effect.fn.Return<Outcomes, never, JobStore | Scope.Scope> {
  const { grants, now } = options
  const store = yield* JobStore

  const counts = (written: ReadonlyArray<Settlement>) => {
    const of = (...steps: ReadonlyArray<Settlement["step"]>) =>
      written.filter(({ step }) => steps.includes(step)).length
    return Effect.all([
      Meters.add("completed", of("complete")),
      Meters.add("failed", of("fail", "die")),
      Meters.add("dead", of("die")),
      Meters.add("released", of("release"))
    ], { discard: true })
  }

  const write = Effect.fnUntraced(function*(settlements: ReadonlyArray<Settlement>) {
    const answers = yield* store.settle(settlements)
    const written: Array<Settlement> = []
    let stale = 0
    for (const [index, one] of settlements.entries()) {
      const answer = answers[index]
      if (answer === undefined || answer._tag === "Undecided") {
        continue
      }
      const { epoch, id, lease } = one.claim
      options.ended(lease, grants.ended(lease, id))
      if (answer._tag === "Stale") {
        stale += 1
        yield* Effect.logWarning("an outcome was refused as stale: the job is another worker's, or cancelled").pipe(
          Effect.annotateLogs({ job: id, epoch, current: answer.currentEpoch, outcome: one.step })
        )
      } else if (!answer.repeated) {
        written.push(one)
      }
    }
    yield* counts(written)
    yield* Meters.add("stale_writes", stale)
    return answers
  })

  const shared = yield* Batches.make({
    call: (items: ReadonlyArray<Settlement>) => Effect.mapError(write(items), () => store503),
    itemsMax: outcomesMax,
    weightMax: bytesMax,
    weigh,
    nameOf: ({ claim }) => claim.id,
    waitingMax: 1_000,
    heldMax,
    full: () => new RemoteUnavailable({ reason: "full" })
  })

  const known = ({ claim }: RemoteOutcome): Terms | null => {
    const job = grants.get(claim.lease)?.jobs.get(claim.id)
    return job !== undefined && job.epoch === claim.epoch ? job.terms : null
  }

  /** What the jobs of failures are bound to. */
  const termsOf = Effect.fnUntraced(function*(failed: ReadonlyArray<RemoteOutcome>) {
    const terms = new Map<JobId, Terms>()
    const unknown = new Set<JobId>()
    for (const one of failed) {
      const found = known(one)
      if (found === null) {
        unknown.add(one.claim.id)
      } else {
        terms.set(one.claim.id, found)
      }
    }
    const ids = Array.from(unknown)
    for (let at = 0; at < ids.length; at += readMax) {
      for (const { attempts, backoff, id, maxAttempts } of yield* store.get(ids.slice(at, at + readMax))) {
        terms.set(id, { attempts, maxAttempts, backoff })
      }
    }
    return terms
  })

  const settleNow = Effect.fnUntraced(function*(outcomes: ReadonlyArray<RemoteOutcome>) {
    const untilMs = now() + lockedMs
    const terms = yield* Effect.mapError(
      termsOf(outcomes.filter(({ outcome }) => outcome._tag === "Failed")),
      () => store503
    )
    const settlements = yield* Effect.forEach(
      outcomes,
      ({ claim, outcome }) =>
        Effect.map(Random.next, (draw) => settlement(claim, terms.get(claim.id) ?? nobody, outcome, draw))
    )
    const fates = new Map<Settlement, Settled>()
    for (const round of roundsOf(settlements)) {
      const answers = yield* shared(round)
      round.forEach((one, index) => fates.set(one, answers[index] ?? { _tag: "Undecided" }))
    }
    const open = () => settlements.filter((one) => fates.get(one)?._tag === "Undecided")
    for (let locked = open(); locked.length > 0 && now() < untilMs; locked = open()) {
      yield* Effect.sleep(lockedPauseMs)
      for (const one of locked) {
        const [answer] = now() < untilMs ? yield* Effect.orElseSucceed(write([one]), () => []) : []
        if (answer !== undefined) {
          fates.set(one, answer)
        }
      }
    }
    const ids = (tag: Settled["_tag"]) =>
      settlements.flatMap((one) => fates.get(one)?._tag === tag ? [one.claim.id] : [])
    return { settled: ids("Settled"), stale: ids("Stale"), undecided: ids("Undecided") } satisfies RemoteSettled
  })

  return {
    settle: (outcomes) => Deadline.within(settleNow(outcomes), deadlineMs, () => store503)
  }
})
