/**
 * How long to wait after a request before the next one, so that under load requests grow in size and not in number.
 *
 * A wait as long as the load is large makes what comes meanwhile travel together. Below a thousand ids a second the
 * waits shrink to nothing, since each finds fewer ids than the one before; above it they grow to their bound.
 */

const gapMaxMs = 30

/** `full`: so many ids are company enough. */
export const gapMs = (load: number, full: number): number => load >= full ? 0 : Math.min(gapMaxMs, load)
