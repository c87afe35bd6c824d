/**
 * The judgement over a run: what was broken, and whether the run was hard enough to mean anything.
 *
 * Jobs are taken one at a time, so that a run of a hundred thousand needs no more memory than its lines do.
 */
import { lossBaseMs, lossCapMs } from "../../domain/Backoff.ts"
import type { Boot, Deed, JobHistory, Line, Passed, Renewals, Transition } from "./Evidence.ts"
import { type Breach, breachesOf, isClaim, isLoss, isNote, isSettlement, type Law, laws, lawsOfScale } from "./Laws.ts"
import * as Occupancy from "./Occupancy.ts"
import * as Offsets from "./Offsets.ts"
import { hitMin, type Order } from "./Plan.ts"

/** So many jobs are named where a law is broken. */
const namedMax = 10

export interface Check {
  readonly law: Law
  readonly held: boolean
  readonly broken: number
  readonly jobs: ReadonlyArray<{ readonly id: string; readonly detail: string }>
}

export interface Times {
  readonly n: number
  readonly p50: number | null
  readonly p99: number | null
  readonly max: number | null
  /** What p99 may be. */
  readonly bound: number
}

export interface Second {
  submitted: number
  claimed: number
  completed: number
  failed: number
  lost: number
  /** In somebody's hands at its end. */
  running: number
}

export interface Verdict {
  readonly checks: ReadonlyArray<Check>
  readonly held: boolean
  /** Why the run proves nothing, where it does not. */
  readonly provedNothing: ReadonlyArray<string>
  readonly figures: {
    readonly jobs: number
    readonly completed: number
    readonly dead: number
    readonly effects: number
    readonly handlerRuns: number
    /** Runs of a handler that neither a first delivery nor a failure explains, and the jobs that had one. */
    readonly duplicateRuns: number
    readonly duplicated: number
    /** Claims that were handed back, nearly always unstarted. */
    readonly handedBack: number
    /** Deliveries that found the side effect done already, and did not do it again. */
    readonly effectsAbsorbed: number
    readonly reclaims: number
    readonly staleWrites: number
    readonly refusedEffects: number
    readonly failures: number
    readonly kills: number
    readonly freezes: number
    /** Jobs that were inside a handler when their worker was killed, or frozen. */
    readonly killedInHandler: number
    readonly frozenInHandler: number
    readonly frozenWorkersInHandler: number
    readonly frozenWorkersRefused: number
    /** Messages whose offset can be judged, and those that were passed while their job ran. */
    readonly offsets: {
      readonly messages: number
      readonly counted: number
      readonly passedWhileRunning: number
      readonly passedUnclaimed: number
    }
    /** From the kill or freeze until the job was claimed again: what of it passed while a slot was free. */
    readonly rescue: Times
    /** Those with a fault of a service in between, from when it answered again. */
    readonly rescueInOutage: Times
    /** The first part of it: until the lease was taken away. */
    readonly noticed: Times
    /** All of it, free slots or not. */
    readonly rescueByTheClock: Times
  }
  readonly timeline: { readonly startMs: number; readonly seconds: ReadonlyArray<Second> }
}

export interface Trial {
  readonly order: Order
  readonly startMs: number
  readonly lossesMax: number
  readonly deeds: ReadonlyArray<Deed>
  readonly renewals: Renewals
  readonly boots: ReadonlyArray<Boot>
  readonly loadMax: number
  /** The ids that were answered, by number of the job. */
  readonly accepted: ReadonlyMap<number, string>
  /** Keys that were answered with two ids. */
  readonly doubled: ReadonlyArray<Breach>
  /** Kafka's messages, by job. */
  readonly passed: ReadonlyMap<string, ReadonlyArray<Passed>>
}

interface Hit {
  readonly deed: Deed
  inHandler: number
  reclaimed: number
  refused: number
}

interface Rescue {
  readonly job: string
  readonly hitMs: number
  readonly lostMs: number
  readonly claimedMs: number
  /** What it waits on purpose, beyond what it waits after a first loss. */
  readonly delayMs: number
  /** When a service that was hurt in between answered again. */
  readonly answersMs: number | null
}

const quantile = (sorted: ReadonlyArray<number>, q: number): number | null =>
  sorted.length === 0 ? null : Math.round(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))]!)

const timesOf = (values: Array<number>, bound: number): Times => {
  values.sort((one, other) => one - other)
  return {
    n: values.length,
    p50: quantile(values, 0.5),
    p99: quantile(values, 0.99),
    max: quantile(values, 1),
    bound
  }
}

const hurtsService = ({ kind, skipped }: Deed): boolean =>
  skipped === null && kind !== "kill" && kind !== "freeze" && kind !== "clock" && kind !== "server-kill"

const belongsTo = (worker: string | null, deed: Deed): boolean =>
  worker !== null && deed.worker !== null && worker.startsWith(`${deed.worker}-`)

/**
 * Up to so much load for each core the machine keeps its time. Beyond, a late rescue says nothing about Deadman: it is
 * shown, and not judged.
 */
export const loadJudged = 2

const secondsMax = 100_000

export const make = (trial: Trial) => {
  const { order } = trial
  const breaches = new Map<Law, Array<Breach>>(laws.map((law) => [law, []]))
  const counts = new Map<Law, number>(laws.map((law) => [law, 0]))
  const note = (breach: Breach) => {
    counts.set(breach.law, (counts.get(breach.law) ?? 0) + 1)
    const named = breaches.get(breach.law)!
    if (named.length < namedMax) {
      named.push(breach)
    }
  }
  const hits: ReadonlyArray<Hit> = trial.deeds
    .filter(({ kind, skipped }) => skipped === null && (kind === "kill" || kind === "freeze"))
    .map((deed) => ({ deed, inHandler: 0, reclaimed: 0, refused: 0 }))
  const hitsOf = new Map<number, Array<Hit>>()
  for (const hit of hits) {
    hitsOf.set(hit.deed.pid ?? -1, [...(hitsOf.get(hit.deed.pid ?? -1) ?? []), hit])
  }
  const outages = trial.deeds.filter(hurtsService)
  const offsets = Offsets.make()
  const rescues: Array<Rescue> = []
  const runs: Array<Occupancy.Run> = []
  const seconds: Array<Second> = []
  const ids = new Set<string>()
  const idOfKey = new Map<string, string>()
  const figures = {
    jobs: 0,
    completed: 0,
    dead: 0,
    effects: 0,
    handlerRuns: 0,
    duplicateRuns: 0,
    duplicated: 0,
    handedBack: 0,
    effectsAbsorbed: 0,
    reclaims: 0,
    staleWrites: 0,
    refusedEffects: 0,
    failures: 0
  }

  const secondAt = (atMs: number): Second => {
    const index = Math.min(secondsMax, Math.max(0, Math.floor((atMs - trial.startMs) / 1_000)))
    while (seconds.length <= index) {
      seconds.push({ submitted: 0, claimed: 0, completed: 0, failed: 0, lost: 0, running: 0 })
    }
    return seconds[index]!
  }

  const count = (change: Transition) => {
    const second = secondAt(change.atMs)
    if (change.from === null) second.submitted += 1
    if (isClaim(change)) {
      second.claimed += 1
      second.running += 1
    }
    if (change.from === 1 && change.to !== 1) second.running -= 1
    if (isSettlement(change) && change.to === 3) second.completed += 1
    if (isSettlement(change) && change.to === 2) second.failed += 1
    if (isLoss(change)) second.lost += 1
  }

  /** What became of a claim that was in a handler when its worker was hit. */
  const follow = (hit: Hit, start: Line, end: Line | undefined, history: JobHistory) => {
    hit.inHandler += 1
    if (end?.what === "refused" || history.row.staleEpochs.includes(start.epoch)) {
      hit.refused += 1
    }
    const changes = history.transitions.filter((change) => !isNote(change))
    const loss = changes.findIndex((change) => isLoss(change) && change.leaseBefore === start.lease)
    if (loss === -1 || changes[loss]!.atMs < hit.deed.atMs) {
      return
    }
    hit.reclaimed += 1
    const rescue = changes.slice(loss).find(isClaim)
    if (rescue === undefined) {
      return
    }
    const between = outages.filter(({ atMs, endMs }) => atMs < rescue.atMs && endMs + 2 * order.leaseMs > hit.deed.atMs)
    rescues.push({
      job: history.row.id,
      hitMs: hit.deed.atMs,
      lostMs: changes[loss]!.atMs,
      claimedMs: rescue.atMs,
      delayMs: Math.min(lossCapMs, lossBaseMs * (2 ** (changes[loss]!.losses - 1) - 1)),
      answersMs: between.length === 0 ? null : Math.max(...between.map(({ endMs }) => endMs))
    })
  }

  const add = (history: JobHistory) => {
    const { effects, lines, row, transitions } = history
    ids.add(row.id)
    if (row.key !== null) {
      const other = idOfKey.get(row.key)
      if (other !== undefined) {
        note({ law: "one key is one job", job: row.id, detail: `its key ${row.key} is also that of ${other}` })
      }
      idOfKey.set(row.key, row.id)
    }
    for (const breach of breachesOf(history, { ...trial, leaseMs: order.leaseMs, effectType: "side-effect" })) {
      note(breach)
    }
    for (const change of transitions) {
      if (!isNote(change)) count(change)
    }
    for (const start of lines) {
      if (start.kind !== "start") continue
      figures.handlerRuns += 1
      const end = lines.find((line) => line.kind === "end" && line.epoch === start.epoch && line.pid === start.pid)
      runs.push({ pid: start.pid, fromMs: start.wallMs, toMs: end?.wallMs ?? null })
      for (const hit of hitsOf.get(start.pid) ?? []) {
        if (start.wallMs > hit.deed.atMs || !belongsTo(start.worker, hit.deed)) continue
        if (end === undefined || end.wallMs > hit.deed.atMs) follow(hit, start, end, history)
      }
    }
    offsets.add(history, trial.passed.get(row.id) ?? [])
    figures.jobs += 1
    figures.completed += row.state === 3 ? 1 : 0
    figures.dead += row.state === 4 ? 1 : 0
    figures.effects += effects.length
    const started = lines.filter(({ kind }) => kind === "start").length
    const twice = Math.max(
      0,
      started - 1 - lines.filter(({ kind, what }) => kind === "end" && what === "failed").length
    )
    figures.duplicateRuns += twice
    figures.duplicated += twice > 0 ? 1 : 0
    figures.handedBack += transitions.filter((change) => isSettlement(change) && change.to === 0).length
    figures.effectsAbsorbed += lines.filter(({ what }) => what === "already").length
    figures.reclaims += row.losses
    figures.staleWrites += row.stale
    figures.refusedEffects += lines.filter(({ kind, what }) => kind === "end" && what === "refused").length
    figures.failures += row.attempts
  }

  const finish = (): Verdict => {
    for (const [n, id] of trial.accepted) {
      if (!ids.has(id)) {
        note({ law: "every accepted job is there", job: id, detail: `job ${n} was answered 2xx, and is not there` })
      }
    }
    trial.doubled.forEach(note)
    offsets.breaches().forEach(note)
    const freeMs = Occupancy.make({ runs, boots: trial.boots, deeds: trial.deeds, threads: order.threads })
    const counted = (rescue: Rescue): number => {
      const fromMs = Math.max(rescue.hitMs, rescue.answersMs ?? 0)
      const lostMs = Math.max(fromMs, rescue.lostMs)
      return Math.max(0, lostMs - fromMs + Math.max(0, freeMs(lostMs, rescue.claimedMs) - rescue.delayMs))
    }
    const calm = rescues.filter(({ answersMs }) => answersMs === null)
    const rescue = timesOf(calm.map(counted), order.leaseMs + 2_000)
    const rescueInOutage = timesOf(
      rescues.filter(({ answersMs }) => answersMs !== null).map(counted),
      2 * order.leaseMs + 2_000
    )
    const late = (bound: number) => (one: Rescue) => counted(one) > bound
    for (
      const [{ bound, n, p99 }, of] of [
        [rescue, calm],
        [rescueInOutage, rescues.filter(({ answersMs }) => answersMs !== null)]
      ] as const
    ) {
      if (p99 === null || p99 <= bound || trial.loadMax > loadJudged) continue
      for (const one of of.filter(late(bound))) {
        note({
          law: "what was running on a killed or frozen worker runs elsewhere in time",
          job: one.job,
          detail: `hit at ${one.hitMs}, reclaimed after ${one.lostMs - one.hitMs} ms, claimed after ${
            one.claimedMs - one.hitMs
          } ms; p99 of ${n} may be ${bound}`
        })
      }
    }
    let running = 0
    for (const second of seconds) {
      running += second.running
      second.running = running
    }
    const of = (kind: Deed["kind"]) => hits.filter(({ deed }) => deed.kind === kind)
    const sum = (of: ReadonlyArray<Hit>) => of.reduce((sum, { inHandler }) => sum + inHandler, 0)
    const kills = of("kill")
    const freezes = of("freeze")
    // One that nobody was rescued from had nothing to be refused: services were away, or its jobs had just ended.
    const frozen = freezes.filter(({ inHandler, reclaimed }) => inHandler > 0 && reclaimed > 0)
    const unrefused = frozen.filter(({ refused }) => refused === 0)
    const all = {
      ...figures,
      kills: kills.length,
      freezes: freezes.length,
      killedInHandler: sum(kills),
      frozenInHandler: sum(freezes),
      frozenWorkersInHandler: frozen.length,
      frozenWorkersRefused: frozen.length - unrefused.length,
      offsets: offsets.counts(),
      rescue,
      rescueInOutage,
      noticed: timesOf(calm.map(({ hitMs, lostMs }) => lostMs - hitMs), order.leaseMs + 2_000),
      rescueByTheClock: timesOf(rescues.map(({ claimedMs, hitMs }) => claimedMs - hitMs), order.leaseMs + 2_000)
    }
    const asked = (kind: Deed["kind"]) => order.faults.some((wish) => wish.kind === kind)
    const provedNothing = [
      figures.duplicateRuns === 0 ? ["no job was run twice: no duplicate was absorbed"] : [],
      asked("kill") && all.killedInHandler < hitMin
        ? [`${all.killedInHandler} jobs were inside a handler when their worker was killed: ${hitMin} must be`]
        : [],
      asked("freeze") && frozen.length === 0
        ? ["no worker was frozen in the middle of a job that was then rescued"]
        : [],
      unrefused.length > 0
        ? [
          `${unrefused.map(({ deed }) => deed.worker).join(", ")} had been frozen in the middle of jobs and had no ` +
          "write refused"
        ]
        : [],
      figures.jobs === 0 ? ["there is no job"] : []
    ].flat()
    const checks = laws
      .filter((law) => order.profile === "scale" || !lawsOfScale.includes(law))
      .map((law): Check => ({
        law,
        held: counts.get(law) === 0,
        broken: counts.get(law) ?? 0,
        jobs: (breaches.get(law) ?? []).map(({ detail, job }) => ({ id: job ?? "", detail }))
      }))
    return {
      checks,
      held: checks.every(({ held }) => held),
      provedNothing,
      figures: all,
      timeline: { startMs: trial.startMs, seconds }
    }
  }

  return { add, finish }
}
