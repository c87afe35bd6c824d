/**
 * Draws the ids of jobs: in the order in which they were drawn, and never twice.
 *
 * Twelve bits behind the time count within a millisecond, so that one process lists its jobs in the order in which it
 * took them in; 62 bits stay random (the invariant asks for 48). Random bytes are fetched for many ids at once.
 */
import { Clock, Effect } from "effect"
import * as JobId from "../../domain/JobId.ts"

const idsPerFetch = 256
const bytesPerId = 10

export type JobIds = () => JobId.JobId

export const make: Effect.Effect<JobIds> = Clock.clockWith((clock) =>
  Effect.sync(() => {
    const pool = new Uint8Array(idsPerFetch * bytesPerId)
    let used = idsPerFetch
    let lastMs = 0
    let sequence = 0
    return () => {
      if (used === idsPerFetch) {
        crypto.getRandomValues(pool)
        used = 0
      }
      const random = pool.subarray(used * bytesPerId, (used + 1) * bytesPerId)
      used += 1
      const now = clock.currentTimeMillisUnsafe()
      if (now > lastMs) {
        lastMs = now
        sequence = 0
      } else if (sequence < 4_095) {
        sequence += 1
      } else {
        // Ahead of the clock for a moment, or while it runs backwards: order is all that the time is for.
        lastMs += 1
        sequence = 0
      }
      random[0] = (random[0]! & 0xf0) | (sequence >> 8)
      random[1] = sequence & 0xff
      return JobId.make(lastMs, random)
    }
  })
)
