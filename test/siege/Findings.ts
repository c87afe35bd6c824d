/** What a siege comes to: laws that held or not, figures, and the work that it judges by. */
import { Effect, Random } from "effect"
import type * as Arena from "./Arena.ts"

export interface Report {
  readonly findings: ReadonlyArray<Arena.Finding>
  readonly figures: Readonly<Record<string, unknown>>
}

export const quantile = (values: ReadonlyArray<number>, q: number): number | null => {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))] ?? null
}

/** What is shown of many figures. */
export const spread = (values: ReadonlyArray<number>) => ({
  p50: quantile(values, 0.5),
  p99: quantile(values, 0.99),
  max: quantile(values, 1)
})

export const law = (name: string, held: boolean, detail: string): Arena.Finding => ({ law: name, held, detail })

/** Jobs that did not end as they should have: completed, with no attempt charged. */
export const allClean = (arena: Arena.Arena) =>
  Effect.map(
    arena.rows<{ id: string; state: number; attempts: number }>(
      `SELECT id::text, state, attempts FROM deadman.job WHERE state <> 3 OR attempts <> 0`
    ),
    (off) => law("every job completed, attempts untouched", off.length === 0, JSON.stringify(off.slice(0, 3)))
  )

/** Jobs that sleep for a while, and every fourth with a side effect. */
export const sleepers = (jobs: number, sleepMaxMs: number) =>
  Effect.forEach(Array.from({ length: jobs }), (_, n) =>
    n % 4 === 3
      ? Effect.succeed<object>({ type: "side-effect", payload: { n } })
      : Effect.map(Random.nextIntBetween(0, sleepMaxMs), (payload): object => ({ type: "sleep", payload })))
