/**
 * What a run does and when, all of it drawn from one seed before it starts.
 *
 * The plan says when a fault happens and how long it lasts; whom it hits among those alive then is a fraction that the
 * siege applies to them. Faults of one target never overlap: a broker that is frozen is not killed as well.
 */
import * as Draws from "./Draws.ts"

export type Profile = "postgres" | "scale"

export const workerFaults = ["kill", "freeze", "clock"] as const
export const serviceFaults = [
  "server-kill",
  "postgres-restart",
  "postgres-freeze",
  "redis-restart",
  "redis-freeze",
  "redis-flush",
  "kafka-restart",
  "kafka-freeze",
  "kafka-wipe"
] as const
export const networkFaults = ["cut", "half-open"] as const

export const faultKinds = [...workerFaults, ...serviceFaults, ...networkFaults] as const
export type FaultKind = (typeof faultKinds)[number]

/** How often a minute each of them happens unless `--faults` says otherwise. `kill` has options of its own. */
export const perMinute: Readonly<Record<Exclude<FaultKind, "kill">, number>> = {
  "freeze": 3,
  "clock": 0.5,
  "server-kill": 0.5,
  "postgres-restart": 0.5,
  "postgres-freeze": 0.4,
  "redis-restart": 0.4,
  "redis-freeze": 0.4,
  "redis-flush": 0.4,
  "kafka-restart": 0.25,
  "kafka-freeze": 0.3,
  "kafka-wipe": 0.2,
  "cut": 0.6,
  "half-open": 0.4
}

export const inProfile = (kind: FaultKind, profile: Profile): boolean =>
  profile === "scale" || !/^(redis|kafka)-/.test(kind)

export interface Wish {
  readonly kind: FaultKind
  /** How often a minute; `null` for what is usual. */
  readonly perMinute: number | null
}

const groups: Readonly<Record<string, ReadonlyArray<FaultKind>>> = {
  all: faultKinds,
  workers: workerFaults,
  services: serviceFaults,
  network: networkFaults,
  none: []
}

const isFault = (text: string): text is FaultKind => (faultKinds as ReadonlyArray<string>).includes(text)

/** `kill,freeze=6,services`; what is wrong with it, as a text, where it is. */
export const parseFaults = (text: string): ReadonlyArray<Wish> | string => {
  const wishes = new Map<FaultKind, number | null>()
  for (const part of text.split(",").map((part) => part.trim()).filter((part) => part !== "")) {
    const [name = "", rate] = part.split("=")
    const given = rate === undefined ? null : Number(rate)
    if (given !== null && !(given > 0 && given <= 600)) {
      return `"${part}": a fault happens more than 0 and at most 600 times a minute`
    }
    const kinds = groups[name] ?? (isFault(name) ? [name] : null)
    if (kinds === null) {
      return `"${name}" is not a fault: choose from ${faultKinds.join(", ")}, or ${Object.keys(groups).join(", ")}`
    }
    if (given !== null && name === "kill") {
      return `"${part}": how often workers are killed is said with --kill-rate and --kill-interval-sec`
    }
    for (const kind of kinds) {
      wishes.set(kind, given)
    }
  }
  return [...wishes].map(([kind, given]) => ({ kind, perMinute: given }))
}

export interface Order {
  readonly jobs: number
  readonly workers: number
  readonly threads: number
  /** Each worker's chance to be killed at each interval. */
  readonly killRate: number
  readonly killIntervalMs: number
  readonly timeoutMs: number
  readonly leaseMs: number
  readonly profile: Profile
  readonly faults: ReadonlyArray<Wish>
  readonly seed: string
}

export interface Fault {
  readonly n: number
  readonly kind: FaultKind
  /** Since the first submit. */
  readonly atMs: number
  readonly lengthMs: number
  /** In [0, 1): whom it hits. */
  readonly draw: number
}

export type JobKind = "side-effect" | "sleep" | "flaky"

export interface PlannedJob {
  readonly n: number
  readonly atMs: number
  readonly type: JobKind
  readonly payload: unknown
}

export interface Plan {
  readonly order: Order
  /** From the first submit to the last. */
  readonly spanMs: number
  readonly faults: ReadonlyArray<Fault>
  /** What a side-effect job works on top of its effect, on average. */
  readonly workMs: number
}

/** So many jobs a second are submitted at most: two cores also have to start a worker every few seconds. */
const paceMax = 130
/** Jobs that must have been inside a handler when their worker was killed, or the run proves nothing. */
export const hitMin = 200
/** Slots that work, on average: so that a replacement finds one free at once. */
const busyShare = 0.4
const sleepMaxMs = 3_000
const workMaxMs = 2_500
export const flakyPercent = 30

const shares: ReadonlyArray<readonly [type: JobKind, share: number]> = [["side-effect", 0.8], ["sleep", 0.15], [
  "flaky",
  0.05
]]

const has = (order: Order, kind: FaultKind) => order.faults.some((wish) => wish.kind === kind)

/** Nothing is hurt before there is something to hurt. */
const quietMs = 1_500

const killTimes = (order: Order, spanMs: number, draw: Draws.Draw): ReadonlyArray<number> => {
  const found: Array<number> = []
  for (let tick = order.killIntervalMs; tick < spanMs; tick += order.killIntervalMs) {
    for (let worker = 0; worker < order.workers; worker++) {
      if (draw() < order.killRate) {
        found.push(tick - draw() * order.killIntervalMs)
      }
    }
  }
  return found
}

const drawOf = (order: Order, kind: FaultKind) => Draws.make(order.seed, `fault/${kind}`)

/** How long it takes until enough kills have been drawn, whatever luck the seed has; at most `longestMs`. */
const killsWithin = (order: Order, longestMs: number): number => {
  const enough = Math.ceil(hitMin * 1.4 / Math.max(1, order.threads * busyShare))
  for (let hurtMs = order.killIntervalMs + 1; hurtMs < longestMs - quietMs; hurtMs += order.killIntervalMs) {
    if (killTimes(order, hurtMs, drawOf(order, "kill")).length >= enough) {
      return quietMs + hurtMs
    }
  }
  return longestMs
}

/** Long enough for the jobs, and for enough kills; short enough for the drain to fit in as well. */
const spanOf = (order: Order): number => {
  const longestMs = order.timeoutMs * 0.7
  const jobsMs = order.jobs / paceMax * 1_000
  const killsMs = has(order, "kill") && order.killRate > 0 ? killsWithin(order, longestMs) : 0
  return Math.round(Math.min(longestMs, Math.max(20_000, 6 * order.leaseMs, jobsMs, killsMs)))
}

const lengthOf = (kind: FaultKind, order: Order, draw: Draws.Draw): number => {
  switch (kind) {
    case "freeze":
      // Longer than it takes until its jobs are taken away; sometimes short enough that they are not done again yet.
      return Draws.between(draw, 1.3, 2) * order.leaseMs + 900
    case "server-kill":
    case "postgres-restart":
    case "redis-restart":
    case "kafka-restart":
    case "kafka-wipe":
      return Draws.between(draw, 200, 2_500)
    case "postgres-freeze":
    case "redis-freeze":
    case "kafka-freeze":
      return Draws.between(draw, 0.4, 1.6) * order.leaseMs
    case "half-open":
      return Draws.between(draw, 0.5, 1.5) * order.leaseMs
    case "kill":
    case "clock":
    case "cut":
    case "redis-flush":
      return 0
  }
}

const targetOf = (kind: FaultKind): string => kind === "half-open" || kind === "cut" ? "network" : kind.split("-")[0]!

/** Every so often, with as much chance as regularity. */
const times = (rate: number, spanMs: number, draw: Draws.Draw): ReadonlyArray<number> => {
  const gapMs = 60_000 / rate
  const found: Array<number> = []
  for (let at = gapMs * draw(); at < spanMs; at += gapMs * Draws.between(draw, 0.5, 1.5)) {
    found.push(at)
  }
  return found
}

const faultsOf = (order: Order, spanMs: number): ReadonlyArray<Fault> => {
  const drawn = order.faults.flatMap(({ kind, perMinute: wished }) => {
    const draw = drawOf(order, kind)
    const hurtMs = spanMs - quietMs
    const at = kind === "kill" ? killTimes(order, hurtMs, draw) : times(wished ?? perMinute[kind], hurtMs, draw)
    return inProfile(kind, order.profile)
      ? at.map((atMs) => ({ kind, atMs: quietMs + atMs, lengthMs: lengthOf(kind, order, draw), draw: draw() }))
      : []
  }).sort((one, other) => one.atMs - other.atMs)
  const free = new Map<string, number>()
  return drawn.flatMap(({ atMs, draw, kind, lengthMs }, n): ReadonlyArray<Fault> => {
    const target = targetOf(kind)
    const single = kind !== "kill" && kind !== "freeze" && kind !== "clock"
    // What was hurt gets a lease and a bit to be well again.
    const begin = single ? Math.max(atMs, free.get(target) ?? 0) : atMs
    free.set(target, begin + lengthMs + 2 * order.leaseMs + 3_000)
    return begin < spanMs ? [{ n, kind, atMs: Math.round(begin), lengthMs: Math.round(lengthMs), draw }] : []
  }).sort((one, other) => one.atMs - other.atMs)
}

const workOf = (order: Order, spanMs: number): number => {
  const perMs = order.jobs / spanMs
  const busy = order.workers * order.threads * busyShare
  const sleeping = perMs * 0.15 * sleepMaxMs / 2
  return Math.min(workMaxMs, Math.max(10, (busy - sleeping) / (0.8 * perMs)))
}

export const make = (order: Order): Plan => {
  const spanMs = spanOf(order)
  return { order, spanMs, faults: faultsOf(order, spanMs), workMs: Math.round(workOf(order, spanMs)) }
}

/** The jobs in the order of their submits. */
export function* jobs({ order, spanMs, workMs }: Plan): Generator<PlannedJob> {
  const draw = Draws.make(order.seed, "jobs")
  for (let n = 0; n < order.jobs; n++) {
    const kind = draw()
    const first = draw()
    const second = draw()
    let below = 0
    const type = shares.find(([, share]) => kind < (below += share))?.[0] ?? "side-effect"
    const totalMs = first * 2 * workMs
    const payload = type === "sleep"
      ? Math.floor(first * sleepMaxMs)
      : type === "flaky"
      ? flakyPercent
      // The effect somewhere in the middle: a kill may come before it, or after it and before the settlement.
      : { n, before_ms: Math.round(totalMs * second), after_ms: Math.round(totalMs * (1 - second)) }
    yield { n, atMs: Math.floor(n / order.jobs * spanMs), type, payload }
  }
}

export const keyOf = (order: Order, n: number): string => `chaos-${order.seed}-${n}`
