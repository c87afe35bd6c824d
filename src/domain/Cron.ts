/**
 * Five fields and a zone: at which instants a schedule fires.
 *
 * Effect's `Cron` reads the fields. It does not search here, since around a
 * change of the clocks it loses ticks (`0,30 2 * * *` fires once in a night that
 * has no hour from 2 to 3, `15 * * * *` wanders where the clocks move by half an
 * hour), and it searches without end for a date that never comes.
 *
 * A local time that does not exist (the clocks go forward) counts as the time
 * that much later: 2:30 is 3:30 then, so a daily schedule fires every day. Two
 * that fall on one instant fire once. A local time that exists twice (the clocks
 * go back) counts the first time only; unless the schedule fires in every hour
 * of the day: then both count, and every 15 minutes stays every 15 minutes.
 */
import { Cron as Fields, DateTime, Option, Result } from "effect"

export interface Cron {
  readonly minutes: ReadonlyArray<number>
  readonly hours: ReadonlyArray<number>
  /** Empty: all of them, as in the next two. */
  readonly days: ReadonlySet<number>
  readonly months: ReadonlySet<number>
  readonly weekdays: ReadonlySet<number>
  /** Whether both day and weekday must match, as where one of them begins with `*`; else either does. */
  readonly both: boolean
  readonly zone: DateTime.TimeZone.Named
}

/** What is wrong, and where. */
export interface Refused {
  readonly field: "cron" | "zone"
  readonly message: string
}

export const textMax = 200
const zoneMax = 64
const minuteMs = 60_000
const hourMs = 3_600_000
const dayMs = 86_400_000

/** The widest gap between two ticks is that of a 29 February which is also a given weekday: 40 years. */
const searchDays = 36_525

const fieldNames = ["minute", "hour", "day of month", "month", "day of week"] as const
const daysOfMonth = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]

const macros: Readonly<Record<string, string>> = {
  "@yearly": "0 0 1 1 *",
  "@annually": "0 0 1 1 *",
  "@monthly": "0 0 1 * *",
  "@weekly": "0 0 * * 0",
  "@daily": "0 0 * * *",
  "@midnight": "0 0 * * *",
  "@hourly": "0 * * * *"
}

const refused = (message: string): Result.Result<never, Refused> => Result.fail({ field: "cron", message })

const range = (count: number) => Array.from({ length: count }, (_, n) => n)

const allWhereEmpty = (values: ReadonlySet<number>, count: number) =>
  values.size === 0 ? range(count) : [...values].sort((a, b) => a - b)

const shown = (text: string) => `"${text.slice(0, 40)}"`

const zoneOf = (name: string): Result.Result<DateTime.TimeZone.Named, Refused> =>
  Result.fromOption(
    // An offset is no zone: what follows the clocks of a place has to know the place.
    name.length <= zoneMax && /^[A-Za-z]/.test(name) ? DateTime.zoneMakeNamed(name) : Option.none(),
    (): Refused => ({
      field: "zone",
      message: `${shown(name)} is no time zone known here: give a name of the IANA list, such as Europe/Zurich or UTC`
    })
  )

/** Whether some day of some month is meant that exists. */
const canFire = (cron: Pick<Cron, "both" | "days" | "months" | "weekdays">): boolean =>
  cron.days.size === 0 || (!cron.both && cron.weekdays.size > 0) ||
  daysOfMonth.some((length, index) =>
    (cron.months.size === 0 || cron.months.has(index + 1)) && [...cron.days].some((day) => day <= length)
  )

export const parse = (text: string, zone: string): Result.Result<Cron, Refused> => {
  const parts = text.trim().split(/\s+/)
  if (text.length > textMax) {
    return refused(`must have at most ${textMax} characters`)
  }
  if (parts.length !== fieldNames.length) {
    const same = macros[text.trim().toLowerCase()]
    return refused(
      `must have five fields: ${fieldNames.join(", ")}` +
        (same !== undefined ? `; for ${text.trim()} write ${same}` : parts.length === 6 ? "; there are no seconds" : "")
    )
  }
  for (const [index, part] of parts.entries()) {
    // Each on its own, because the whole does not say which one is wrong.
    const alone = Fields.parse(fieldNames.map((_, at) => at === index ? part : "*").join(" "))
    if (Result.isFailure(alone)) {
      return refused(`has a ${fieldNames[index]} ${shown(part)} that cannot be read: ${alone.failure.message}`)
    }
  }
  return Result.flatMap(zoneOf(zone), (zone) => {
    const { days, hours, minutes, months, weekdays } = Fields.parseUnsafe(parts.join(" "))
    const cron: Cron = {
      minutes: allWhereEmpty(minutes, 60),
      hours: allWhereEmpty(hours, 24),
      days,
      months,
      weekdays,
      both: parts[2]!.startsWith("*") || parts[4]!.startsWith("*"),
      zone
    }
    return canFire(cron)
      ? Result.succeed(cron)
      : refused(`names the day of month ${shown(parts[2]!)} in the month ${shown(parts[3]!)}, which never comes`)
  })
}

/** What is added to the instant to get what the clocks there show. */
const offset = (cron: Cron, atMs: number): number =>
  DateTime.zonedOffset(DateTime.makeZonedUnsafe(atMs, { timeZone: cron.zone }))

const isMeant = ({ both, days, months, weekdays }: Cron, dayNumber: number): boolean => {
  const date = DateTime.toPartsUtc(DateTime.makeUnsafe(dayNumber * dayMs))
  if (months.size > 0 && !months.has(date.month)) {
    return false
  }
  const day = days.size === 0 || days.has(date.day)
  const weekday = weekdays.size === 0 || weekdays.has(date.weekDay)
  return both || days.size === 0 || weekdays.size === 0 ? day && weekday : day || weekday
}

/** When the clocks move between the two, to the minute: whoever moves them does it at one. */
const changeOf = (cron: Cron, fromMs: number, untilMs: number, before: number): number => {
  let from = Math.floor(fromMs / minuteMs)
  let until = Math.ceil(untilMs / minuteMs)
  while (until - from > 1) {
    const middle = Math.floor((from + until) / 2)
    if (offset(cron, middle * minuteMs) === before) {
      from = middle
    } else {
      until = middle
    }
  }
  return until * minuteMs
}

/** All ticks of one local day, in order. */
const ticksOf = (cron: Cron, dayNumber: number): ReadonlyArray<number> => {
  if (!isMeant(cron, dayNumber)) {
    return []
  }
  const startMs = dayNumber * dayMs
  const walls = cron.hours.flatMap((hour) => cron.minutes.map((minute) => startMs + hour * hourMs + minute * minuteMs))
  const before = offset(cron, startMs - dayMs)
  const after = offset(cron, startMs + 2 * dayMs)
  if (before === after) {
    return walls.map((wallMs) => wallMs - before)
  }
  const changeMs = changeOf(cron, startMs - dayMs, startMs + 2 * dayMs, before)
  const everyHour = cron.hours.length === 24
  const ticks = walls.flatMap((wallMs) => {
    const first = wallMs - before
    const second = wallMs - after
    // Before the change; or skipped by it, where this is the time as much later.
    if (wallMs < changeMs + after) {
      return [first]
    }
    // After it, or shown twice.
    return wallMs >= changeMs + before ? [second] : everyHour ? [first, second] : [first]
  })
  return [...new Set(ticks)].sort((a, b) => a - b)
}

const dayOf = (cron: Cron, atMs: number): number => Math.floor((atMs + offset(cron, atMs)) / dayMs)

/** The first tick after `afterMs`; `null` where there is none. */
export const next = (cron: Cron, afterMs: number): number | null => {
  // A time that does not exist may count as one of the next day, where the clocks move across midnight or a whole day.
  const first = dayOf(cron, afterMs) - 1
  for (let day = first; day <= first + searchDays; day++) {
    const later = ticksOf(cron, day).find((tickMs) => tickMs > afterMs)
    if (later !== undefined) {
      const nextDays = ticksOf(cron, day + 1).find((tickMs) => tickMs > afterMs)
      return Math.min(later, nextDays ?? later)
    }
  }
  return null
}

/** The newest ticks from `fromMs` to `untilMs`, both included, at most `limit` of them; in order. */
export const newest = (cron: Cron, fromMs: number, untilMs: number, limit: number): ReadonlyArray<number> => {
  const found = new Set<number>()
  const first = dayOf(cron, fromMs) - 1
  // One day more than is needed for the limit, since its days may overlap.
  for (let day = dayOf(cron, untilMs), left = 2; day >= first && left > 0; day--) {
    for (const tickMs of ticksOf(cron, day)) {
      if (tickMs >= fromMs && tickMs <= untilMs) {
        found.add(tickMs)
      }
    }
    left -= found.size >= limit ? 1 : 0
  }
  return [...found].sort((a, b) => a - b).slice(-limit)
}
