/**
 * What must hold for one job, whatever was done to whom: its row, its transitions, its effects and what the workers
 * wrote down are compared with each other and with the table of states.
 *
 * A settlement looks the same in the store whoever wrote it, so the store alone cannot say that a stale one was taken.
 * The workers' lines can: what is settled as completed under a claim must have ended well, before, under that claim.
 */
import { edges, jobStates } from "../../domain/JobState.ts"
import type { JobHistory, Line, Renewals, StateCode, Transition } from "./Evidence.ts"

export const laws = [
  "every accepted job is there",
  "no job is outstanding",
  "every job completed",
  "every side effect fired",
  "no side effect fired twice",
  "no side effect was taken from a claim that was not current",
  "every history of states is legal",
  "epochs grow by one with each claim",
  "no two claims were current at once",
  "no write of a stale claim was taken",
  "nobody was reclaimed who had renewed within the lease",
  "attempts are the failures that were recorded",
  "losses are the reclaims that were made",
  "dead only where failures or faults explain it",
  "one key is one job",
  "no id was published before its job was stored",
  "offsets are committed after execution",
  "what was running on a killed or frozen worker runs elsewhere in time"
] as const
export type Law = (typeof laws)[number]

export interface Breach {
  readonly law: Law
  readonly job: string | null
  readonly detail: string
}

/** Those that only Kafka can break. */
export const lawsOfScale: ReadonlyArray<Law> = [
  "no id was published before its job was stored",
  "offsets are committed after execution"
]

const running = 1
const completed = 3
const dead = 4

const nameOf = (code: StateCode | null) => code === null ? "nothing" : jobStates[code] ?? String(code)

/** Only a write was refused and counted. */
export const isNote = (change: Transition): boolean =>
  change.from === change.to && change.epoch === change.epochBefore && change.lease === change.leaseBefore

export const isClaim = (change: Transition): boolean => change.to === running && change.from !== running

/** The lease was taken away: by a reaper, or by a cancel. */
export const isLoss = (change: Transition): boolean => change.from === running && change.lease === null

/** A worker's own write under the claim that was current. */
export const isSettlement = (change: Transition): boolean =>
  change.from === running && change.to !== running && change.to !== null && change.lease !== null

const isFailure = (change: Transition): boolean =>
  isSettlement(change) && (change.to === 2 || (change.to === dead && change.attempts > 0))

const say = (change: Transition) =>
  `${nameOf(change.from)} to ${nameOf(change.to)} at ${change.atMs}, epoch ${change.epochBefore} to ${change.epoch}`

/** The clocks of Postgres and of the workers are one machine's, read in different ways. */
const clocksMs = 100

const endsOf = (lines: ReadonlyArray<Line>, change: Transition) =>
  lines.filter(({ epoch, kind, lease }) => kind === "end" && epoch === change.epoch && lease === change.lease)

const taken = ({ lines }: JobHistory, change: Transition): string | null => {
  const ends = endsOf(lines, change)
  const started = lines.some(({ epoch, kind, lease }) =>
    kind === "start" && epoch === change.epoch && lease === change.lease
  )
  const wanted = change.to === completed ? "ok" : change.to === 2 || change.to === dead ? "failed" : null
  // Handed back without having been started, or once its handler had ended somehow.
  if (wanted === null && !started) {
    return null
  }
  const end = ends.find(({ wallMs, what }) => wallMs <= change.atMs + clocksMs && (wanted === null || what === wanted))
  return end !== undefined
    ? null
    : `${say(change)}, but ${
      ends.length > 0
        ? `its handler ended ${ends.map(({ wallMs, what }) => `${what} at ${Math.round(wallMs)}`).join(", ")}`
        : started
        ? "its handler had not ended"
        : "its handler was never started"
    }`
}

/** A side effect that was asked for when its claim had ended, and was not refused. */
const unfenced = ({ lines, transitions }: JobHistory): string | null => {
  for (const [index, ask] of lines.entries()) {
    if (ask.kind !== "ask") continue
    const answer = lines.slice(index).find((line) =>
      line.kind === "effect" && line.epoch === ask.epoch && line.pid === ask.pid
    )
    const ended = transitions.find((change) =>
      change.from === running && change.to !== running && change.leaseBefore === ask.lease
    )
    const answered = answer?.what === "fired" || answer?.what === "already"
    if (answered && ended !== undefined && ended.atMs + clocksMs < ask.wallMs) {
      return `epoch ${ask.epoch}, which had ended at ${ended.atMs}, asked at ${Math.round(ask.wallMs)} and was told ` +
        `"${answer.what}"`
    }
  }
  return null
}

/** A renewal this much younger than a lease before the deed is what a late look can still explain. */
const renewedWithin = 0.95

export interface Scene {
  readonly leaseMs: number
  readonly lossesMax: number
  readonly renewals: Renewals
  readonly effectType: string
}

const early = (change: Transition, claimedAt: number | undefined, { leaseMs, renewals }: Scene): string | null => {
  const renewed = (renewals.get(change.leaseBefore ?? "") ?? []).filter((at) => at <= change.atMs)
  const last = Math.max(claimedAt ?? 0, ...renewed)
  return change.atMs - last >= leaseMs * renewedWithin
    ? null
    : `reclaimed at ${change.atMs} although its lease was renewed ${change.atMs - last} ms before, of ${leaseMs}`
}

/** What one job broke. */
export const breachesOf = (history: JobHistory, scene: Scene): ReadonlyArray<Breach> => {
  const { effects, lines, row, transitions } = history
  const found: Array<Breach> = []
  const broke = (law: Law, detail: string) => {
    found.push({ law, job: row.id, detail })
  }

  if (row.state < completed) {
    broke("no job is outstanding", `it is ${nameOf(row.state)}`)
  }
  if (row.state !== completed) {
    broke("every job completed", `it is ${nameOf(row.state)}${row.reason === null ? "" : `, ${row.reason}`}`)
  }

  let claims = 0
  let failures = 0
  let losses = 0
  let claimedAt: number | undefined
  let state: StateCode | null = null
  for (const change of transitions) {
    if (isNote(change)) {
      continue
    }
    if (change.from !== state) {
      broke("every history of states is legal", `${say(change)}, after it had become ${nameOf(state)}`)
    }
    state = change.to
    const legal = change.from === null
      ? change.to === 0
      : change.to !== null && change.from !== change.to &&
        edges[jobStates[change.from]!].includes(jobStates[change.to]!)
    if (!legal) {
      broke("every history of states is legal", say(change))
    }
    if (isClaim(change)) {
      claims += 1
      claimedAt = change.atMs
      if (change.epoch !== (change.epochBefore ?? 0) + 1) {
        broke("epochs grow by one with each claim", say(change))
      }
      if (change.lease === null || change.lease === change.leaseBefore) {
        broke("no two claims were current at once", `${say(change)}, without a lease of its own`)
      }
    } else if (change.from !== null && change.epoch !== change.epochBefore) {
      broke("epochs grow by one with each claim", `${say(change)}, which is no claim`)
    }
    if (isFailure(change)) {
      failures += 1
    }
    if (isSettlement(change)) {
      const fault = change.lease === change.leaseBefore
        ? taken(history, change)
        : `${say(change)}, under a lease that was not the current one`
      if (fault !== null) {
        broke("no write of a stale claim was taken", fault)
      }
    }
    if (isLoss(change) && row.reason !== "cancelled") {
      losses += 1
      const fault = early(change, claimedAt, scene)
      if (fault !== null) {
        broke("nobody was reclaimed who had renewed within the lease", fault)
      }
    }
  }
  if (state !== row.state) {
    broke("every history of states is legal", `it is ${nameOf(row.state)}, but had become ${nameOf(state)}`)
  }
  if (claims !== row.epoch || claims !== row.deliveries) {
    broke(
      "epochs grow by one with each claim",
      `${claims} claims, but epoch ${row.epoch} and ${row.deliveries} deliveries`
    )
  }
  if (failures !== row.attempts) {
    broke("attempts are the failures that were recorded", `${failures} failures, but ${row.attempts} attempts`)
  }
  if (losses !== row.losses) {
    broke("losses are the reclaims that were made", `${losses} reclaims, but ${row.losses} losses`)
  }

  const starts = lines.filter(({ kind }) => kind === "start")
  const runs = new Map<number, Line>()
  for (const start of starts) {
    const other = runs.get(start.epoch)
    if (other !== undefined) {
      broke(
        "no two claims were current at once",
        `epoch ${start.epoch} was run by ${other.worker} (${other.pid}) and by ${start.worker} (${start.pid})`
      )
    }
    runs.set(start.epoch, start)
    if (
      !transitions.some((change) => isClaim(change) && change.epoch === start.epoch && change.lease === start.lease)
    ) {
      broke("no two claims were current at once", `epoch ${start.epoch} was run under a claim that was never given`)
    }
  }

  if (row.type === scene.effectType) {
    const fired = lines.filter(({ kind, what }) => kind === "effect" && what === "fired").length
    if (row.state === completed && effects.length === 0) {
      broke("every side effect fired", fired > 0 ? "it fired, and its row is gone" : "it completed without it")
    }
    if (effects.length > 1 || fired > 1) {
      broke("no side effect fired twice", `${effects.length} rows, and workers saw it fire ${fired} times`)
    }
    const late = unfenced(history)
    if (late !== null) {
      broke("no side effect was taken from a claim that was not current", late)
    }
    for (const effect of effects) {
      if (effect.seenEpoch !== effect.epoch || effect.seenState !== running) {
        broke(
          "no side effect was taken from a claim that was not current",
          `epoch ${effect.epoch}, while the job was ${nameOf(effect.seenState)} at epoch ${effect.seenEpoch}`
        )
      }
    }
  }

  if (row.state === dead) {
    const explained = row.reason === "attempts_exhausted"
      ? row.attempts >= row.maxAttempts && failures >= row.maxAttempts
      : row.reason === "crash_loop" && row.lossesCounted >= scene.lossesMax && losses >= scene.lossesMax
    if (!explained) {
      broke("dead only where failures or faults explain it", `${row.reason}: ${failures} failures, ${losses} losses`)
    }
  }
  return found
}
