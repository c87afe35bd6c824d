/**
 * How often requests go out that carry little.
 *
 * A request that carries a full load is free; one that carries less costs that much of a token. So one job alone
 * travels at once, and under load requests wait for company instead of growing in number.
 */
export interface Pace {
  /** How long to wait after a request that carried `load`. */
  readonly spend: (nowMs: number, load: number) => number
}

export const make = (options: {
  readonly perSecond: number
  readonly burst: number
  /** A load that costs nothing. */
  readonly full: number
}): Pace => {
  let tokens = options.burst
  let lastMs = Number.NEGATIVE_INFINITY
  return {
    spend: (nowMs, load) => {
      const earned = Math.max(0, nowMs - lastMs) / 1_000 * options.perSecond
      tokens = Math.min(options.burst, tokens + earned) - Math.max(0, 1 - load / options.full)
      lastMs = nowMs
      return tokens >= 0 ? 0 : -tokens / options.perSecond * 1_000
    }
  }
}
