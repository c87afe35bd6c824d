/**
 * How a reaper becomes certain that a lease has lapsed.
 *
 * Certain means: it has watched, on its own monotonic clock, without a gap
 * longer than a heartbeat (or half a second, for very short leases) and in one incarnation of what it watches, for one
 * whole length of the lease plus one heartbeat, and saw no renewal. The extra
 * heartbeat lets the worker's own deadline come first. Not knowing is not a
 * lapse: whatever breaks the watch begins it anew.
 *
 * While the register does not answer, the row in Postgres is watched instead,
 * for two lengths, since it is renewed only once per length. Where the register
 * is the row itself there is one thing to watch.
 *
 * A watch is plain data and `observe` a total function of what was seen, so that
 * freezes, gaps and returns are tests with numbers in them.
 */
import type { LeaseId } from "./Claim.ts"

/** A worker renews every fifth of the lease. */
export const heartbeatMs = (leaseMs: number): number => Math.max(1, Math.floor(leaseMs / 5))

/** The longest time between two looks that still counts as watching. Half a second is what a busy machine may take. */
export const gapMaxMs = (leaseMs: number): number => Math.max(500, heartbeatMs(leaseMs))

/** One lease as the record in Postgres has it. */
export interface RecordedLease {
  readonly lease: LeaseId
  readonly leaseMs: number
  /** Moves with each renewal or check that reached the row. */
  readonly token: string
}

/** One look at everything: the rows, and what the register says of them. */
export interface Look {
  /** Monotonic, in ms, taken **before** the look was sent. */
  readonly sentMs: number
  /** Monotonic, in ms, when the answers were there. */
  readonly atMs: number
  readonly rowIncarnation: string
  readonly rows: ReadonlyArray<RecordedLease>
  /** `null` while the register does not answer; `"row"` where the register is the row. */
  readonly register: "row" | null | {
    readonly incarnation: string
    /** Absent leases have no entry: that is no renewal, and no lapse by itself either. */
    readonly tokens: ReadonlyMap<LeaseId, string>
  }
}

interface Watched {
  /** When the first look of this watch was answered: a renewal before that is not known to be older. */
  readonly sinceMs: number
  readonly rowToken: string
  readonly registerToken: string | null
}

/** What a reaper remembers between two looks. */
export interface Watch {
  readonly lastMs: number | null
  readonly rowIncarnation: string | null
  readonly registerIncarnation: string | null
  readonly leases: ReadonlyMap<LeaseId, Watched>
}

export const empty: Watch = { lastMs: null, rowIncarnation: null, registerIncarnation: null, leases: new Map() }

/** A lease that may be taken, with the tokens that were watched: the deed compares them. */
export interface Lapsed {
  readonly lease: LeaseId
  readonly rowToken: string
  /** The register's token to mark, or `null` where there is nothing to mark first. */
  readonly registerToken: string | null
  readonly markFirst: boolean
}

/** What `look` adds to `watch`: the next watch, and the leases that have certainly lapsed. */
export const observe = (
  watch: Watch,
  look: Look
): { readonly watch: Watch; readonly lapsed: ReadonlyArray<Lapsed> } => {
  const register = look.register === "row" ? null : look.register
  const own = register !== null
  const registerIncarnation = register?.incarnation ?? null
  // A register that answers again, or for the first time, may have forgotten renewals meanwhile; one that answers no
  // more leaves the rows to be watched from here on.
  const rowsBroken = watch.rowIncarnation !== look.rowIncarnation
  const registerBroken = watch.registerIncarnation !== registerIncarnation
  const leases = new Map<LeaseId, Watched>()
  const lapsed: Array<Lapsed> = []
  for (const row of look.rows) {
    const registerToken = register?.tokens.get(row.lease) ?? null
    const before = watch.leases.get(row.lease)
    // The gap is measured from answer to answer: a look that was long under way is no better than one that came late.
    const gap = watch.lastMs === null || look.atMs - watch.lastMs > gapMaxMs(row.leaseMs)
    const begun: Watched = { sinceMs: look.atMs, rowToken: row.token, registerToken }
    if (
      before === undefined || gap || rowsBroken || registerBroken || before.rowToken !== row.token ||
      before.registerToken !== registerToken
    ) {
      leases.set(row.lease, begun)
      continue
    }
    const lengths = look.register === null ? 2 : 1
    if (look.sentMs - before.sinceMs >= lengths * row.leaseMs + heartbeatMs(row.leaseMs)) {
      lapsed.push({ lease: row.lease, rowToken: row.token, registerToken, markFirst: own })
    }
    leases.set(row.lease, before)
  }
  return {
    watch: { lastMs: look.atMs, rowIncarnation: look.rowIncarnation, registerIncarnation, leases },
    lapsed
  }
}
