import { assert, describe, it } from "@effect/vitest"
import type { EffectRow, JobHistory, JobRow, Line, Transition } from "../../../src/programs/chaos/Evidence.ts"
import { breachesOf, type Law, type Scene } from "../../../src/programs/chaos/Laws.ts"

const scene: Scene = { leaseMs: 1_000, lossesMax: 3, renewals: new Map(), effectType: "side-effect" }

const row: JobRow = {
  id: "job",
  type: "side-effect",
  key: "k",
  state: 3,
  reason: null,
  attempts: 0,
  maxAttempts: 10,
  epoch: 1,
  deliveries: 1,
  losses: 0,
  lossesCounted: 0,
  stale: 0,
  staleEpochs: []
}

let seq = 0
const change = (
  atMs: number,
  from: Transition["from"],
  to: Transition["to"],
  epoch: number,
  lease: string | null,
  more: Partial<Transition> = {}
): Transition => ({
  job: "job",
  seq: seq++,
  atMs,
  from,
  to,
  epochBefore: from === null ? null : to === 1 ? epoch - 1 : epoch,
  epoch,
  leaseBefore: from === 1 ? `L${epoch}` : null,
  lease,
  worker: "w",
  attempts: 0,
  losses: 0,
  stale: 0,
  ...more
})

const line = (atMs: number, kind: Line["kind"], epoch: number, what: Line["what"] = null, pid = epoch): Line => ({
  kind,
  job: "job",
  epoch,
  lease: `L${epoch}`,
  pid,
  worker: `w${pid}`,
  wallMs: atMs,
  monoMs: atMs,
  what
})

const effect = (epoch: number, seenEpoch = epoch): EffectRow => ({
  job: "job",
  epoch,
  atMs: 0,
  seenEpoch,
  seenState: 1
})

/** One run, one effect, completed. */
const plain: JobHistory = {
  row,
  transitions: [change(0, null, 0, 0, null), change(10, 0, 1, 1, "L1"), change(50, 1, 3, 1, "L1")],
  lines: [
    line(11, "start", 1),
    line(20, "ask", 1),
    line(25, "effect", 1, "fired"),
    line(40, "end", 1, "ok")
  ],
  effects: [effect(1)]
}

/** Its worker froze; another one ran it again, and the effect was there already. */
const rescued: JobHistory = {
  row: { ...row, epoch: 2, deliveries: 2, losses: 1, stale: 1, staleEpochs: [1] },
  transitions: [
    change(0, null, 0, 0, null),
    change(10, 0, 1, 1, "L1"),
    change(1_300, 1, 0, 1, null, { losses: 1 }),
    change(1_500, 0, 1, 2, "L2"),
    change(1_900, 1, 3, 2, "L2"),
    change(2_500, 3, 3, 2, "L2", { epochBefore: 2, leaseBefore: "L2", stale: 1 })
  ],
  lines: [
    line(11, "start", 1),
    line(20, "ask", 1),
    line(25, "effect", 1, "fired"),
    line(1_501, "start", 2),
    line(1_600, "ask", 2),
    line(1_601, "effect", 2, "already"),
    line(1_800, "end", 2, "ok"),
    line(2_400, "end", 1, "interrupted")
  ],
  effects: [effect(1)]
}

const broken = (history: JobHistory, given: Scene = scene): ReadonlyArray<Law> =>
  breachesOf(history, given).map(({ law }) => law)

const withRow = (history: JobHistory, more: Partial<JobRow>): JobHistory => ({
  ...history,
  row: { ...history.row, ...more }
})

describe("a job", () => {
  it("breaks no law by an ordinary life, nor by a rescue", () => {
    assert.deepStrictEqual(breachesOf(plain, scene), [])
    assert.deepStrictEqual(breachesOf(rescued, scene), [])
  })

  it("must not be outstanding", () => {
    const history: JobHistory = { ...plain, row: { ...row, state: 1 }, transitions: plain.transitions.slice(0, 2) }
    assert.includeMembers([...broken(history)], ["no job is outstanding", "every job completed"])
  })

  it("must have had its side effect, once", () => {
    assert.deepStrictEqual(broken({ ...plain, effects: [] }), ["every side effect fired"])
    assert.deepStrictEqual(broken({ ...plain, effects: [effect(1), effect(1)] }), ["no side effect fired twice"])
  })

  it("must not have been seen to fire twice, whatever the store says", () => {
    const lines = [...plain.lines, line(26, "effect", 1, "fired")]
    assert.deepStrictEqual(broken({ ...plain, lines }), ["no side effect fired twice"])
  })

  it("must not take an effect of a claim that had ended", () => {
    assert.deepStrictEqual(broken({ ...rescued, effects: [effect(1, 2)] }), [
      "no side effect was taken from a claim that was not current"
    ])
    const lines = [...rescued.lines, line(2_300, "ask", 1), line(2_301, "effect", 1, "already")]
    assert.deepStrictEqual(broken({ ...rescued, lines }), [
      "no side effect was taken from a claim that was not current"
    ])
  })

  it("must not leave a final state", () => {
    const transitions = [...plain.transitions, change(60, 3, 0, 1, "L1", { leaseBefore: "L1" })]
    assert.include(broken({ ...plain, transitions }), "every history of states is legal")
  })

  it("must not change without a trace", () => {
    const transitions = plain.transitions.filter((_, index) => index !== 1)
    assert.include(broken({ ...plain, transitions }), "every history of states is legal")
  })

  it("must have an epoch for each claim", () => {
    const [first, , last] = plain.transitions
    const transitions = [first!, change(10, 0, 1, 1, "L1", { epochBefore: 1 }), last!]
    assert.include(broken({ ...plain, transitions }), "epochs grow by one with each claim")
    assert.include(broken(withRow(plain, { deliveries: 2 })), "epochs grow by one with each claim")
  })

  it("must not be run by two under one epoch", () => {
    const lines = [...plain.lines, line(12, "start", 1, null, 9)]
    assert.deepStrictEqual(broken({ ...plain, lines }), ["no two claims were current at once"])
  })

  it("must not be run under a claim that was never given", () => {
    const lines = [...plain.lines, line(12, "start", 7)]
    assert.deepStrictEqual(broken({ ...plain, lines }), ["no two claims were current at once"])
  })

  it("must not be settled while the handler of its claim runs", () => {
    // What the frozen one said was taken for the second claim, whose handler was still at work.
    const transitions = rescued.transitions.map((one) => one.to === 3 && one.from === 1 ? { ...one, atMs: 1_650 } : one)
    assert.deepStrictEqual(broken({ ...rescued, transitions }), ["no write of a stale claim was taken"])
  })

  it("must not be completed when its handler failed", () => {
    const lines = plain.lines.map((one) => one.kind === "end" ? { ...one, what: "failed" as const } : one)
    assert.deepStrictEqual(broken({ ...plain, lines }), ["no write of a stale claim was taken"])
  })

  it("may be handed back unstarted, but not while it runs", () => {
    const transitions = [
      ...plain.transitions.slice(0, 2),
      change(15, 1, 0, 1, "L1"),
      change(20, 0, 1, 2, "L2", { leaseBefore: "L1" }),
      change(90, 1, 3, 2, "L2")
    ]
    const second = [line(21, "start", 2), line(30, "ask", 2), line(31, "effect", 2, "fired"), line(80, "end", 2, "ok")]
    const history = withRow({ ...plain, transitions, lines: second, effects: [effect(2)] }, { epoch: 2, deliveries: 2 })
    assert.deepStrictEqual(broken(history), [])
    assert.deepStrictEqual(broken({ ...history, lines: [line(11, "start", 1), ...second] }), [
      "no write of a stale claim was taken"
    ])
  })

  it("must not be taken from who had renewed", () => {
    assert.deepStrictEqual(broken(rescued, { ...scene, renewals: new Map([["L1", [200, 900]]]) }), [
      "nobody was reclaimed who had renewed within the lease"
    ])
    assert.deepStrictEqual(broken(rescued, { ...scene, renewals: new Map([["L1", [200]]]) }), [])
  })

  it("must have as many attempts as failures, and losses as reclaims", () => {
    assert.deepStrictEqual(broken(withRow(plain, { attempts: 1 })), ["attempts are the failures that were recorded"])
    assert.deepStrictEqual(broken(withRow(rescued, { losses: 2 })), ["losses are the reclaims that were made"])
  })

  it("must not be dead for nothing", () => {
    const transitions = [...plain.transitions.slice(0, 2), change(50, 1, 4, 1, null)]
    const history = withRow({ ...plain, transitions }, { state: 4, reason: "crash_loop", losses: 1, lossesCounted: 1 })
    assert.include(broken(history), "dead only where failures or faults explain it")
  })
})
