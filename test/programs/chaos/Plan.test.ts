import { assert, describe, it } from "@effect/vitest"
import * as Plan from "../../../src/programs/chaos/Plan.ts"

const order = (options: Partial<Plan.Order> = {}): Plan.Order => ({
  jobs: 2_000,
  workers: 4,
  threads: 24,
  killRate: 0.2,
  killIntervalMs: 2_000,
  timeoutMs: 600_000,
  leaseMs: 2_000,
  profile: "scale",
  faults: [{ kind: "kill", perMinute: null }, { kind: "freeze", perMinute: null }],
  seed: "a",
  ...options
})

const all = Plan.faultKinds.map((kind) => ({ kind, perMinute: null }))

describe("the plan", () => {
  it("is the same for the same seed, and another for another", () => {
    const one = Plan.make(order({ faults: all }))
    assert.deepStrictEqual(Plan.make(order({ faults: all })), one)
    assert.deepStrictEqual([...Plan.jobs(one)], [...Plan.jobs(Plan.make(order({ faults: all })))])
    assert.notDeepEqual(Plan.make(order({ faults: all, seed: "b" })).faults, one.faults)
  })

  it("draws no other jobs where there are other faults", () => {
    const kinds = (faults: Plan.Order["faults"]) =>
      Array.from(Plan.jobs(Plan.make(order({ faults }))), ({ type }) => type)
    assert.deepStrictEqual(kinds(all), kinds([]))
  })

  it("has four side effects in five, and some sleeps and failures", () => {
    const jobs = [...Plan.jobs(Plan.make(order({ jobs: 20_000 })))]
    const share = (type: Plan.JobKind) => jobs.filter((job) => job.type === type).length / jobs.length
    assert.approximately(share("side-effect"), 0.8, 0.01)
    assert.approximately(share("sleep"), 0.15, 0.01)
    assert.approximately(share("flaky"), 0.05, 0.01)
    for (const { payload } of jobs.filter(({ type }) => type === "sleep")) {
      assert.isTrue(Number(payload) >= 0 && Number(payload) <= 3_000)
    }
  })

  it("lasts long enough to hit enough jobs, and short enough to drain", () => {
    for (const jobs of [300, 2_000, 100_000]) {
      const { faults, spanMs } = Plan.make(order({ jobs }))
      const kills = faults.filter(({ kind }) => kind === "kill").length
      assert.isAtLeast(kills * 24 * 0.4, Plan.hitMin, `${jobs} jobs`)
      assert.isAtMost(spanMs, 600_000 * 0.7)
    }
  })

  it("has enough kills whatever the seed", () => {
    const small = { jobs: 2_000, threads: 64, killIntervalMs: 2_500, leaseMs: 2_000, timeoutMs: 150_000 }
    for (let n = 0; n < 300; n++) {
      const { faults, spanMs } = Plan.make(order({ ...small, seed: `seed-${n}` }))
      const kills = faults.filter(({ kind }) => kind === "kill").length
      assert.isAtLeast(kills * 64 * 0.4, 1.4 * Plan.hitMin, `seed-${n}`)
      assert.isAtMost(spanMs, 150_000 * 0.7)
    }
  })

  it("takes less than a quarter of an hour to submit 100,000 jobs, with 70 kills and 20 freezes and more", () => {
    const { faults, spanMs } = Plan.make(
      order({ jobs: 100_000, threads: 16, killRate: 0.25, killIntervalMs: 5_000, leaseMs: 5_000, timeoutMs: 1_800_000 })
    )
    assert.isAtMost(spanMs, 15 * 60_000)
    assert.isAtLeast(faults.filter(({ kind }) => kind === "kill").length, 70)
    assert.isAtLeast(faults.filter(({ kind }) => kind === "freeze").length, 20)
  })

  it("lets a service recover before it hurts it again", () => {
    const { faults } = Plan.make(order({ jobs: 20_000, faults: all }))
    for (const target of ["postgres", "redis", "kafka", "server"]) {
      const of = faults.filter(({ kind }) => kind.startsWith(`${target}-`))
      assert.isAbove(of.length, 0)
      for (const [index, fault] of of.entries()) {
        const next = of[index + 1]
        if (next !== undefined) {
          assert.isAtLeast(next.atMs - fault.atMs - fault.lengthMs, 3_000)
        }
      }
    }
  })

  it("leaves out what the profile does not have", () => {
    const kinds = Plan.make(order({ jobs: 100_000, profile: "postgres", faults: all })).faults.map(({ kind }) => kind)
    assert.isEmpty(kinds.filter((kind) => /^(redis|kafka)/.test(kind)))
  })

  it("says what is wrong with a list of faults", () => {
    assert.deepStrictEqual(Plan.parseFaults("kill, freeze=6"), [
      { kind: "kill", perMinute: null },
      { kind: "freeze", perMinute: 6 }
    ])
    assert.deepStrictEqual(Plan.parseFaults("none"), [])
    assert.strictEqual(Plan.parseFaults("all").length, Plan.faultKinds.length)
    for (const wrong of ["kil", "freeze=0", "freeze=x", "kill=3"]) {
      assert.include(String(Plan.parseFaults(wrong)), wrong.split("=")[0] ?? "")
    }
  })
})
