/** The instants at which an idle process does what it does every few seconds. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Ticks from "../../../src/programs/process/Ticks.ts"

const made = Effect.gen(function*() {
  const clock = { ms: 1_000_000 }
  const ticks = yield* Ticks.make(() => clock.ms)
  return { clock, ticks }
})

/** When each of some loops, that wait so long each time, is at its turn; each turn takes a little, and a timer may be late. */
const turns = (
  { clock, ticks }: { readonly clock: { ms: number }; readonly ticks: Ticks.Ticks },
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
    loop.atMs = clock.ms + Math.ceil(ticks.within(loop.ms))
  }
}

describe("Ticks", () => {
  it.effect("loops that began whenever come together from their second turn on, the longer ones with the shorter", () =>
    Effect.gen(function*() {
      for (let n = 0; n < 50; n++) {
        const world = yield* made
        const loops = turns(world, [2_500, 5_000, 5_000, 5_000, 10_000, 20_000, 15_000], 300_000)
        const awake: Array<number> = []
        for (const atMs of loops.flatMap(([, ...later]) => later).sort((a, b) => a - b)) {
          if (atMs - (awake.at(-1) ?? 0) > 100) {
            awake.push(atMs)
          }
        }
        assert.isAtMost(awake.length, 300_000 / Ticks.everyMs + 2)
        // Where the short loop sleeps longer the others wake nobody in between.
        const rare = turns(yield* made, [5_000, 5_000, 10_000, 20_000], 300_000)
        const wakes = new Set(rare.flatMap(([, ...later]) => later).map((atMs) => Math.round(atMs / 1_000)))
        assert.isAtMost(wakes.size, 300_000 / 5_000 + 4)
      }
    }))

  it.effect("nobody waits much longer than it asked for or hardly at all, and settled loops keep their time", () =>
    Effect.gen(function*() {
      for (let n = 0; n < 200; n++) {
        const { clock, ticks } = yield* made
        for (const ms of [2_500, 3_000, 4_999, 5_000, 15_000, 25_000]) {
          clock.ms += n * 97.3
          const waitMs = ticks.within(ms)
          assert.isAtMost(waitMs, ms + Ticks.everyMs / 4)
          assert.isAtLeast(waitMs, Ticks.everyMs / 4 - 1)
        }
        for (const ms of [2_500, 5_000, 10_000]) {
          const [first = [], second = []] = turns({ clock, ticks }, [ms, ms], 10 * ms)
          for (const loop of [first.slice(1), second.slice(1)]) {
            loop.slice(1).forEach((atMs, n) => assert.approximately(atMs - loop[n]!, ms, 20))
          }
        }
      }
    }))

  it.effect("what is shorter than a tick is left alone", () =>
    Effect.gen(function*() {
      const { ticks } = yield* made
      assert.deepStrictEqual([0, 1, 500, 2_499].map(ticks.within), [0, 1, 500, 2_499])
    }))

  it.effect("each process has its own phase", () =>
    Effect.gen(function*() {
      const waits = yield* Effect.forEach(Array.from({ length: 40 }), () =>
        Effect.map(made, ({ ticks }) => Math.round(ticks.within(5_000) / 100)))
      assert.isAbove(new Set(waits).size, 15)
    }))
})
