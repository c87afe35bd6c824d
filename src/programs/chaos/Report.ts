/** What a run has to say for itself: the same figures for a terminal, for a program and for a browser. */
import { Schema } from "effect"
import type { Deed } from "./Evidence.ts"
import { loadJudged, type Times, type Verdict } from "./Judge.ts"
import type { Order, Plan } from "./Plan.ts"
import type { Outcome, Status } from "./Siege.ts"

/** A law was broken, or the run was too easy to show that none would be. */
export class ChaosFailed extends Schema.TaggedError<ChaosFailed>()("ChaosFailed", { message: Schema.String }) {}

export interface About {
  readonly version: string
  readonly node: string
  readonly postgres: string
  readonly machine: string
  readonly date: string
}

export interface Report {
  readonly about: About
  readonly replay: string
  readonly verdict: "held" | "broken" | "proved nothing"
  readonly plan: Order & { readonly spanMs: number; readonly workMs: number }
  readonly tookMs: number
  readonly drained: boolean
  readonly deserters: ReadonlyArray<string>
  readonly loadMax: number
  readonly judgement: Verdict
  readonly deeds: ReadonlyArray<Deed>
}

export const replayOf = (
  { faults, jobs, killIntervalMs, killRate, leaseMs, profile, seed, threads, timeoutMs, workers }: Order
): string =>
  `node dist/chaos.js --seed ${seed} --profile ${profile} --jobs ${jobs} --workers ${workers} ` +
  `--threads-per-worker ${threads} --kill-rate ${killRate} --kill-interval-sec ${killIntervalMs / 1_000} ` +
  `--lease-ms ${leaseMs} --timeout-sec ${timeoutMs / 1_000} --faults ` +
  (faults.map(({ kind, perMinute }) => perMinute === null ? kind : `${kind}=${perMinute}`).join(",") || "none")

export const make = (about: About, plan: Plan, outcome: Outcome, judgement: Verdict): Report => ({
  about,
  replay: replayOf(plan.order),
  verdict: !judgement.held || !outcome.drained || outcome.deserters.length > 0
    ? "broken"
    : judgement.provedNothing.length > 0
    ? "proved nothing"
    : "held",
  plan: { ...plan.order, spanMs: plan.spanMs, workMs: plan.workMs },
  tookMs: outcome.endMs - outcome.startMs,
  drained: outcome.drained,
  deserters: outcome.deserters,
  loadMax: Math.round(outcome.loadMax * 10) / 10,
  judgement,
  deeds: outcome.deeds
})

export const secondsOf = (ms: number | null): string => ms === null ? "-" : `${(ms / 1_000).toFixed(1)} s`

const timesText = ({ bound, max, n, p50, p99 }: Times): string =>
  n === 0
    ? "none"
    : `p50 ${secondsOf(p50)}, p99 ${secondsOf(p99)}, max ${secondsOf(max)}, of ${n}; p99 may be ${secondsOf(bound)}`

/** How often each fault happened. */
export const deedCounts = (deeds: ReadonlyArray<Deed>): ReadonlyArray<readonly [kind: string, n: number]> => {
  const counts = new Map<string, number>()
  for (const { kind, skipped } of deeds) {
    if (skipped === null) {
      counts.set(kind, (counts.get(kind) ?? 0) + 1)
    }
  }
  return [...counts]
}

/** Name and value of each figure, in the order in which a person asks for them. */
export const figuresOf = (
  { deeds, judgement: { figures: f }, plan, tookMs }: Report
): ReadonlyArray<readonly [string, string]> => [
  ["jobs", `${f.jobs}, ${f.completed} completed, ${f.dead} dead, in ${secondsOf(tookMs)}`],
  ["faults", deedCounts(deeds).map(([kind, n]) => `${n} ${kind}`).join(", ") || "none"],
  ["in a handler when hit", `${f.killedInHandler} by kills, ${f.frozenInHandler} by freezes`],
  ["handler runs", `${f.handlerRuns}`],
  [
    "duplicate runs absorbed",
    `${f.duplicateRuns}, of ${f.duplicated} jobs`
  ],
  ["side effects", `${f.effects}, ${f.effectsAbsorbed} repeats absorbed, ${f.refusedEffects} refused as stale`],
  ["reclaims", `${f.reclaims}, and ${f.handedBack} claims handed back`],
  ["stale writes refused", `${f.staleWrites + f.refusedEffects}`],
  ["frozen workers refused", `${f.frozenWorkersRefused} of ${f.frozenWorkersInHandler} that were rescued from`],
  ...(plan.profile === "scale"
    ? [
      [
        "offsets judged",
        `${f.offsets.counted} of ${f.offsets.messages}, ${f.offsets.passedWhileRunning} passed a job that ran; ${f.offsets.passedUnclaimed} an unclaimed one`
      ] as const
    ]
    : []),
  ["failed attempts", `${f.failures}`],
  ["hit to rescue", timesText(f.rescue)],
  ["with a service hurt", timesText(f.rescueInOutage)],
  ["hit to reclaim", timesText(f.noticed)],
  ["free slots or not", timesText(f.rescueByTheClock)]
]

/** For the terminal. */
export const textOf = (report: Report): string => {
  const { deserters, drained, judgement, replay, verdict } = report
  const lines = [""]
  for (const { broken, held, jobs, law } of judgement.checks) {
    lines.push(`${held ? "  held " : "BROKEN "} ${law}${held ? "" : `: ${broken}`}`)
    for (const { detail, id } of held ? [] : jobs) {
      lines.push(`          ${id === "" ? "" : `${id}: `}${detail}`)
    }
  }
  lines.push("")
  for (const [name, value] of figuresOf(report)) {
    lines.push(`  ${name.padEnd(26)}${value}`)
  }
  lines.push("")
  if (!drained) {
    lines.push("BROKEN  the run did not drain in its time")
  }
  if (deserters.length > 0) {
    lines.push(`BROKEN  ended although nobody had ended them: ${deserters.join(", ")}`)
  }
  const late = [judgement.figures.rescue, judgement.figures.rescueInOutage].some(({ bound, p99 }) => (p99 ?? 0) > bound)
  if (late && report.loadMax > loadJudged) {
    lines.push(
      `NOT JUDGED  rescues were late, but each core had up to ${report.loadMax} processes that wanted to run: ` +
        "choose a quieter machine, or fewer workers"
    )
  }
  for (const reason of judgement.provedNothing) {
    lines.push(`PROVED NOTHING  ${reason}`)
  }
  lines.push(
    verdict === "held"
      ? `Every check held. Seed ${report.plan.seed}.`
      : `${verdict === "broken" ? "A guarantee was broken" : "The run proved nothing"}. To replay it: ${replay}`
  )
  return lines.join("\n")
}

export const messageOf = ({ plan, verdict }: Report): string =>
  verdict === "broken"
    ? `the guarantee did not hold with seed ${plan.seed}; the broken checks and their jobs are named above`
    : `the run with seed ${plan.seed} proved nothing; choose more jobs, kills or time`

/** One line for each look, or the whole state on one line of a terminal. */
export const statusText = ({ done, faults, kills, leftMs, phase, running, submitted, total }: Status): string =>
  phase === "start"
    ? "starting services, servers and workers"
    : `${submitted} of ${total} submitted, ${running} running, ${done} done, ${kills} kills, ${faults} faults in all, ` +
      (phase === "siege" ? `${secondsOf(leftMs)} of the siege left` : `draining, ${secondsOf(leftMs)} at most`)
