/**
 * Lines for people: what came from jobs and workers is shown as text, and can do nothing to a terminal.
 *
 * Times are shown as they are, in UTC; lengths in the largest unit that fits.
 */
import { DateTime } from "effect"

/** Whatever a terminal would act on becomes a dot, line breaks included. */
export const clean = (text: string): string =>
  // oxlint-disable-next-line no-control-regex -- control characters are what must not reach a terminal
  text.replaceAll(/[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g, "·")

export const time = (ms: number): string => DateTime.formatIso(DateTime.makeUnsafe(ms)).replace("T", " ").slice(0, 23)

const units = [["d", 86_400_000], ["h", 3_600_000], ["m", 60_000], ["s", 1_000], ["ms", 1]] as const

/** `90 s` is `1m 30s`, and `90,061 s` is `1d 1h`: two units say enough. */
export const length = (ms: number): string => {
  const whole = Math.max(0, Math.round(ms))
  if (whole < 1_000) {
    return `${whole}ms`
  }
  if (whole < 60_000) {
    return `${Math.floor(whole / 100) / 10}s`
  }
  let rest = whole
  const parts: Array<string> = []
  for (const [unit, size] of units) {
    const n = Math.floor(rest / size)
    rest -= n * size
    if (n > 0 || parts.length > 0) {
      parts.push(`${n}${unit}`)
    }
    if (parts.length === 2) {
      break
    }
  }
  return parts.filter((part) => !part.startsWith("0")).join(" ")
}

/** `10m`, `1h30m`, `500ms`; a bare number is seconds. `null` if it is none. */
export const lengthOf = (text: string): number | null => {
  if (/^[0-9]{1,9}(\.[0-9]{1,3})?$/.test(text)) {
    return Math.round(Number(text) * 1_000)
  }
  if (!/^([0-9]{1,9}(ms|s|m|h|d))+$/.test(text)) {
    return null
  }
  const sizes = new Map<string, number>(units)
  return [...text.matchAll(/([0-9]+)(ms|s|m|h|d)/g)].reduce(
    (sum, [, n, unit]) => sum + Number(n) * sizes.get(unit!)!,
    0
  )
}

const instant =
  /^([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?)(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?$/

/**
 * `2030-01-31T08:00:00Z`, `2030-01-31 08:00+02:00`, or milliseconds since the epoch. `unzoned`: it may be meant by the
 * clocks of anywhere, and nobody is to guess. `null`: it is no time.
 */
export const instantOf = (text: string): number | "unzoned" | null => {
  if (/^[0-9]{10,15}$/.test(text)) {
    return Number(text)
  }
  const [, date = "", time = "00:00", zone = ""] = instant.exec(text) ?? /^([0-9]{4}-[0-9]{2}-[0-9]{2})$/.exec(text) ??
    []
  // What `Date` takes the 31st of February for is not that.
  const day = Date.parse(`${date}T00:00:00Z`)
  const offset = zone.replace(
    /^([+-][0-9]{2}):?([0-9]{2})?$/,
    (_, hours: string, minutes = "00") => `${hours}:${minutes}`
  )
  const ms = Date.parse(`${date}T${time}${offset || "Z"}`)
  return Number.isNaN(day) || Number.isNaN(ms) || DateTime.formatIso(DateTime.makeUnsafe(day)).slice(0, 10) !== date
    ? null
    : zone === ""
    ? "unzoned"
    : ms
}

export const bytes = (n: number): string =>
  n < 1_024
    ? `${n} B`
    : n < 1_048_576
    ? `${(n / 1_024).toFixed(1)} KiB`
    : n < 1_073_741_824
    ? `${(n / 1_048_576).toFixed(1)} MiB`
    : `${(n / 1_073_741_824).toFixed(1)} GiB`
