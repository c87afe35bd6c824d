/** What the suites have in common: drafts, submitters, waiting, and figures per job from two readings. */
import { Effect } from "effect"
import { plainJob } from "../../domain/Job.ts"
import type { JobDraft } from "../../ports/Submitter.ts"
import type { Sample } from "./Figures.ts"
import { BenchFailed, type Reading, type Site, Stage } from "./Stage.ts"

/** About 110 bytes, the same for every scheduler that is compared. */
export const payload = (n: number, sentMs: number | null = null): string =>
  JSON.stringify({
    id: n,
    to: `user${n}@example.com`,
    kind: "noop",
    note: "x".repeat(40),
    ...(sentMs === null ? {} : { t: sentMs })
  })

/** `count` jobs, a thousand a statement. */
export const fill = Effect.fnUntraced(function*(site: Site, count: number) {
  for (let from = 0; from < count; from += 1_000) {
    const drafts = Array.from(
      { length: Math.min(1_000, count - from) },
      (_, n) => plainJob(site.type, payload(from + n))
    )
    yield* submitAll(site, drafts)
  }
})

export const submitAll = (site: Site, drafts: ReadonlyArray<JobDraft>) =>
  Effect.mapError(
    site.submitter.submitAll(drafts),
    (error) => new BenchFailed({ message: `a batch was not stored: ${error.reason}` })
  )

/** `width` submitters, each sending its next when its last was answered. */
export const submitters = (site: Site, width: number, count: number) =>
  Effect.gen(function*() {
    let next = 0
    yield* Effect.all(
      Array.from({ length: width }, () =>
        Effect.gen(function*() {
          while (next < count) {
            const n = next++
            yield* site.submitter.submit(plainJob(site.type, payload(n)))
          }
        })),
      { concurrency: "unbounded", discard: true }
    )
  }).pipe(Effect.mapError((error) => new BenchFailed({ message: `a submit was not stored: ${error.reason}` })))

export const waitFor = Effect.fnUntraced(function*(
  what: string,
  seconds: number,
  every: number,
  done: Effect.Effect<boolean, BenchFailed>
) {
  const stage = yield* Stage
  const untilMs = (yield* stage.nowMs) + seconds * 1_000
  while (!(yield* done)) {
    if ((yield* stage.nowMs) > untilMs) {
      return yield* new BenchFailed({ message: `${what} took more than ${seconds} s` })
    }
    yield* Effect.sleep(every)
  }
})

/** CPU in µs, WAL in bytes, and transactions, each per job. */
export const perJob = (before: Reading, after: Reading, jobs: number, clientMs: number): Sample => ({
  "client µs/job": clientMs * 1_000 / jobs,
  "server µs/job": before.serverMs === null || after.serverMs === null
    ? null
    : (after.serverMs - before.serverMs) * 1_000 / jobs,
  "WAL B/job": (after.walBytes - before.walBytes) / jobs,
  "commits/job": (after.commits - before.commits) / jobs
})
