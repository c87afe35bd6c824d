/** How fast jobs are taken in: one by one in process, in bulk, and over HTTP. */
import { Effect, type Scope } from "effect"
import { plainJob } from "../../domain/Job.ts"
import type { Sample } from "./Figures.ts"
import type { Case } from "./Runner.ts"
import { type BenchFailed, Stage } from "./Stage.ts"
import * as Work from "./Work.ts"

const warmUp = 500

const inProcess = (width: number, count: number): Effect.Effect<Sample, BenchFailed, Stage | Scope.Scope> =>
  Effect.gen(function*() {
    const stage = yield* Stage
    const site = yield* stage.site
    yield* Work.submitters(site, width, Math.min(warmUp, count))
    yield* site.settle
    const before = yield* site.reading
    const startMs = yield* stage.nowMs
    yield* Work.submitters(site, width, count)
    const tookMs = (yield* stage.nowMs) - startMs
    const after = yield* site.reading
    return { "jobs/s": count / tookMs * 1_000, ...Work.perJob(before, after, count, after.clientMs - before.clientMs) }
  })

const bulk = (size: number, count: number): Effect.Effect<Sample, BenchFailed, Stage | Scope.Scope> =>
  Effect.gen(function*() {
    const stage = yield* Stage
    const site = yield* stage.site
    yield* Work.fill(site, 2_000)
    yield* site.settle
    const before = yield* site.reading
    const startMs = yield* stage.nowMs
    for (let from = 0; from < count; from += size) {
      const drafts = Array.from(
        { length: Math.min(size, count - from) },
        (_, n) => plainJob(site.type, Work.payload(from + n))
      )
      yield* Work.submitAll(site, drafts)
    }
    const tookMs = (yield* stage.nowMs) - startMs
    const after = yield* site.reading
    return { "jobs/s": count / tookMs * 1_000, ...Work.perJob(before, after, count, after.clientMs - before.clientMs) }
  })

/** Against a bare `node:http` server under the same load, in the same run of the case. */
const http = (clients: number, count: number): Effect.Effect<Sample, BenchFailed, Stage | Scope.Scope> =>
  Effect.gen(function*() {
    const stage = yield* Stage
    const site = yield* stage.site
    const bare = yield* stage.hello
    const { cpuMs, port } = yield* site.server
    const body = JSON.stringify({ type: site.type, payload: JSON.parse(Work.payload(1)) })
    const load = { clients, method: "POST", path: "/jobs", body } as const
    const timed = Effect.fnUntraced(function*(to: number, requests: number) {
      const startMs = yield* stage.nowMs
      yield* site.http({ ...load, port: to, requests })
      return requests / ((yield* stage.nowMs) - startMs) * 1_000
    })
    yield* timed(bare, warmUp * 4)
    yield* timed(port, warmUp * 4)
    yield* site.settle
    const hello = yield* timed(bare, count)
    const before = yield* site.reading
    const cpuBefore = yield* cpuMs
    const rate = yield* timed(port, count)
    const after = yield* site.reading
    return {
      "jobs/s": rate,
      "hello/s": hello,
      "of hello": rate / hello,
      ...Work.perJob(before, after, count, (yield* cpuMs) - cpuBefore)
    }
  })

export const cases = (jobs: number): ReadonlyArray<Case> => [
  ...[1, 16, 64].map((width): Case => ({
    suite: "submit",
    name: `${width} in process`,
    run: inProcess(width, width === 1 ? Math.ceil(jobs / 10) : jobs)
  })),
  { suite: "submit", name: "bulk 1,000", run: bulk(1_000, Math.max(jobs, 10_000)) },
  { suite: "http", name: "64 keep-alive clients", run: http(64, jobs) }
]
