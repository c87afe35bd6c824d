/**
 * Ids of jobs: UUID version 7, drawn by the process that submits.
 *
 * Behind the time 74 bits are random, or 62 where the process that draws counts
 * with the others, so no two processes, failovers or restores ever give one id
 * to two jobs. The time in front only keeps index pages warm and lists roughly
 * newest first; nothing is decided by it.
 */
import { Schema } from "effect"

const pattern = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/

export const Uuid = Schema.String.check(Schema.isPattern(pattern))

export const JobId = Uuid.pipe(Schema.brand("JobId"))
export type JobId = typeof JobId.Type

const parse = Schema.decodeUnknownOption(JobId)

/** Reads an id that came from outside, in either case of letters. */
export const fromText = (text: string) => parse(text.toLowerCase())

const hex = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"))

/** Many are made within one millisecond. */
let lastMs = -1
let lastText = ""

const timeText = (timeMs: number): string => {
  if (timeMs !== lastMs) {
    const time = Math.max(0, Math.floor(timeMs)).toString(16).padStart(12, "0").slice(-12)
    lastMs = timeMs
    lastText = `${time.slice(0, 8)}-${time.slice(8)}-7`
  }
  return lastText
}

/** A version 7 UUID from a time and ten random bytes (the rest of `random` is not read). */
export const make = (timeMs: number, random: Uint8Array): JobId => {
  const byte = (index: number) => random[index] ?? 0
  const text = `${timeText(timeMs)}${hex[byte(0)]!.slice(1)}${hex[byte(1)]}` +
    `-${hex[(byte(2) & 0x3f) | 0x80]}${hex[byte(3)]}-${hex[byte(4)]}${hex[byte(5)]}${hex[byte(6)]}${hex[byte(7)]}` +
    `${hex[byte(8)]}${hex[byte(9)]}`
  return text as JobId
}
