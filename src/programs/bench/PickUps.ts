/** How soon a job starts: from before its submit to the call of its handler, in another process. */
import { Effect, Random, type Scope } from "effect"
import { plainJob } from "../../domain/Job.ts"
import * as Drains from "./Drains.ts"
import { percentile, type Sample } from "./Figures.ts"
import type { Case } from "./Runner.ts"
import { type BenchFailed, type Site, Stage, type Worker } from "./Stage.ts"
import * as Work from "./Work.ts"

const warmUpMs = 15_000
const warmUpQuick = 20
const warmUpStepMs = 50

/** Jobs one after the other until some in a row are picked up at once: a worker may not be given deliveries yet. */
const warmUp = Effect.fnUntraced(function*(site: Site, worker: Worker) {
  const stage = yield* Stage
  yield* worker.takeLatencies
  const untilMs = (yield* stage.nowMs) + warmUpMs
  for (let quick = 0; quick < warmUpQuick && (yield* stage.nowMs) < untilMs;) {
    const job = plainJob(site.type, Work.payload(0, yield* stage.nowMs))
    yield* Effect.ignore(site.submitter.submit(job))
    yield* Effect.sleep(warmUpStepMs)
    const latencies = yield* worker.takeLatencies
    quick = latencies.length > 0 && latencies.every((ms) => ms < warmUpStepMs) ? quick + 1 : 0
  }
  // None of these is to come later.
  yield* Work.waitFor("the warm-up", 20, 50, Effect.map(site.outstanding, (left) => left === 0))
})

const pickUp = Effect.fnUntraced(function*(site: Site, worker: Worker, rate: number, seconds: number) {
  const stage = yield* Stage
  const count = Math.ceil(rate * seconds)
  yield* warmUp(site, worker)
  yield* site.settle
  yield* worker.takeLatencies
  const before = yield* site.reading
  const cpuMs = yield* worker.cpuMs
  const startMs = yield* stage.nowMs
  const stepMs = 1_000 / rate
  yield* Effect.scoped(Effect.gen(function*() {
    for (let n = 0; n < count; n++) {
      // Not in step with anything else on the machine.
      const dueMs = startMs + (n + (yield* Random.next)) * stepMs
      const waitMs = dueMs - (yield* stage.nowMs)
      if (waitMs > 0.5) {
        yield* Effect.sleep(waitMs)
      }
      const sentMs = yield* stage.nowMs
      yield* Effect.forkScoped(
        Effect.ignore(site.submitter.submit(plainJob(site.type, Work.payload(n, sentMs)))),
        { startImmediately: true }
      )
    }
    yield* Effect.sleep(200)
  }))
  const latencies: Array<number> = []
  yield* Work.waitFor(
    "picking up",
    20,
    50,
    Effect.map(worker.takeLatencies, (more) => {
      latencies.push(...more)
      return latencies.length >= count
    })
  )
  const after = yield* site.reading
  return {
    "p50 ms": percentile(latencies, 50),
    "p95 ms": percentile(latencies, 95),
    "p99 ms": percentile(latencies, 99),
    ...Work.perJob(before, after, count, (yield* worker.cpuMs) - cpuMs)
  }
})

const alone = (rate: number, seconds: number): Effect.Effect<Sample, BenchFailed, Stage | Scope.Scope> =>
  Effect.gen(function*() {
    const site = yield* (yield* Stage).site
    return yield* pickUp(site, yield* site.worker("noop"), rate, seconds)
  })

export const cases = (seconds: number): ReadonlyArray<Case> =>
  [50, 500].map((rate): Case => ({ suite: "pick-up", name: `${rate}/s`, run: alone(rate, seconds) }))

/** Beside rows that must not matter. */
const beside = (
  seed: "future" | "finished" | null,
  rows: number,
  jobs: number,
  seconds: number
): Effect.Effect<Sample, BenchFailed, Stage | Scope.Scope> =>
  Effect.gen(function*() {
    const site = yield* (yield* Stage).site
    const worker = yield* site.worker("noop")
    if (seed !== null) {
      yield* site.seed(seed, rows)
    }
    const { "p50 ms": p50, "p99 ms": p99 } = yield* pickUp(site, worker, 50, seconds)
    const drained = yield* Drains.drain(site, [worker], jobs)
    return { ...drained, "p50 ms": p50, "p99 ms": p99 }
  })

export const backlogCases = (rows: number, jobs: number, seconds: number): ReadonlyArray<Case> => {
  const many = rows.toLocaleString("en-GB")
  return [
    { suite: "backlog", name: "empty", run: beside(null, rows, jobs, seconds), roundsMax: 3 },
    { suite: "backlog", name: `${many} far-future`, run: beside("future", rows, jobs, seconds), roundsMax: 3 },
    { suite: "backlog", name: `${many} finished`, run: beside("finished", rows, jobs, seconds), roundsMax: 3 }
  ]
}
