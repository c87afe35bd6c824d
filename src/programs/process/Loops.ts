/**
 * Whether each background loop makes progress.
 *
 * Readiness asks for progress, not for connectivity: a loop that is alive but
 * deaf beats no more, and after its limit the process says so. A loop beats
 * after each round that did what it is for, also when there was nothing to do.
 */
import { Clock, Context, Effect, Layer } from "effect"

export interface LoopStatus {
  readonly name: string
  /** `null` before the first round. */
  readonly lastOkMsAgo: number | null
  readonly ok: boolean
}

export interface Loop {
  /** A round went well. */
  readonly beat: Effect.Effect<void>
}

export class Loops extends Context.Service<Loops, {
  /** Announces a loop that must beat at least every `limitMs`. */
  readonly register: (name: string, limitMs: number) => Effect.Effect<Loop>
  readonly status: Effect.Effect<ReadonlyArray<LoopStatus>>
  /** Says a reason for which the process is not ready, until it is cleared. */
  readonly setReason: (name: string, reason: string | null) => Effect.Effect<void>
  readonly reasons: Effect.Effect<ReadonlyArray<string>>
  /** Says what is slower than it should be, until it is cleared. The process is ready all the same. */
  readonly setDegraded: (name: string, reason: string | null) => Effect.Effect<void>
  readonly degraded: Effect.Effect<ReadonlyArray<string>>
  /** Names a service that is shown beside the store; without it everything goes on, only slower. */
  readonly addService: (name: string, isUp: Effect.Effect<boolean>) => Effect.Effect<void>
  readonly services: Effect.Effect<Readonly<Record<string, "up" | "away">>>
}>()("deadman/programs/process/Loops") {}

interface Entry {
  readonly limitMs: number
  readonly sinceNanos: bigint
  lastNanos: bigint | null
}

const make = Effect.sync(() => {
  const loops = new Map<string, Entry>()
  const reasons = new Map<string, string>()
  const degraded = new Map<string, string>()
  const services = new Map<string, Effect.Effect<boolean>>()
  const say = (where: Map<string, string>) => (name: string, reason: string | null) =>
    Effect.sync(() => {
      if (reason === null) {
        where.delete(name)
      } else {
        where.set(name, reason)
      }
    })
  const millis = (nanos: bigint) => Number(nanos / 1_000_000n)

  const register: Loops["Service"]["register"] = Effect.fnUntraced(function*(name, limitMs) {
    const entry: Entry = { limitMs, sinceNanos: yield* Clock.monotonicTimeNanos, lastNanos: null }
    loops.set(name, entry)
    return {
      beat: Effect.map(Clock.monotonicTimeNanos, (nanos) => {
        entry.lastNanos = nanos
      })
    }
  })

  const status = Effect.map(Clock.monotonicTimeNanos, (nanos) =>
    Array.from(loops, ([name, entry]): LoopStatus => ({
      name,
      lastOkMsAgo: entry.lastNanos === null ? null : millis(nanos - entry.lastNanos),
      ok: entry.lastNanos !== null && millis(nanos - entry.lastNanos) <= entry.limitMs
    })))

  return Loops.of({
    register,
    status,
    setReason: say(reasons),
    reasons: Effect.sync(() => Array.from(reasons.values())),
    setDegraded: say(degraded),
    degraded: Effect.sync(() => Array.from(degraded.values())),
    addService: (name, isUp) =>
      Effect.sync(() => {
        services.set(name, isUp)
      }),
    services: Effect.map(
      Effect.forEach(services, ([name, isUp]) => Effect.map(isUp, (up) => [name, up ? "up" : "away"] as const)),
      (entries) => Object.fromEntries(entries)
    )
  })
})

export const layer: Layer.Layer<Loops> = Layer.effect(Loops, make)
