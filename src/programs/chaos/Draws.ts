/**
 * Numbers drawn from a seed: the same seed and name give the same sequence, on every machine and in every version.
 *
 * A name per purpose, so that another fault in the plan changes no payload.
 */

/** Uniform in [0, 1). */
export type Draw = () => number

/** FNV-1a, then a finish that spreads the last characters over all bits. */
const hash = (text: string, basis: number): number => {
  let value = basis
  for (let index = 0; index < text.length; index++) {
    value = Math.imul(value ^ text.charCodeAt(index), 0x01000193)
  }
  value = Math.imul(value ^ (value >>> 16), 0x85ebca6b)
  value = Math.imul(value ^ (value >>> 13), 0xc2b2ae35)
  return (value ^ (value >>> 16)) >>> 0
}

/** The generator `sfc32`, whose period is beyond any run. */
export const make = (seed: string, name: string): Draw => {
  const text = `${seed}/${name}`
  let a = hash(text, 0x811c9dc5)
  let b = hash(text, 0x9e3779b9)
  let c = hash(text, 0x2545f491)
  let d = 1
  const next = () => {
    const sum = (a + b + d) | 0
    d = (d + 1) | 0
    a = b ^ (b >>> 9)
    b = (c + (c << 3)) | 0
    c = ((c << 21) | (c >>> 11)) + sum | 0
    return (sum >>> 0) / 2 ** 32
  }
  // The first ones still show the seed.
  for (let skipped = 0; skipped < 12; skipped++) {
    next()
  }
  return next
}

export const between = (draw: Draw, low: number, high: number): number => low + draw() * (high - low)
