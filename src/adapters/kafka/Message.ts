/**
 * The message on `jobs.ready`: a format version and the id of one job, as text: `1:019b…`.
 *
 * One id each, because a message is what an offset can acknowledge. Never a payload: the store has it, and has it right.
 */
import type { JobId } from "../../domain/JobId.ts"
import type { DeadLetter } from "../../ports/JobStore.ts"

const version = 1

const pattern = /^1:([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})$/
const length = 38

export const encode = (id: JobId): string => `${version}:${id}`

/** The id, or `null` where this process cannot read the message. */
export const decode = (value: Buffer | null): JobId | null => {
  // Most of what is not ours is told by its length, and a blob is not made a string for that.
  const [, id] = value?.length === length ? pattern.exec(value.toString("latin1")) ?? [] : []
  return id === undefined ? null : id as JobId
}

/** The message on `jobs.dead`. */
export const encodeDead = ({ attempts, diedAtMs, id, queue, reason, type }: DeadLetter): string =>
  JSON.stringify({ id, type, queue, reason, attempts, died_at_ms: diedAtMs })
