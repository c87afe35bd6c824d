/**
 * A port that nothing listens on, for a server that will take it in a while, or leave and come back to it.
 *
 * It lies below the ranges that connections draw their near end from, and an embedded Postgres its port, is drawn by no
 * other process of the run, and by this one once: what is only seen to be free may be somebody else's by the time that
 * a program has started.
 */
import { Effect } from "effect"
import { randomInt } from "node:crypto"
import * as Ports from "../../deploy/services/Ports.ts"

const [lowest, highest] = [10_000, 15_000]
/** For the set-up of the run, and its processes of tests, of which there are fewer at once. */
const slices = 8
const width = (highest - lowest) / slices

const first = lowest + Number(process.env["VITEST_POOL_ID"] ?? 0) % slices * width
const drawn = new Set<number>()

export const freePort: Effect.Effect<number> = Effect.gen(function*() {
  for (let tries = 0; tries < 200; tries++) {
    const port = first + randomInt(width)
    if (drawn.has(port)) continue
    drawn.add(port)
    if (yield* Ports.isFree(port)) return port
  }
  return yield* Effect.die(new Error(`there is no free port between ${first} and ${first + width} on 127.0.0.1`))
})
