/**
 * The message on `jobs.ready`: a format version and the ids of one job or of several, as text: `1:019b…`, `2:019b…,019b…`.
 *
 * Never a payload: the store has it, and has it right. What is acknowledged is a message, so it is not done before the
 * last of its jobs is. To write, keep and read one costs everybody more than the id in it does: where many ids travel
 * together some share a message, and few go one by one, to be spread over the workers.
 */
import type { JobId } from "../../domain/JobId.ts"
import type { DeadLetter } from "../../ports/JobStore.ts"

/** Ids of one message. */
export const idsMax = 64
/** Some for each partition: as long as there are not so many messages, each has one id. */
const messagesMin = 24

const id = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
const pattern = new RegExp(`^(?:1:(${id})|2:(${id}(?:,${id})+))$`)
/** Of one id, and of each further one with its comma. */
const length = 38
const furtherLength = 37
/** Whoever wrote more than this is not one of us. */
const readMax = 1_000

export const encode = (ids: readonly [JobId, ...ReadonlyArray<JobId>]): string =>
  ids.length === 1 ? `1:${ids[0]}` : `2:${ids.join(",")}`

/** Ids as messages, in their order. */
export const pack = (ids: ReadonlyArray<JobId>): ReadonlyArray<string> => {
  const each = Math.min(idsMax, Math.max(1, Math.floor(ids.length / messagesMin)))
  const messages: Array<string> = []
  for (let from = 0; from < ids.length; from += each) {
    const [first, ...further] = ids.slice(from, from + each)
    if (first !== undefined) {
      messages.push(encode([first, ...further]))
    }
  }
  return messages
}

/** The ids, or `null` where this process cannot read the message. */
export const decode = (value: Buffer | null): ReadonlyArray<JobId> | null => {
  const further = ((value?.length ?? 0) - length) / furtherLength
  // Most of what is not ours is told by its length, and a blob is not made a string for that.
  if (value === null || further < 0 || further >= readMax || !Number.isInteger(further)) {
    return null
  }
  const [, one, several] = pattern.exec(value.toString("latin1")) ?? []
  return one !== undefined ? [one as JobId] : several !== undefined ? several.split(",") as Array<JobId> : null
}

/** The message on `jobs.dead`. */
export const encodeDead = ({ attempts, diedAtMs, id, queue, reason, type }: DeadLetter): string =>
  JSON.stringify({ id, type, queue, reason, attempts, died_at_ms: diedAtMs })
