/**
 * The handlers of a chaos run, loaded by its workers with `DEADMAN_HANDLERS`: the built-in ones, with a record of each
 * run, which is the second witness. It does not trust the store.
 *
 * A line is one write to a file that is only appended to, so a killed worker leaves whole lines and loses none. Its
 * times come from the machine's monotonic clock, because SIGUSR2 makes this process's wall clock wrong: that is a
 * fault, too.
 */
import { Cause, Duration, Effect, Exit } from "effect"
import { openSync, writeSync } from "node:fs"
import { ClaimNotCurrent, GuardedEffects } from "../ports/GuardedEffects.ts"
import * as BuiltIn from "./handlers/BuiltIn.ts"
import type { Handler, HandlerContext, HandlerJob } from "./worker/HandlerApi.ts"

const file = openSync(process.env["DEADMAN_CHAOS_RECORD"] ?? "/dev/null", "a")
const stepMs = Number(process.env["DEADMAN_CHAOS_CLOCK_STEP_MS"] ?? 0)
const beganMs = performance.timeOrigin

const write = (kind: string, job: string, epoch: number, lease: string, worker: string, what: string | null) => {
  const ms = performance.now()
  const mono = Number(process.hrtime.bigint()) / 1e6
  writeSync(file, `${JSON.stringify([kind, job, epoch, lease, process.pid, worker, beganMs + ms, mono, what])}\n`)
}

write("boot", "", 0, "", "", null)

/** From then on, whoever asks this process what time it is gets a wrong answer. */
const stepClock = () => {
  const wrong = () => Math.floor(beganMs + performance.now() + stepMs)
  globalThis.Date = new Proxy(globalThis.Date, {
    construct: (real, parts, target) => Reflect.construct(real, parts.length === 0 ? [wrong()] : parts, target),
    get: (real, name) => name === "now" ? wrong : Reflect.get(real, name)
  })
}

process.on("SIGUSR2", stepClock)

const endOf = (exit: Exit.Exit<unknown, unknown>): string => {
  if (Exit.isSuccess(exit)) return "ok"
  if (Cause.hasInterruptsOnly(exit.cause)) return "interrupted"
  return Cause.squash(exit.cause) instanceof ClaimNotCurrent ? "refused" : "failed"
}

const recording = (effects: GuardedEffects["Service"], { id }: HandlerJob) =>
  GuardedEffects.of({
    once: (claim, key, worker) =>
      Effect.suspend(() => {
        write("ask", id, claim.epoch, claim.lease, worker, null)
        return effects.once(claim, key, worker)
      }).pipe(
        Effect.tap((answer) => Effect.sync(() => write("effect", id, claim.epoch, claim.lease, worker, answer))),
        Effect.tapError((error) =>
          Effect.sync(() => {
            const what = error._tag === "ClaimNotCurrent" ? "refused" : "unknown"
            write("effect", id, claim.epoch, claim.lease, worker, what)
          })
        )
      )
  })

const workOf = (payload: unknown, part: "before_ms" | "after_ms") => {
  const ms = typeof payload === "object" && payload !== null && part in payload
    ? Number((payload as Record<string, unknown>)[part])
    : 0
  return ms > 0 ? Effect.sleep(Duration.millis(ms)) : Effect.void
}

const run = (type: string, job: HandlerJob, context: HandlerContext) =>
  Effect.gen(function*() {
    write("start", job.id, context.claim.epoch, context.claim.lease, job.worker, null)
    const effects = yield* GuardedEffects
    const handlers = yield* BuiltIn.make.pipe(Effect.provideService(GuardedEffects, recording(effects, job)))
    yield* workOf(job.payload, "before_ms")
    const answer = handlers[type]?.(job, context)
    const result = Effect.isEffect(answer) ? yield* answer as Effect.Effect<unknown, unknown> : answer
    yield* workOf(job.payload, "after_ms")
    return result
  }).pipe(
    Effect.onExit((exit) =>
      Effect.sync(() => write("end", job.id, context.claim.epoch, context.claim.lease, job.worker, endOf(exit)))
    )
  )

const wrapped = (type: string): Handler => (job, context) => run(type, job, context)

export const handlers: Readonly<Record<string, Handler>> = Object.fromEntries(
  ["side-effect", "sleep", "flaky"].map((type) => [type, wrapped(type)])
)
