/**
 * What is said of what a look has found.
 *
 * Facts in, findings out: nothing is asked here. `bad` is what will hurt, or does already; `worth a look` is what may
 * be meant so. Every one of both says what to do.
 */
export interface Finding {
  readonly level: "good" | "worth a look" | "bad"
  /** Which part: `postgres`, `redis`, `kafka`, `server`, `jobs`, `processes`. */
  readonly about: string
  /** Stable, for programs. */
  readonly code: string
  readonly text: string
  /** What to do; `null` where all is well. */
  readonly advice: string | null
}

export const good = (about: string, code: string, text: string): Finding => ({
  level: "good",
  about,
  code,
  text,
  advice: null
})
export const look = (about: string, code: string, text: string, advice: string): Finding => ({
  level: "worth a look",
  about,
  code,
  text,
  advice
})
export const bad = (about: string, code: string, text: string, advice: string): Finding => ({
  level: "bad",
  about,
  code,
  text,
  advice
})

/** A service that is named and does not answer. */
export const away = (about: string, message: string, advice: string): Finding =>
  bad(about, "away", `does not answer: ${message}`, advice)

/** A service that cannot be used as it is configured, whether or not it was asked: no waiting cures it. */
export const refused = (about: string, message: string, advice: string): Finding =>
  bad(about, "refused", `cannot be used: ${message}`, advice)
