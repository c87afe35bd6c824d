/** Bodies that nearly are what a server wants: from a seed, so that what one of them breaks can be sent again. */
import * as SubmitBody from "../../../src/adapters/http/SubmitBody.ts"

const fields = [...SubmitBody.fields, "fields", "window_ms", "states", "on_conflict", "__proto__", "constructor", ""]

const leaves: ReadonlyArray<string> = [
  "null",
  "true",
  "0",
  "-1",
  "1e400",
  "1.5",
  "9007199254740993",
  "-0",
  "\"\"",
  "\"t\"",
  "\"\\u0000\"",
  "\"\\ud800\"",
  "\"\u{1f600}\"",
  "\"a:b\"",
  "\"'; drop table job; --\"",
  "NaN",
  "undefined",
  "{}",
  "[]",
  "01",
  "\"\t\"",
  "{\"kind\":\"fixed\",\"delay_ms\":1}"
]

/** A small generator of pseudo-random numbers (mulberry32), in `[0, 1)`. */
export const draws = (seed: number): () => number => {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = state
    t = Math.imul(t ^ (t >>> 15), t | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296
  }
}

export const body = (seed: number): string => {
  const draw = draws(seed)
  const pick = <A>(values: ReadonlyArray<A>): A => values[Math.floor(draw() * values.length)]!
  const value = (depth: number): string => {
    const kind = draw()
    if (depth > 4 || kind < 0.5) {
      return pick(leaves)
    }
    const parts = Array.from({ length: Math.floor(draw() * 5) }, () => value(depth + 1))
    return kind < 0.65 ? `[${parts.join()}]` : `{${parts.map((part) => `"${pick(fields)}":${part}`).join()}}`
  }
  const job = () =>
    `{"type":"t"${Array.from({ length: Math.floor(draw() * 5) }, () => `,"${pick(fields)}":${value(1)}`).join("")}}`
  const text = draw() < 0.4 ? job() : draw() < 0.5 ? `[${job()},${job()}]` : value(0)
  if (draw() < 0.6) {
    return text
  }
  // A byte too many, too few, or another one.
  const at = Math.floor(draw() * text.length)
  return text.slice(0, at) + pick(["", "}", "\"", "\\", "\u0000", "\u{feff}", ","]) + text.slice(at + 1)
}
