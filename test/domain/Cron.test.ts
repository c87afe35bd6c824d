import { assert, describe, it } from "@effect/vitest"
import { DateTime, Result, Schema } from "effect"
import * as Cron from "../../src/domain/Cron.ts"

const cron = (text: string, zone = "UTC") => Result.getOrThrow(Cron.parse(text, zone))

const at = (text: string) => Date.parse(text)

const nexts = (text: string, zone: string, from: string, count: number): ReadonlyArray<string> => {
  const parsed = cron(text, zone)
  const fires: Array<string> = []
  for (let after: number | null = at(from), n = 0; n < count; n++) {
    after = Cron.next(parsed, after!)
    fires.push(after === null ? "never" : DateTime.formatIso(DateTime.makeUnsafe(after)).replace(":00.000Z", "Z"))
  }
  return fires
}

const refusal = (text: string, zone = "UTC") => {
  const parsed = Cron.parse(text, zone)
  return Result.isFailure(parsed) ? parsed.failure : { field: "none", message: "it was accepted" }
}

/** Minute by minute, by another library of zones: slow, and with nothing in common with the search. */
const reference = (text: string, zone: string, fromMs: number, untilMs: number): ReadonlyArray<number> => {
  const { both, days, hours, minutes, months, weekdays } = cron(text, zone)
  const format = new Intl.DateTimeFormat("en-US", {
    timeZone: zone,
    hourCycle: "h23",
    year: "numeric",
    month: "numeric",
    day: "numeric",
    hour: "numeric",
    minute: "numeric"
  })
  const wallOf = (ms: number) => {
    const part = Object.fromEntries(format.formatToParts(ms).map(({ type, value }) => [type, Number(value)]))
    return Date.UTC(part["year"]!, part["month"]! - 1, part["day"]!, part["hour"]!, part["minute"]!)
  }
  const isMeant = (wallMs: number) => {
    const wall = DateTime.toPartsUtc(DateTime.makeUnsafe(wallMs))
    const day = days.size === 0 || days.has(wall.day)
    const weekday = weekdays.size === 0 || weekdays.has(wall.weekDay)
    return minutes.includes(wall.minute) && hours.includes(wall.hour) &&
      (months.size === 0 || months.has(wall.month)) &&
      (both || days.size === 0 || weekdays.size === 0 ? day && weekday : day || weekday)
  }
  const ticks = new Set<number>()
  const shown = new Set<number>()
  // A day before, so that the first occurrence of a repeated time is known.
  let last = wallOf(fromMs - 86_460_000)
  for (let ms = fromMs - 86_400_000; ms <= untilMs + 86_400_000; ms += 60_000) {
    const wall = wallOf(ms)
    for (let skipped = last + 60_000; skipped < wall; skipped += 60_000) {
      if (isMeant(skipped)) ticks.add(ms + skipped - (last + 60_000))
    }
    if (isMeant(wall) && (hours.length === 24 || !shown.has(wall))) ticks.add(ms)
    shown.add(wall)
    last = wall
  }
  return [...ticks].filter((tick) => tick >= fromMs && tick <= untilMs).sort((a, b) => a - b)
}

/** Around changes of the clocks: by an hour, by half an hour, at midnight, and by a whole day. */
const changes = [
  ["America/New_York", "2026-03-08T07:00Z"],
  ["America/New_York", "2026-11-01T06:00Z"],
  ["Europe/Zurich", "2026-03-29T01:00Z"],
  ["Europe/Zurich", "2026-10-25T01:00Z"],
  ["Australia/Lord_Howe", "2026-10-03T15:30Z"],
  ["Australia/Lord_Howe", "2026-04-04T15:00Z"],
  ["Asia/Beirut", "2026-03-28T22:00Z"],
  ["Asia/Beirut", "2026-10-24T21:00Z"],
  ["America/Santiago", "2026-09-06T04:00Z"],
  ["America/Santiago", "2026-04-05T03:00Z"],
  ["Pacific/Apia", "2011-12-30T10:00Z"],
  ["Asia/Kathmandu", "2026-06-01T00:00Z"]
] as const

const Meant = Schema.Struct({
  minute: Schema.Literals(["0", "30", "0,30", "*/15", "*", "5-20/5", "59"]),
  hour: Schema.Literals(["*", "*/1", "0-23", "2", "0", "1,2,3", "*/2", "23", "0-3", "9"]),
  day: Schema.Literals(["*", "*/2", "1", "8", "25-31"]),
  month: Schema.Literals(["*", "3,10,11", "jan-dec"]),
  weekday: Schema.Literals(["*", "sun", "1-5", "7", "*/3"]),
  change: Schema.Literals(changes.map((_, index) => index))
})

describe("Cron", () => {
  it.prop(
    "around a change of the clocks it fires at the minutes that a walk through all of them finds",
    [Meant],
    ([{ change, day, hour, minute, month, weekday }]) => {
      const [zone, instant] = changes[change]!
      const text = [minute, hour, day, month, weekday].join(" ")
      const fromMs = at(instant) - 30 * 3_600_000
      const untilMs = at(instant) + 30 * 3_600_000
      const expected = reference(text, zone, fromMs, untilMs)
      const parsed = cron(text, zone)
      const found: Array<number> = []
      for (let tick = Cron.next(parsed, fromMs - 1); tick !== null && tick <= untilMs; tick = Cron.next(parsed, tick)) {
        found.push(tick)
      }
      assert.deepStrictEqual(found, expected, `${text} in ${zone}`)
      assert.deepStrictEqual(Cron.newest(parsed, fromMs, untilMs, 10_000), expected, `newest of ${text} in ${zone}`)
      assert.deepStrictEqual(Cron.newest(parsed, fromMs, untilMs, 3), expected.slice(-3))
    },
    { arbitrary: { runs: 60 }, timeout: 60_000 }
  )

  it("a daily schedule fires once a day where its time is skipped, as much later as the clocks moved", () => {
    assert.deepStrictEqual(nexts("30 2 * * *", "America/New_York", "2026-03-07T05:00Z", 3), [
      "2026-03-07T07:30Z",
      "2026-03-08T07:30Z",
      "2026-03-09T06:30Z"
    ])
    assert.deepStrictEqual(
      nexts("0,30 2 * * *", "America/New_York", "2026-03-08T05:00Z", 3),
      ["2026-03-08T07:00Z", "2026-03-08T07:30Z", "2026-03-09T06:00Z"],
      "each of two skipped times"
    )
    assert.deepStrictEqual(
      nexts("30 2,3 * * *", "America/New_York", "2026-03-08T05:00Z", 2),
      ["2026-03-08T07:30Z", "2026-03-09T06:30Z"],
      "two that fall together are one"
    )
  })

  it("a daily schedule fires once a day where its time is repeated, the first time", () => {
    assert.deepStrictEqual(nexts("30 1 * * *", "America/New_York", "2026-10-31T12:00Z", 3), [
      "2026-11-01T05:30Z",
      "2026-11-02T06:30Z",
      "2026-11-03T06:30Z"
    ])
  })

  it("a schedule of every hour keeps its distance through both changes", () => {
    assert.deepStrictEqual(nexts("*/15 * * * *", "America/New_York", "2026-03-08T06:30Z", 3), [
      "2026-03-08T06:45Z",
      "2026-03-08T07:00Z",
      "2026-03-08T07:15Z"
    ])
    assert.deepStrictEqual(nexts("30 * * * *", "America/New_York", "2026-11-01T04:40Z", 3), [
      "2026-11-01T05:30Z",
      "2026-11-01T06:30Z",
      "2026-11-01T07:30Z"
    ])
    assert.deepStrictEqual(
      nexts("*/30 * * * *", "America/New_York", "2026-11-01T04:40Z", 4),
      ["2026-11-01T05:00Z", "2026-11-01T05:30Z", "2026-11-01T06:00Z", "2026-11-01T06:30Z"]
    )
    // At midnight, where the hour that comes twice is the last of its day.
    assert.deepStrictEqual(
      nexts("30 * * * *", "America/Santiago", "2026-04-05T01:40Z", 3),
      ["2026-04-05T02:30Z", "2026-04-05T03:30Z", "2026-04-05T04:30Z"]
    )
    // All hours but one are not every hour.
    assert.deepStrictEqual(
      nexts("30 0-22 * * *", "America/New_York", "2026-11-01T04:40Z", 2),
      ["2026-11-01T05:30Z", "2026-11-01T07:30Z"]
    )
  })

  it("the first and the last moment of what is skipped or repeated is on the right side of the change", () => {
    // From 2 to 3 there is nothing.
    assert.deepStrictEqual(nexts("0 2 * * *", "America/New_York", "2026-03-08T05:00Z", 1), ["2026-03-08T07:00Z"])
    assert.deepStrictEqual(nexts("0 3 * * *", "America/New_York", "2026-03-08T05:00Z", 1), ["2026-03-08T07:00Z"])
    // From 1 to 2 there is everything twice.
    assert.deepStrictEqual(nexts("0 1 * * *", "America/New_York", "2026-11-01T04:00Z", 2), [
      "2026-11-01T05:00Z",
      "2026-11-02T06:00Z"
    ])
    assert.deepStrictEqual(nexts("0 2 * * *", "America/New_York", "2026-11-01T04:00Z", 1), ["2026-11-01T07:00Z"])
    assert.deepStrictEqual(nexts("0 * * * *", "America/New_York", "2026-11-01T04:30Z", 3), [
      "2026-11-01T05:00Z",
      "2026-11-01T06:00Z",
      "2026-11-01T07:00Z"
    ])
  })

  it("a day that a place has skipped is made up for on the next, also where one looks from within that", () => {
    // In Apia there was no 30 December 2011: its 9:00 was the 9:00 of the 31st, at 19:00 UTC.
    assert.deepStrictEqual(nexts("0 9 30 * *", "Pacific/Apia", "2011-12-29T12:00Z", 2), [
      "2011-12-30T19:00Z",
      "2012-01-29T19:00Z"
    ])
    const monthly = cron("0 9 30 * *", "Pacific/Apia")
    assert.strictEqual(Cron.next(monthly, at("2011-12-30T12:00Z")), at("2011-12-30T19:00Z"))
    assert.deepStrictEqual(Cron.newest(monthly, at("2011-12-30T12:00Z"), at("2011-12-31T09:00Z"), 5), [
      at("2011-12-30T19:00Z")
    ])
  })

  it("what is skipped across midnight comes among the ticks of the next day", () => {
    // In Pyongyang the 4 May 2018 ended at 23:30: its 23:45 was the 0:15 of the 5th.
    const text = "10,45 0,23 * * *"
    assert.deepStrictEqual(nexts(text, "Asia/Pyongyang", "2018-05-04T14:00Z", 4), [
      "2018-05-04T14:40Z",
      "2018-05-04T15:10Z",
      "2018-05-04T15:15Z",
      "2018-05-04T15:45Z"
    ])
    const parsed = cron(text, "Asia/Pyongyang")
    for (const [limit, from] of [[1, "15:15Z"], [2, "15:10Z"]] as const) {
      assert.strictEqual(
        Cron.newest(parsed, at("2018-05-03T00:00Z"), at("2018-05-04T15:30Z"), limit)[0],
        at(`2018-05-04T${from}`)
      )
    }
  })

  it("fires in the order of time, in whatever order minutes and hours are named", () => {
    assert.deepStrictEqual(nexts("30,10 23,1 * * *", "UTC", "2026-01-01T00:00Z", 4), [
      "2026-01-01T01:10Z",
      "2026-01-01T01:30Z",
      "2026-01-01T23:10Z",
      "2026-01-01T23:30Z"
    ])
  })

  it("day of month and day of week are either, unless one begins with a star", () => {
    assert.deepStrictEqual(nexts("0 0 13 * 5", "UTC", "2026-01-01T00:00Z", 3), [
      "2026-01-02T00:00Z",
      "2026-01-09T00:00Z",
      "2026-01-13T00:00Z"
    ])
    assert.deepStrictEqual(nexts("0 0 * * 5", "UTC", "2026-01-01T00:00Z", 1), ["2026-01-02T00:00Z"])
    assert.deepStrictEqual(nexts("0 0 */2 * 1", "UTC", "2026-01-01T00:00Z", 2), [
      "2026-01-05T00:00Z",
      "2026-01-19T00:00Z"
    ])
  })

  it("rare dates are found: leap days, and leap days on one weekday across a year without one", () => {
    assert.deepStrictEqual(nexts("0 0 29 2 *", "UTC", "2026-01-01T00:00Z", 2), [
      "2028-02-29T00:00Z",
      "2032-02-29T00:00Z"
    ])
    assert.deepStrictEqual(nexts("0 0 29 2 */7", "UTC", "2026-01-01T00:00Z", 4), [
      "2032-02-29T00:00Z",
      "2060-02-29T00:00Z",
      "2088-02-29T00:00Z",
      "2128-02-29T00:00Z"
    ])
  })

  it.each(
    [
      ["0 0 30 2 *", /day of month "30" in the month "2", which never comes/],
      ["0 0 31 4 *", /never comes/],
      ["0 0 31 2,4,6,9,11 *", /never comes/],
      ["0 0 30 2 */2", /never comes/],
      ["60 * * * *", /minute "60"/],
      ["* 24 * * *", /hour "24"/],
      ["* * 0 * *", /day of month "0"/],
      ["* * * 13 *", /month "13"/],
      ["* * * * 8", /day of week "8"/],
      ["*/0 * * * *", /minute "\*\/0"/],
      ["5-1 * * * *", /minute "5-1"/],
      ["1,,2 * * * *", /minute "1,,2"/],
      ["-1 * * * *", /minute "-1"/],
      ["1.5 * * * *", /minute "1.5"/],
      ["* * * * * *", /five fields.*no seconds/],
      ["* * * *", /five fields/],
      ["@daily", /write 0 0 \* \* \*/],
      ["@Weekly", /write 0 0 \* \* 0/],
      ["@reboot", /five fields/],
      ["", /five fields/],
      ["L * * * *", /minute "L"/],
      [`${"1,".repeat(200)}1 * * * *`, /at most 200/]
    ] as const
  )("%s is refused with the field that is wrong", (text, message) => {
    assert.strictEqual(refusal(text).field, "cron")
    assert.match(refusal(text).message, message)
  })

  it("accepts what other crons do: names, ranges with steps, 7 for Sunday, and days that exist in some month", () => {
    for (const text of ["0 9 * jan-mar MON-fri", "10-50/20 0 * * 7", "0 0 31 * *", "0 0 30 2 1", "  5 4  * * sun "]) {
      assert.isTrue(Result.isSuccess(Cron.parse(text, "Europe/Zurich")), text)
    }
  })

  it.each(["Mars/Olympus", "", "+02:00", "-05:00", "GMT+25", "../etc/passwd", "x".repeat(10_000)])(
    "the zone %s is refused",
    (zone) => {
      assert.strictEqual(refusal("0 0 * * *", zone).field, "zone")
    }
  )
})
