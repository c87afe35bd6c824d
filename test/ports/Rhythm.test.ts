/** The instants at which an idle process does what it does every few seconds. */
import { assert, describe, it } from "@effect/vitest"
import * as Rhythm from "../../src/ports/Rhythm.ts"

const made = (phaseMs: number) => {
  const clock = { ms: 1_000_000 }
  return { clock, rhythm: Rhythm.make(phaseMs, () => clock.ms) }
}

/** When each of some loops, that wait so long each time, is at its turn; each turn takes a little, and a timer may be late. */
const turns = (
  { clock, rhythm }: { readonly clock: { ms: number }; readonly rhythm: Rhythm.Rhythm },
  loops: ReadonlyArray<number>,
  forMs: number
) => {
  const next = loops.map((ms, n) => ({ ms, atMs: clock.ms + n * 317, turns: Array<number>() }))
  const untilMs = clock.ms + forMs
  while (true) {
    const loop = next.reduce((one, other) => other.atMs < one.atMs ? other : one)
    if (loop.atMs > untilMs) {
      return next.map((loop) => loop.turns)
    }
    clock.ms = Math.max(clock.ms, loop.atMs) + 3
    loop.turns.push(clock.ms)
    loop.atMs = clock.ms + Math.ceil(rhythm.within(loop.ms))
  }
}

describe("Rhythm", () => {
  it("loops that began whenever come together from their second turn on, the longer ones with the shorter", () => {
    for (let n = 0; n < 50; n++) {
      const world = made(n * 49.9)
      const loops = turns(world, [2_500, 5_000, 5_000, 5_000, 10_000, 20_000, 15_000], 300_000)
      const awake: Array<number> = []
      for (const atMs of loops.flatMap(([, ...later]) => later).sort((a, b) => a - b)) {
        if (atMs - (awake.at(-1) ?? 0) > 100) {
          awake.push(atMs)
        }
      }
      assert.isAtMost(awake.length, 300_000 / Rhythm.everyMs + 2)
      // Where the short loop sleeps longer the others wake nobody in between.
      const rare = turns(made(n * 49.9), [5_000, 5_000, 10_000, 20_000], 300_000)
      const wakes = new Set(rare.flatMap(([, ...later]) => later).map((atMs) => Math.round(atMs / 1_000)))
      assert.isAtMost(wakes.size, 300_000 / 5_000 + 4)
    }
  })

  it("nobody waits much longer than it asked for or hardly at all, and settled loops keep their time", () => {
    for (let n = 0; n < 200; n++) {
      const { clock, rhythm } = made(n * 12.3)
      for (const ms of [2_500, 3_000, 4_999, 5_000, 15_000, 25_000]) {
        clock.ms += n * 97.3
        const waitMs = rhythm.within(ms)
        assert.isAtMost(waitMs, ms + Rhythm.everyMs / 4)
        assert.isAtLeast(waitMs, Rhythm.everyMs / 4 - 1)
      }
      for (const ms of [2_500, 5_000, 10_000]) {
        const [first = [], second = []] = turns({ clock, rhythm }, [ms, ms], 10 * ms)
        for (const loop of [first.slice(1), second.slice(1)]) {
          loop.slice(1).forEach((atMs, n) => assert.approximately(atMs - loop[n]!, ms, 20))
        }
      }
    }
  })

  it("what is shorter than the rhythm is left alone", () => {
    const { rhythm } = made(1_234)
    assert.deepStrictEqual([0, 1, 500, 2_499].map(rhythm.within), [0, 1, 500, 2_499])
  })

  it("processes with other phases come at other instants", () => {
    const waits = [0, 500, 1_000, 1_500, 2_000].map((phaseMs) => made(phaseMs).rhythm.within(5_000))
    assert.strictEqual(new Set(waits).size, 5)
  })
})
