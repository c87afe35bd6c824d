/** What a worker costs that has nothing to do, and how soon others have the jobs of one that was killed. */
import { Effect, type Scope } from "effect"
import type { Sample } from "./Figures.ts"
import type { Case } from "./Runner.ts"
import { type BenchFailed, Stage } from "./Stage.ts"
import * as Work from "./Work.ts"

const idle = (seconds: number): Effect.Effect<Sample, BenchFailed, Stage | Scope.Scope> =>
  Effect.gen(function*() {
    const stage = yield* Stage
    const site = yield* stage.site
    const worker = yield* site.worker("noop")
    yield* Effect.sleep("4 seconds")
    yield* site.settle
    const before = yield* site.reading
    const cpuMs = yield* worker.cpuMs
    const startMs = yield* stage.nowMs
    yield* Effect.sleep(seconds * 1_000)
    const took = ((yield* stage.nowMs) - startMs) / 1_000
    const after = yield* site.reading
    return {
      "worker CPU ms/s": ((yield* worker.cpuMs) - cpuMs) / took,
      "server CPU ms/s": before.serverMs === null || after.serverMs === null
        ? null
        : (after.serverMs - before.serverMs) / took,
      "commits/s": (after.commits - before.commits) / took,
      "RSS MB": yield* worker.rssMb
    }
  })

/** A worker is killed in the middle of a backlog; the clock runs until the store has nothing left of what it held. */
const recovery = (jobs: number): Effect.Effect<Sample, BenchFailed, Stage | Scope.Scope> =>
  Effect.gen(function*() {
    const stage = yield* Stage
    const site = yield* stage.site
    // The reaper lives in the server, which runs no jobs here.
    yield* site.server
    const victim = yield* site.worker("1ms")
    const heir = yield* site.worker("1ms")
    const before = (yield* victim.handled) + (yield* heir.handled)
    yield* site.pause
    yield* Work.fill(site, jobs)
    yield* site.resume
    yield* Work.waitFor(
      "the first jobs",
      60,
      5,
      Effect.gen(function*() {
        return (yield* victim.handled) + (yield* heir.handled) - before >= jobs / 10
      })
    )
    const startMs = yield* stage.nowMs
    yield* victim.kill
    yield* Work.waitFor("the recovery", 60, 20, Effect.map(site.outstanding, (left) => left === 0))
    return { "seconds": ((yield* stage.nowMs) - startMs) / 1_000 }
  })

export const idleCases = (seconds: number): ReadonlyArray<Case> => [
  { suite: "idle", name: `${seconds} s`, run: idle(seconds), roundsMax: 3 }
]

export const recoveryCases = (jobs: number): ReadonlyArray<Case> => [
  { suite: "recovery", name: `of ${jobs.toLocaleString("en-GB")} jobs, one of two workers killed`, run: recovery(jobs) }
]
