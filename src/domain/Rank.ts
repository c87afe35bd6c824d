/**
 * The order in which ready jobs are claimed: lowest rank first.
 *
 * One number in one index. A step of priority is worth `stepMs` of waiting, so
 * the step is the ageing bound: a job is overtaken by higher priorities for at
 * most the difference times the step. A huge step is strict priority.
 */

/** One minute. A queue may have its own. */
export const stepDefaultMs = 60_000

/** About three years: strict priority for any practical backlog, and 1,000 of them stay a safe integer. */
export const stepMaxMs = 100_000_000_000

export const rank = (dueMs: number, priority: number, stepMs: number): number => dueMs - priority * stepMs
