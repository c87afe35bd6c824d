/**
 * Whether nothing comes to a worker and it would hear of it at once: then it looks around less often.
 *
 * It is calm when wakes are known to arrive, and for a while none did and nothing was found.
 */

/** By then whatever a claim had to pass over is claimed or free again, since no statement of another's takes so long. */
const afterMs = 10_000

export interface Calm {
  readonly holds: () => boolean
  /** Somebody said that there is work, or some was found. */
  readonly stir: () => void
}

export const make = (options: {
  /** Whether wakes arrive at present, as far as is known. */
  readonly hinted: () => boolean
  /** It is told when what held has ended. */
  readonly ended: () => void
  readonly now: () => number
}): Calm => {
  let stirredMs = options.now()
  return {
    holds: () => options.hinted() && options.now() - stirredMs >= afterMs,
    stir: () => {
      const wasMs = stirredMs
      stirredMs = options.now()
      if (stirredMs - wasMs >= afterMs) {
        options.ended()
      }
    }
  }
}
