/** How fast a backlog is worked off, until the store itself has nothing left. */
import { Effect, type Scope } from "effect"
import type { Sample } from "./Figures.ts"
import type { Case } from "./Runner.ts"
import { type BenchFailed, type Site, Stage, type Work as Kind, type Worker } from "./Stage.ts"
import * as Work from "./Work.ts"

const total = (workers: ReadonlyArray<Worker>) =>
  Effect.map(Effect.all(workers.map(({ handled }) => handled)), (counts) => counts.reduce((sum, n) => sum + n, 0))

const cpuOf = (workers: ReadonlyArray<Worker>) =>
  Effect.map(Effect.all(workers.map(({ cpuMs }) => cpuMs)), (each) => each.reduce((sum, ms) => sum + ms, 0))

/** Fills the paused type, lets the workers go, and waits for the store. */
export const drain = Effect.fnUntraced(function*(site: Site, workers: ReadonlyArray<Worker>, jobs: number) {
  const stage = yield* Stage
  yield* site.pause
  const before = yield* total(workers)
  yield* Work.fill(site, jobs)
  yield* site.settle
  const reading = yield* site.reading
  const cpuMs = yield* cpuOf(workers)
  const startMs = yield* stage.nowMs
  yield* site.resume
  yield* Work.waitFor(
    `a drain of ${jobs}`,
    120,
    3,
    Effect.map(total(workers), (handled) => handled - before >= jobs)
  )
  const handledMs = Math.max(...(yield* Effect.all(workers.map(({ lastMs }) => lastMs))))
  yield* Work.waitFor("the last outcomes", 30, 2, Effect.map(site.outstanding, (left) => left === 0))
  const tookMs = (yield* stage.nowMs) - startMs
  const clientMs = (yield* cpuOf(workers)) - cpuMs
  return {
    "jobs/s": jobs / tookMs * 1_000,
    "handler jobs/s": jobs / (handledMs - startMs) * 1_000,
    ...Work.perJob(reading, yield* site.reading, jobs, clientMs)
  }
})

const once = (
  kind: Kind,
  processes: number,
  jobs: number
): Effect.Effect<Sample, BenchFailed, Stage | Scope.Scope> =>
  Effect.gen(function*() {
    const site = yield* (yield* Stage).site
    const transactions = yield* site.transactions
    const workers = yield* Effect.all(Array.from({ length: processes }, () => site.worker(kind)))
    const filled = jobs / 1_000
    const sample = yield* drain(site, workers, jobs)
    const rssMb = Math.max(...(yield* Effect.all(workers.map((worker) => worker.rssMb))))
    yield* Effect.all(workers.map((worker) => worker.stop), { concurrency: "unbounded" })
    return {
      ...sample,
      // From the start of the processes to their end, without the fill.
      "statements/job": ((yield* site.transactions) - transactions - filled) / jobs,
      "RSS MB": rssMb
    }
  })

export const cases = (sizes: ReadonlyArray<number>): ReadonlyArray<Case> => {
  const [small = 20_000, middle = small, large = middle] = sizes
  const name = (jobs: number) => `${jobs.toLocaleString("en-GB")} noop, never ANALYZEd`
  return [
    ...[...new Set([small, middle, large])].map((jobs): Case => ({
      suite: "drain",
      name: name(jobs),
      run: once("noop", 1, jobs)
    })),
    { suite: "drain", name: `${name(middle)}, 2 processes`, run: once("noop", 2, middle) },
    {
      suite: "drain",
      name: `${Math.ceil(small / 4).toLocaleString("en-GB")} of 1 ms`,
      run: once("1ms", 1, Math.ceil(small / 4))
    }
  ]
}

const rounds = 6

/** Each round meets the dead rows of all before it, for an old snapshot keeps them. */
const pinned = (jobs: number): Effect.Effect<Sample, BenchFailed, Stage | Scope.Scope> =>
  Effect.gen(function*() {
    const site = yield* (yield* Stage).site
    const worker = yield* site.worker("noop")
    yield* Work.fill(site, jobs)
    yield* Work.waitFor("the warm-up", 60, 20, Effect.map(site.outstanding, (left) => left === 0))
    yield* site.pinned
    const rates: Array<number> = []
    for (let round = 0; round < rounds; round++) {
      rates.push((yield* drain(site, [worker], jobs))["handler jobs/s"])
    }
    return {
      ...Object.fromEntries(rates.map((rate, at) => [`round ${at + 1} jobs/s`, rate])),
      "last of first": rates[rounds - 1]! / rates[0]!
    }
  })

export const pinnedCases = (jobs: number): ReadonlyArray<Case> => [
  { suite: "pinned horizon", name: `${rounds} x ${jobs.toLocaleString("en-GB")}`, run: pinned(jobs), roundsMax: 3 }
]
