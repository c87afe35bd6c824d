/**
 * `LeaseRegister` in a map of its own, beside the record: for tests and simulation.
 *
 * It behaves like a register that may be lost, so that the marking before a
 * reclaim is exercised without a server. An entry that is not renewed stays for
 * a few lengths of its lease: long enough to be watched, and then it is gone.
 */
import { Clock, Effect, Layer } from "effect"
import type { LeaseId } from "../../domain/Claim.ts"
import { LeaseRegister, type Renewal } from "../../ports/LeaseRegister.ts"

interface Entry {
  token: number
  leaseMs: number
  lapsed: boolean
  flagged: boolean
  goneAtMs: number
}

/** In lengths of the lease: a reaper watches for one length and a bit. */
const keptLengths = 4

/** Fewer than this many entries are not worth a walk. */
const sweepAt = 1_000

const make = Effect.sync(() => {
  const entries = new Map<LeaseId, Entry>()
  let incarnation = 0
  let tokens = 0
  let sweepSize = sweepAt

  const nowMs = Effect.map(Clock.monotonicTimeNanos, (nanos) => Number(nanos / 1_000_000n))

  const find = (lease: LeaseId, now: number): Entry | undefined => {
    const entry = entries.get(lease)
    if (entry !== undefined && entry.goneAtMs <= now) {
      entries.delete(lease)
      return undefined
    }
    return entry
  }

  const sweep = (now: number) => {
    if (entries.size < sweepSize) {
      return
    }
    for (const [lease, entry] of entries) {
      if (entry.goneAtMs <= now) {
        entries.delete(lease)
      }
    }
    sweepSize = Math.max(sweepAt, entries.size * 2)
  }

  const hold: LeaseRegister["Service"]["hold"] = (leases) =>
    Effect.map(nowMs, (now) => {
      sweep(now)
      for (const { lease, leaseMs } of leases) {
        tokens += 1
        entries.set(lease, {
          token: tokens,
          leaseMs,
          lapsed: false,
          flagged: find(lease, now)?.flagged ?? false,
          goneAtMs: now + keptLengths * leaseMs
        })
      }
    })

  const renew: LeaseRegister["Service"]["renew"] = (leases) =>
    Effect.map(nowMs, (now) =>
      leases.map(({ lease, leaseMs }): Renewal => {
        const entry = find(lease, now)
        if (entry === undefined || entry.lapsed) {
          return "lost"
        }
        tokens += 1
        entry.token = tokens
        entry.goneAtMs = now + keptLengths * leaseMs
        const answer = entry.flagged ? "check" : "held"
        entry.flagged = false
        return answer
      }))

  const release: LeaseRegister["Service"]["release"] = (leases) =>
    Effect.sync(() => {
      for (const lease of leases) {
        entries.delete(lease)
      }
    })

  const look: LeaseRegister["Service"]["look"] = (leases) =>
    Effect.map(nowMs, (now) => ({
      incarnation: String(incarnation),
      tokens: new Map(leases.flatMap((lease) => {
        const entry = find(lease, now)
        return entry === undefined ? [] : [[lease, String(entry.token)] as const]
      }))
    }))

  // Marking again under the same token succeeds: the reaper that marked first may have died before the deed.
  const markLapsed: LeaseRegister["Service"]["markLapsed"] = (lease, token) =>
    Effect.map(nowMs, (now) => {
      const entry = find(lease, now)
      if (entry === undefined) {
        return token === null
      }
      if (String(entry.token) !== token) {
        return false
      }
      entry.lapsed = true
      return true
    })

  const flag: LeaseRegister["Service"]["flag"] = (leases) =>
    Effect.map(nowMs, (now) => {
      for (const lease of leases) {
        const entry = find(lease, now)
        if (entry !== undefined) {
          entry.flagged = true
        }
      }
    })

  /** What a restart from nothing does. */
  const forget = Effect.sync(() => {
    entries.clear()
    incarnation += 1
  })

  return { service: LeaseRegister.of({ isRecord: false, hold, renew, release, look, markLapsed, flag }), forget }
})

/** One register, and the way to lose everything in it. */
export const makeForgetful = make

export const layer: Layer.Layer<LeaseRegister> = Layer.effect(LeaseRegister, Effect.map(make, ({ service }) => service))
