/**
 * Whether a worker has nothing to do and would hear of it at once if it had: then it looks around less often.
 *
 * It is calm when wakes are known to arrive, and for a while none did and nothing was found.
 */
import * as Signal from "./Signal.ts"

/**
 * By then whatever a claim had to pass over is claimed or free again, since no statement of another's takes so long.
 */
const afterMs = 10_000

export interface Calm {
  readonly holds: () => boolean
  /** Somebody said that there is work, or some was found. */
  readonly stir: () => void
  /** It is over. For one waiter. */
  readonly ended: Signal.Signal
}

export const make = (options: {
  /** Whether wakes arrive at present, as far as is known. */
  readonly hinted: () => boolean
  readonly now: () => number
}): Calm => {
  const ended = Signal.make()
  let stirredMs = options.now()
  const holds = () => options.hinted() && options.now() - stirredMs >= afterMs
  return {
    holds,
    stir: () => {
      const over = holds()
      stirredMs = options.now()
      if (over) {
        ended.notify()
      }
    },
    ended
  }
}
