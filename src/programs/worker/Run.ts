/**
 * One run of one handler: from its call to what it means for the job.
 *
 * A plain function costs no fiber, an Effect one. Whatever a handler returns,
 * throws or does to the values it hands out, this never throws.
 */
import { Cause, type Context, Effect, Exit, type Fiber } from "effect"
import type { Claim } from "../../domain/Claim.ts"
import { type ClaimedJob, effectKey } from "../../domain/Job.ts"
import type { Failure, Outcome } from "../../domain/Outcome.ts"
import * as Sanitise from "../../domain/Sanitise.ts"
import { asAgain, type Handler, type HandlerContext, isRejection } from "./HandlerApi.ts"
import type { Notes } from "./Notes.ts"

/** `null`: record nothing, the claim is known not to be current. */
export type Ending = Outcome | null

const toResult = (value: unknown): string | null => value === undefined ? null : Sanitise.result(value)

/** What a run may be interrupted with. Made on first use: most handlers never look at their signal. */
export class RunContext implements HandlerContext {
  readonly claim: Claim
  readonly inPostgres: boolean
  readonly #attempt: number
  readonly #notes: Notes
  #controller: AbortController | undefined = undefined

  constructor(claim: Claim, attempt: number, notes: Notes, inPostgres: boolean) {
    this.claim = claim
    this.inPostgres = inPostgres
    this.#attempt = attempt
    this.#notes = notes
  }

  // Getters rather than methods: a handler takes them out by destructuring, and most take none.
  get progress(): HandlerContext["progress"] {
    return (value) => this.#notes.progress(this.claim, this.#attempt, value)
  }

  get log(): HandlerContext["log"] {
    return (line) => this.#notes.log(this.claim, this.#attempt, line)
  }

  get toResult(): HandlerContext["toResult"] {
    return toResult
  }

  get signal(): AbortSignal {
    this.#controller ??= new AbortController()
    return this.#controller.signal
  }

  abort(reason: string): void {
    this.#controller ??= new AbortController()
    this.#controller.abort(new Error(reason))
  }
}

const failed = (failure: Failure): Outcome => ({ _tag: "Failed", failure })

export const timedOut = (timeoutMs: number): Outcome =>
  failed({ name: "Timeout", message: `The run did not end within its ${timeoutMs} ms.` })

/** What the fence in the database raises where a claim is not current, whichever client a handler has met it with. */
const fencedState = "DM001"

/** Depth of causes to look at: the driver's error lies below those of what stands around it. */
const causesMax = 4

const isClaimNotCurrent = (error: unknown): boolean => {
  let at = error
  for (let depth = 0; depth < causesMax && typeof at === "object" && at !== null; depth++) {
    const { _tag, cause, code, reason } = at as Partial<Record<"_tag" | "cause" | "code" | "reason", unknown>>
    if (_tag === "ClaimNotCurrent" || code === fencedState) {
      return true
    }
    at = cause ?? reason
  }
  return false
}

/** What a thrown value means. Looking at it may throw as well: then it is just a failure. */
const endingOfError = (error: unknown): Ending => {
  try {
    const again = asAgain(error)
    if (again !== null) {
      return { _tag: "Again", delayMs: again.delayMs }
    }
    if (isRejection(error)) {
      return { _tag: "Rejected", failure: Sanitise.failure(error) }
    }
    if (isClaimNotCurrent(error)) {
      return null
    }
  } catch {
    // Told below, as far as it can be told.
  }
  return failed(Sanitise.failure(error))
}

const endingOfValue = (value: unknown): Ending => {
  try {
    const again = asAgain(value)
    if (again !== null) {
      return { _tag: "Again", delayMs: again.delayMs }
    }
  } catch (error) {
    // A mark with an impossible delay, or a value that does not let itself be looked at: the first is the handler's
    // mistake, the second only strange. Sanitise has an answer for both.
    return error instanceof RangeError ? failed(Sanitise.failure(error)) : completed(value)
  }
  return completed(value)
}

const completed = (value: unknown): Outcome => ({
  _tag: "Completed",
  result: toResult(value)
})

/** Whatever is in the way of telling how a run ended, it has ended: left untold, its job would be held for ever. */
const told = (ending: () => Ending) => (): Ending => {
  try {
    return ending()
  } catch (error) {
    return failed(Sanitise.failure(error))
  }
}

const endingOfCause = (cause: Cause.Cause<unknown>): Ending =>
  Cause.hasInterruptsOnly(cause)
    ? failed({ name: "Interrupted", message: "The handler interrupted itself." })
    : endingOfError(Cause.squash(cause))

const isPromiseLike = (value: unknown): value is PromiseLike<unknown> =>
  typeof value === "object" && value !== null && typeof (value as { then?: unknown }).then === "function"

export interface Starter {
  /**
   * Calls the handler. `end` is called once, possibly before this returns, and
   * with what was thrown, if anything was. The answer interrupts a run that
   * goes on, and is `null` if it has ended.
   */
  readonly start: (
    handler: Handler,
    claim: Claim,
    job: ClaimedJob,
    end: End
  ) => ((reason: string) => void) | null
}

type End = (ending: () => Ending, thrown?: unknown) => void

export const starter = (
  worker: string,
  context: Context.Context<never>,
  notes: Notes,
  inPostgres = true
): Starter => {
  const runFork = Effect.runForkWith(context)

  const follow = (
    effect: Effect.Effect<unknown, unknown>,
    job: ClaimedJob,
    run: RunContext,
    end: End
  ) => {
    const fiber: Fiber.Fiber<unknown, unknown> = runFork(
      Effect.annotateLogs(effect, { job: job.id, type: job.type, delivery: job.deliveries })
    )
    const over = fiber.pollUnsafe() !== undefined
    fiber.addObserver((exit) => {
      if (Exit.isSuccess(exit)) {
        end(() => endingOfValue(exit.value))
      } else {
        end(() => endingOfCause(exit.cause), Cause.squash(exit.cause))
      }
    })
    return over ? null : (reason: string) => {
      run.abort(reason)
      fiber.interruptUnsafe()
    }
  }

  return {
    start: (handler, claim, job, ended) => {
      const end: End = (ending, thrown) => ended(told(ending), thrown)
      const run = new RunContext(claim, job.attempts + 1, notes, inPostgres)
      try {
        const value = handler({
          id: job.id,
          type: job.type,
          payload: job.payload,
          attempt: job.attempts + 1,
          delivery: job.deliveries,
          key: effectKey(job),
          worker
        }, run)
        if (typeof value !== "object" || value === null) {
          end(() => endingOfValue(value))
          return null
        }
        if (Effect.isEffect(value)) {
          return follow(value as Effect.Effect<unknown, unknown>, job, run, end)
        }
        if (isPromiseLike(value)) {
          // Through a promise of our own: a foreign `then` may call back twice, or throw.
          Promise.resolve(value).then(
            (settled) => end(() => endingOfValue(settled)),
            (error: unknown) => end(() => endingOfError(error), error)
          )
          return (reason) => run.abort(reason)
        }
        end(() => endingOfValue(value))
        return null
      } catch (error) {
        end(() => endingOfError(error), error)
        return null
      }
    }
  }
}
