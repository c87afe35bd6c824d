import { assert, describe, it } from "@effect/vitest"
import { Result, Schema } from "effect"
import * as Schedule from "../../src/domain/Schedule.ts"

const minute = 60_000
const every = { everyMs: 10_000 } as const
const minutely = { cron: "* * * * *", zone: "UTC" } as const

const fire = (change: Partial<Schedule.DueSchedule>, nowMs: number) =>
  Result.getOrThrow(
    Schedule.fire({ timing: minutely, missed: "latest", overlap: "allow", nextFireMs: 0, ...change }, nowMs)
  )

describe("Schedule", () => {
  it("a tick that is on time fires under every policy", () => {
    for (const missed of ["skip", "latest", { all: 5 }] as const) {
      assert.deepStrictEqual(fire({ missed, nextFireMs: 60 * minute }, 60 * minute + Schedule.onTimeMs), {
        ticks: [60 * minute],
        nextFireMs: 61 * minute
      })
    }
  })

  it("half a minute is on time with both of its ends, however many ticks are in it, and no more is", () => {
    const timing = { everyMs: 1_000 }
    const { ticks } = fire({ timing, missed: "skip", nextFireMs: 1_000 }, 100_000)
    assert.deepStrictEqual(ticks, Array.from({ length: 31 }, (_, n) => 70_000 + n * 1_000))
  })

  it("of a length of time only the ticks within it count", () => {
    const { newest } = Result.getOrThrow(Schedule.ticker(every))
    assert.deepStrictEqual(newest(5_000, 25_000, 10), [10_000, 20_000])
    assert.deepStrictEqual(newest(10_000, 20_000, 10), [10_000, 20_000])
    assert.deepStrictEqual(newest(0, 50_000, 2), [40_000, 50_000])
    assert.deepStrictEqual(newest(11_000, 19_000, 10), [])
  })

  it("of half an hour's missed ticks none, one, or the newest so many fire", () => {
    const now = 60 * minute + 45_000
    assert.deepStrictEqual(fire({ missed: "skip", nextFireMs: 30 * minute }, now).ticks, [])
    assert.deepStrictEqual(fire({ missed: "latest", nextFireMs: 30 * minute }, now).ticks, [60 * minute])
    assert.deepStrictEqual(
      fire({ missed: { all: 3 }, nextFireMs: 30 * minute }, now).ticks,
      [58 * minute, 59 * minute, 60 * minute]
    )
    assert.lengthOf(fire({ missed: { all: 1_000 }, nextFireMs: 30 * minute }, now).ticks, 31)
  })

  it("one that is on time is the catch-up of those that were missed", () => {
    const now = 60 * minute + 5_000
    assert.deepStrictEqual(fire({ missed: "skip", nextFireMs: 30 * minute }, now).ticks, [60 * minute])
    assert.deepStrictEqual(fire({ missed: "latest", nextFireMs: 30 * minute }, now).ticks, [60 * minute])
    assert.deepStrictEqual(
      fire({ missed: { all: 2 }, nextFireMs: 30 * minute }, now).ticks,
      [58 * minute, 59 * minute, 60 * minute]
    )
  })

  it("where jobs may not overlap only the newest tick fires", () => {
    for (const overlap of ["skip", "cancel"] as const) {
      const { ticks } = fire({ missed: { all: 10 }, overlap, nextFireMs: 30 * minute }, 60 * minute + 5_000)
      assert.deepStrictEqual(ticks, [60 * minute])
    }
  })

  it("a clock that has gone back books nothing that was booked before", () => {
    assert.deepStrictEqual(fire({ nextFireMs: 60 * minute }, 20 * minute), { ticks: [], nextFireMs: 61 * minute })
  })

  it("an outage of years costs no more than its newest ticks", () => {
    const now = 400_000_000 * minute
    assert.lengthOf(fire({ timing: every, missed: { all: 1_000 }, nextFireMs: 10_000 }, now).ticks, 1_004)
    assert.lengthOf(fire({ missed: { all: 1_000 }, nextFireMs: minute }, now).ticks, 1_001)
  })

  it.prop(
    "looking late, often, or by turns comes to the same ticks, each once, as long as each look is in time",
    [Schema.Array(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: Schedule.onTimeMs })))],
    ([pauses]) => {
      let next: number | null = 10_000
      let now = 0
      const fired: Array<number> = []
      for (const pause of pauses) {
        now += pause
        if (next !== null && next <= now) {
          const firing: Schedule.Firing = fire({ timing: every, missed: "skip", nextFireMs: next }, now)
          fired.push(...firing.ticks)
          next = firing.nextFireMs
        }
      }
      assert.deepStrictEqual(fired, Array.from({ length: Math.floor(now / 10_000) }, (_, n) => (n + 1) * 10_000))
    }
  )

  it("shows the next ticks from the one that is booked, and none where none is", () => {
    assert.deepStrictEqual(Schedule.nextFires(minutely, 5 * minute, 3), [5 * minute, 6 * minute, 7 * minute])
    assert.deepStrictEqual(Schedule.nextFires(minutely, null, 3), [])
    assert.deepStrictEqual(Schedule.nextFires({ cron: "0 0 30 2 *", zone: "UTC" }, 5, 3), [5])
  })

  it("says what is wrong with a timing that a table may hold", () => {
    for (const timing of [{ everyMs: 999 }, { everyMs: 1_500.5 }, { everyMs: 86_400_001 }, { everyMs: Number.NaN }]) {
      assert.isTrue(Result.isFailure(Schedule.ticker(timing)), JSON.stringify(timing))
    }
    assert.isTrue(Result.isFailure(Schedule.ticker({ cron: "0 0 30 2 *", zone: "UTC" })))
    assert.isNull(Schedule.nextAfter({ cron: "nonsense", zone: "UTC" }, 0))
  })

  it("is the same timing only where all of it is", () => {
    assert.isTrue(Schedule.isSameTiming({ cron: "* * * * *", zone: "UTC" }, { cron: "* * * * *", zone: "UTC" }))
    assert.isFalse(Schedule.isSameTiming(minutely, { cron: "* * * * *", zone: "Europe/Zurich" }))
    assert.isFalse(Schedule.isSameTiming(minutely, every))
    assert.isFalse(Schedule.isSameTiming(every, minutely))
    assert.isTrue(Schedule.isSameTiming(every, { everyMs: 10_000 }))
  })
})
