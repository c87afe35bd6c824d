import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { LeaseId } from "../../src/domain/Claim.ts"
import { empty, gapMaxMs, heartbeatMs, type Lapsed, type Look, observe, type Watch } from "../../src/domain/Watch.ts"

const lease = LeaseId.make("00000000-0000-4000-8000-000000000001")
const other = LeaseId.make("00000000-0000-4000-8000-000000000002")
const leaseMs = 1_000
const heartbeat = heartbeatMs(leaseMs)
const lookMs = 250

/** One look, of one lease, unless the test says otherwise. */
const look = (atMs: number, change: Partial<Look> = {}): Look => ({
  sentMs: atMs,
  atMs,
  rowIncarnation: "postgres-1",
  rows: [{ lease, leaseMs, token: "row-0" }],
  register: { incarnation: "redis-1", tokens: new Map([[lease, "0"]]) },
  ...change
})

const token = (value: string | null, incarnation = "redis-1"): Pick<Look, "register"> => ({
  register: { incarnation, tokens: value === null ? new Map() : new Map([[lease, value]]) }
})

/** For each look, the leases that it made certain of. */
const seen = (looks: ReadonlyArray<Look>): ReadonlyArray<ReadonlyArray<Lapsed>> => {
  let watch: Watch = empty
  return looks.map((look) => {
    const observed = observe(watch, look)
    watch = observed.watch
    return observed.lapsed
  })
}

/** When the lease was first found to have lapsed, by the time of that look. */
const lapsedAt = (looks: ReadonlyArray<Look>): number | null => {
  const index = seen(looks).findIndex((lapsed) => lapsed.some((lapsed) => lapsed.lease === lease))
  return looks[index]?.atMs ?? null
}

/** Looks in step, each as `change` says. */
const steady = (
  until: number,
  change: (atMs: number) => Partial<Look> = () => ({}),
  everyMs = lookMs
): ReadonlyArray<Look> =>
  Array.from({ length: Math.floor(until / everyMs) + 1 }, (_, index) => look(index * everyMs, change(index * everyMs)))

describe("Watch", () => {
  it("a lease has lapsed after one length and one heartbeat without a renewal, and not before", () => {
    assert.strictEqual(lapsedAt(steady(5_000, undefined, 10)), leaseMs + heartbeat)
    assert.strictEqual(lapsedAt(steady(5_000)), 1_250)
  })

  it("the deed compares the tokens that were watched", () => {
    const [lapsed] = seen(steady(1_250)).at(-1) ?? []
    assert.deepStrictEqual(lapsed, { lease, rowToken: "row-0", registerToken: "0", markFirst: true })
    const [byRow] = seen(steady(1_250, () => ({ register: "row" }))).at(-1) ?? []
    assert.deepStrictEqual(byRow, { lease, rowToken: "row-0", registerToken: null, markFirst: false })
    const [unknown] = seen(steady(2_250, () => ({ register: null }))).at(-1) ?? []
    assert.deepStrictEqual(unknown, { lease, rowToken: "row-0", registerToken: null, markFirst: false })
  })

  it("a lapse stays one while nothing is seen of it", () => {
    assert.deepStrictEqual(seen(steady(2_000)).map((lapsed) => lapsed.length), [0, 0, 0, 0, 0, 1, 1, 1, 1])
  })

  it("the first look proves nothing, however late it comes", () => {
    assert.isNull(lapsedAt([look(1e12)]))
    assert.isNull(lapsedAt([look(0), look(1e12)]))
  })

  it("a look counts from when it was sent, and the watch from when its first look was answered", () => {
    const late = [look(400, { sentMs: 0 }), look(800, { sentMs: 500 }), look(1_200, { sentMs: 900 })]
    assert.isNull(lapsedAt([...late, look(1_650, { sentMs: 1_599 })]))
    assert.strictEqual(lapsedAt([...late, look(1_650, { sentMs: 1_600 })]), 1_650)
  })

  it("a gap longer than may be begins the watch anew", () => {
    const gap = gapMaxMs(leaseMs)
    assert.strictEqual(lapsedAt([look(0), look(500), look(500 + gap), look(1_200)]), 1_200)
    assert.isNull(lapsedAt([look(0), look(500), look(501 + gap), look(1_200)]))
    const frozen = [...steady(1_000), ...steady(3_000).map(({ atMs }) => look(9_000 + atMs))]
    assert.strictEqual(lapsedAt(frozen), 9_000 + 1_250)
  })

  it("a look that was long under way is a gap, too", () => {
    assert.isNull(lapsedAt([look(0), look(1_500, { sentMs: 250 }), look(1_600)]))
  })

  it("a heartbeat is the longest gap for leases so long that half a second is less", () => {
    assert.strictEqual(gapMaxMs(60_000), 12_000)
    assert.strictEqual(gapMaxMs(1_000), 500)
    const rows = [{ lease, leaseMs: 60_000, token: "row-0" }]
    const looks = Array.from({ length: 8 }, (_, index) => look(index * 12_000, { rows }))
    assert.strictEqual(lapsedAt(looks), 72_000)
    assert.isNull(lapsedAt(Array.from({ length: 8 }, (_, index) => look(index * 12_001, { rows }))))
  })

  it("a renewal in between, of the register or of the row, begins the watch anew", () => {
    assert.strictEqual(lapsedAt(steady(5_000, (atMs) => token(atMs < 1_000 ? "0" : "1"))), 1_000 + 1_250)
    const rows = (atMs: number) => ({ rows: [{ lease, leaseMs, token: atMs < 1_000 ? "row-0" : "row-1" }] })
    assert.strictEqual(lapsedAt(steady(5_000, rows)), 1_000 + 1_250)
    assert.strictEqual(lapsedAt(steady(5_000, (atMs) => ({ register: "row", ...rows(atMs) }))), 1_000 + 1_250)
  })

  it("a renewal seen with the very look that would have been enough is a renewal", () => {
    assert.isNull(lapsedAt(steady(1_250, (atMs) => token(atMs < 1_250 ? "0" : "1"))))
  })

  it("a register that forgot everything makes nothing lapse by itself, and neither does its coming back", () => {
    const flushed = steady(5_000, (atMs) => token(atMs < 1_000 ? "0" : null))
    assert.strictEqual(lapsedAt(flushed), 1_000 + 1_250)
    const restored = steady(5_000, (atMs) => token(atMs < 1_000 || atMs > 2_000 ? "0" : null))
    assert.strictEqual(lapsedAt(restored), 2_250 + 1_250)
  })

  it("a lease that the register never knew lapses like any other, and has nothing there to be taken for it", () => {
    const looks = steady(1_250, () => token(null))
    assert.strictEqual(lapsedAt(looks), 1_250)
    assert.include(seen(looks).at(-1)?.[0], { registerToken: null, markFirst: true })
  })

  it("another incarnation of the rows or of the register begins the watch anew", () => {
    const restarted = (atMs: number) => ({ rowIncarnation: atMs < 1_000 ? "postgres-1" : "postgres-2" })
    assert.strictEqual(lapsedAt(steady(5_000, restarted)), 1_000 + 1_250)
    assert.strictEqual(lapsedAt(steady(5_000, (atMs) => ({ register: "row", ...restarted(atMs) }))), 1_000 + 1_250)
    assert.strictEqual(
      lapsedAt(steady(5_000, (atMs) => token("0", atMs < 1_000 ? "redis-1" : "redis-2"))),
      1_000 + 1_250
    )
  })

  it("a server that changes with every look lets nothing lapse", () => {
    assert.isNull(lapsedAt(steady(60_000, (atMs) => ({ rowIncarnation: `postgres-${atMs}` }))))
    assert.isNull(lapsedAt(steady(60_000, (atMs) => token("0", `redis-${atMs}`))))
  })

  it("while the register does not answer the row is watched, for two lengths", () => {
    assert.strictEqual(lapsedAt(steady(9_000, () => ({ register: null }), 10)), 2 * leaseMs + heartbeat)
    const away = steady(9_000, (atMs) => atMs < 1_000 ? {} : { register: null })
    assert.strictEqual(lapsedAt(away), 1_000 + 2_250)
    // Nothing about the lease itself tells the two sources apart here.
    const unknown = steady(9_000, (atMs) => atMs < 1_000 ? token(null) : { register: null })
    assert.strictEqual(lapsedAt(unknown), 1_000 + 2_250)
  })

  it("a register that answers again begins the watch anew", () => {
    const back = steady(9_000, (atMs) => atMs < 2_000 ? { register: null } : {})
    assert.strictEqual(lapsedAt(back), 2_000 + 1_250)
    const flapping = steady(60_000, (atMs) => atMs % 1_000 === 0 ? { register: null } : {})
    assert.isNull(lapsedAt(flapping))
  })

  it("a register that is the row is watched for one length", () => {
    assert.strictEqual(lapsedAt(steady(9_000, () => ({ register: "row" }), 10)), leaseMs + heartbeat)
  })

  it("a short lease is certain, too, though looks are further apart than its heartbeats", () => {
    const rows = [{ lease, leaseMs: 100, token: "row-0" }]
    assert.strictEqual(lapsedAt(steady(2_000, () => ({ rows }))), 250)
    assert.isNull(lapsedAt(steady(20_000, () => ({ rows }), 501)))
    assert.strictEqual(heartbeatMs(1), 1)
  })

  it("leases are watched each for itself", () => {
    const rows = [{ lease, leaseMs, token: "row-0" }, { lease: other, leaseMs: 3_000, token: "row-0" }]
    const looks = steady(4_000, (atMs) => ({
      rows: atMs < 500 ? rows.slice(0, 1) : rows,
      register: { incarnation: "redis-1", tokens: new Map([[other, "7"]]) }
    }))
    const times = seen(looks).flatMap((lapsed, index) => lapsed.map((lapsed) => [lapsed.lease, looks[index]?.atMs]))

    assert.deepStrictEqual(times.find(([who]) => who === lease), [lease, 1_250])
    assert.deepStrictEqual(times.find(([who]) => who === other), undefined)
    assert.deepStrictEqual(
      seen([...looks, look(4_250, { ...looks.at(-1), sentMs: 4_250, atMs: 4_250 })]).at(-1)?.map(({ lease }) => lease),
      [lease, other]
    )
  })

  it("a lease that was out of sight is watched from when it is seen again", () => {
    const looks = steady(5_000, (atMs) => atMs === 1_000 ? { rows: [] } : {})
    assert.strictEqual(lapsedAt(looks), 1_250 + 1_250)
    const kept = looks.slice(0, 5).reduce((watch, look) => observe(watch, look).watch, empty)
    assert.strictEqual(kept.leases.size, 0)
  })

  const Step = Schema.Struct({
    afterMs: Schema.Literals([1, 100, 250, 400, 500, 501, 1_300]),
    underWayMs: Schema.Literals([0, 5, 200]),
    row: Schema.Literals([0, 0, 0, 0, 0, 0, 0, 1]),
    rowIncarnation: Schema.Literals([0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
    register: Schema.Literals(["same", "same", "same", "same", "same", "moved", "away", "other"]),
    present: Schema.Literals([true, true, true, true, true, true, true, false])
  })

  /** Looks from steps; what a step says has moved has moved for good. */
  const looksOf = (steps: ReadonlyArray<typeof Step.Type>, own: boolean): ReadonlyArray<Look> => {
    const state = { at: 0, row: 0, rows: 0, token: 0, register: 0 }
    return steps.map((step) => {
      state.at += step.afterMs
      state.row += step.row
      state.rows += step.rowIncarnation
      state.token += step.register === "moved" ? 1 : 0
      state.register += step.register === "other" ? 1 : 0
      return look(state.at, {
        sentMs: state.at - Math.min(step.underWayMs, step.afterMs),
        rowIncarnation: `postgres-${state.rows}`,
        rows: step.present ? [{ lease, leaseMs, token: `row-${state.row}` }] : [],
        register: own
          ? step.register === "away" ? null : {
            incarnation: `redis-${state.register}`,
            tokens: new Map([[lease, String(state.token)]])
          }
          : "row"
      })
    })
  }

  /** The definition, said the long way: there is an unbroken watch that is long enough. */
  const certain = (looks: ReadonlyArray<Look>): boolean => {
    const last = looks.at(-1)
    const key = ({ register, rowIncarnation, rows }: Look) =>
      JSON.stringify([
        rowIncarnation,
        rows.map(({ token }) => token),
        register === null || register === "row" ? register : [register.incarnation, ...register.tokens]
      ])
    if (last === undefined || last.rows.length === 0) return false
    const length = last.register === null ? 2 * leaseMs : leaseMs
    return looks.some((first, from) => {
      const watched = looks.slice(from)
      const unbroken = watched.every((look, index) => {
        const before = watched[index - 1]
        return key(look) === key(last) && (before === undefined || look.atMs - before.atMs <= gapMaxMs(leaseMs))
      })
      return unbroken && last.sentMs - first.atMs >= length + heartbeat
    })
  }

  for (const own of [true, false]) {
    it.prop(
      `whatever is seen, it is certain exactly when an unbroken watch is long enough (own register: ${own})`,
      [Schema.Array(Step).check(Schema.isMaxLength(40))],
      ([steps]) => {
        const looks = looksOf(steps, own)
        assert.deepStrictEqual(
          seen(looks).map((lapsed) => lapsed.length > 0),
          looks.map((_, index) => certain(looks.slice(0, index + 1)))
        )
      },
      { arbitrary: { runs: 300, size: 40 } }
    )
  }

  it.prop(
    "a lease that is renewed with every heartbeat never lapses, however the reaper looks",
    [Schema.Array(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 600 })))],
    ([gaps]) => {
      let at = 0
      const looks = gaps.map((gap) => {
        at += gap
        return look(at, token(String(Math.floor(at / heartbeat))))
      })
      assert.isNull(lapsedAt(looks))
    }
  )
})
