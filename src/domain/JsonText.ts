/**
 * JSON text as it comes from outside: whether it can be stored and read back without loss.
 *
 * Postgres cannot hold NUL or half a surrogate pair, a parser turns 1e400 and 12345678901234567890 into other numbers
 * without a word, and deep nesting overflows somebody's stack. So the text itself is looked at, before it is parsed:
 * afterwards the difference is gone. The scanner uses no recursion, and what it accepts `JSON.parse` accepts.
 */

/** Levels of arrays and objects within each other. */
export const depthMax = 256

export interface Refused {
  readonly kind: "syntax" | "depth" | "nul" | "surrogate" | "number"
  /** Like `$.items[3].x`. */
  readonly path: string
  /** Reads on from the path: "is …", "holds …". */
  readonly reason: string
}

/** An array or object that is open; `at` is the index, or where the raw key begins. */
interface Open {
  readonly object: boolean
  at: number
}

const pathMax = 200
const keyShownMax = 40
const wordPattern = /^[A-Za-z_$][A-Za-z0-9_$]*$/

const quote = 34
const backslash = 92

const numberPattern = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y

/** Where the literal at `from` ends, by the grammar of JSON numbers; `from` itself if there is none. */
const numberEnd = (text: string, from: number): number => {
  numberPattern.lastIndex = from
  return numberPattern.test(text) ? numberPattern.lastIndex : from
}

/** A decimal as its digits, without zeros at either end, times a power of ten. */
const decimal = (literal: string): { readonly digits: string; readonly exponent: number } => {
  const unsigned = literal.startsWith("-") ? literal.slice(1) : literal
  const [mantissa = "", power = "0"] = unsigned.toLowerCase().split("e")
  const [whole = "", fraction = ""] = mantissa.split(".")
  const digits = `${whole}${fraction}`
  let start = 0
  while (digits[start] === "0") start++
  let end = digits.length
  while (end > start && digits[end - 1] === "0") end--
  return {
    digits: digits.slice(start, end),
    exponent: Number(power) - fraction.length + (digits.length - end)
  }
}

/** The smallest double with all its bits; below it precision fades. */
const normalMin = 2.2250738585072014e-308

/** Digits of a fraction beyond what a double holds may go; a whole number may not become another one. */
const survives = (literal: string): boolean => {
  const value = Number(literal)
  const size = Math.abs(value)
  if (size < 2 ** 53 && size >= normalMin) {
    return true
  }
  if (!Number.isFinite(value)) {
    return false
  }
  const written = decimal(literal)
  if (value === 0 || written.digits === "") {
    return written.digits === ""
  }
  const read = decimal(String(value))
  if (written.digits === read.digits && written.exponent === read.exponent) {
    return true
  }
  // Finite and whole: at most 309 digits, however the literal is written.
  return written.exponent >= 0 && BigInt(written.digits) * 10n ** BigInt(written.exponent) === BigInt(size)
}

/** What is wrong with `text`, or `null`. `root` is how the place of the text is called. */
export const check = (text: string, root = "$"): Refused | null => {
  const open: Array<Open> = []
  let at = 0

  const path = (): string => {
    let shown = root
    for (const { at: place, object } of open) {
      if (shown.length > pathMax) {
        return `${shown.slice(0, pathMax)}…`
      }
      if (!object) {
        shown += `[${place}]`
      } else if (place >= 0) {
        const end = stringEnd(place)
        const key: unknown = typeof end === "number" ? JSON.parse(text.slice(place, end)) : ""
        const name = String(key).slice(0, keyShownMax)
        shown += wordPattern.test(name) ? `.${name}` : `[${JSON.stringify(name)}]`
      }
    }
    return shown
  }

  const refuse = (kind: Refused["kind"], reason: string): Refused => ({ kind, path: path(), reason })
  const malformed = (): Refused =>
    refuse(
      "syntax",
      at < text.length ? `is not valid JSON: see character ${at + 1}` : "is not valid JSON: it ends early"
    )

  const space = () => {
    for (;;) {
      const code = text.charCodeAt(at)
      if (code !== 32 && code !== 10 && code !== 13 && code !== 9) return
      at++
    }
  }

  /** Where the string that begins at `from` ends, or why it does not pass. */
  const stringEnd = (from: number): number | Refused["kind"] => {
    let position = from + 1
    // Half a pair that waits for its other half, in the same spelling: encoding the text would tear a mixed pair.
    let half: "raw" | "escaped" | null = null
    while (position < text.length) {
      const code = text.charCodeAt(position)
      let unit = code
      let spelling: "raw" | "escaped" = "raw"
      let length = 1
      if (code === quote) {
        return half === null ? position + 1 : "surrogate"
      }
      if (code < 32) {
        return code === 0 ? "nul" : "syntax"
      }
      if (code === backslash) {
        const escape = text[position + 1] ?? ""
        if (escape === "u") {
          const digits = text.slice(position + 2, position + 6)
          if (!/^[0-9a-fA-F]{4}$/.test(digits)) return "syntax"
          unit = Number.parseInt(digits, 16)
          length = 6
          if (unit === 0) return "nul"
        } else if (escape !== "" && "\"\\/bfnrt".includes(escape)) {
          unit = 0
          length = 2
        } else {
          return "syntax"
        }
        spelling = "escaped"
      }
      const low = unit >= 0xdc00 && unit <= 0xdfff
      if (low !== (half !== null) || (low && half !== spelling)) {
        return "surrogate"
      }
      half = unit >= 0xd800 && unit <= 0xdbff ? spelling : null
      position += length
    }
    return "syntax"
  }

  const string = (what: "holds" | "has a key with"): Refused | null => {
    const end = stringEnd(at)
    switch (end) {
      case "nul":
        return refuse("nul", `${what} the character U+0000, which cannot be stored`)
      case "surrogate":
        return refuse("surrogate", `${what} half of a surrogate pair, which cannot be stored`)
      case "syntax":
      case "depth":
      case "number":
        return malformed()
    }
    at = end
    return null
  }

  /** A key and its colon. */
  const key = (holder: Open): Refused | null => {
    holder.at = -1
    if (text.charCodeAt(at) !== quote) return malformed()
    const from = at
    const refused = string("has a key with")
    if (refused !== null) return refused
    holder.at = from
    space()
    if (text[at] !== ":") return malformed()
    at++
    return null
  }

  for (;;) {
    space()
    const first = text[at]
    if (first === "{" || first === "[") {
      if (open.length >= depthMax) {
        return refuse("depth", `is nested deeper than ${depthMax} levels`)
      }
      const holder: Open = { object: first === "{", at: first === "{" ? -1 : 0 }
      at++
      space()
      if (text[at] !== (holder.object ? "}" : "]")) {
        open.push(holder)
        const refused = holder.object ? key(holder) : null
        if (refused !== null) return refused
        continue
      }
      at++
    } else if (first === "\"") {
      const refused = string("holds")
      if (refused !== null) return refused
    } else if (text.startsWith("true", at) || text.startsWith("null", at)) {
      at += 4
    } else if (text.startsWith("false", at)) {
      at += 5
    } else {
      const end = numberEnd(text, at)
      if (end === at) return malformed()
      if (!survives(text.slice(at, end))) {
        return refuse("number", "is a number that would be changed by storing it: send it as a string")
      }
      at = end
    }
    // A value has ended: so may any number of what holds it.
    for (;;) {
      space()
      const holder = open.at(-1)
      if (holder === undefined) {
        return at === text.length ? null : malformed()
      }
      if (text[at] === ",") {
        at++
        space()
        if (!holder.object) {
          holder.at++
          break
        }
        const refused = key(holder)
        if (refused !== null) return refused
        break
      }
      if (text[at] !== (holder.object ? "}" : "]")) return malformed()
      at++
      open.pop()
    }
  }
}

/**
 * One text for all JSON that means the same: keys sorted, no spaces, numbers and strings in one spelling.
 *
 * For values that `check` let pass: their depth is what bounds the recursion.
 */
export const canonical = (value: unknown): string => {
  if (Array.isArray(value)) {
    return `[${value.map(canonical).join(",")}]`
  }
  if (typeof value === "object" && value !== null) {
    const members = Object.entries(value).sort(([a], [b]) => a < b ? -1 : 1)
    return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${canonical(member)}`).join(",")}}`
  }
  return JSON.stringify(value) ?? "null"
}
