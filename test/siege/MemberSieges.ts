/** A worker that is killed while far more waits than all can run: what it held must not queue behind that. */
import { Duration, Effect } from "effect"
import * as Processes from "../support/Processes.ts"
import * as Arena from "./Arena.ts"
import { allClean, law, quantile, spread } from "./Findings.ts"

export const backlog = Effect.fn("MemberSieges.backlog")(function*(options: {
  readonly leaseMs: number
  readonly workers: number
  readonly threads: number
  readonly jobs: number
  readonly sleepMs: number
}) {
  const arena = yield* Arena.make(options)
  const { api } = yield* arena.server()
  const crew = yield* Effect.forEach(
    Array.from({ length: options.workers }, (_, n) => n),
    (n) => arena.worker(`crew${n}`)
  )
  const accepted = yield* Arena.submitAll(
    api,
    Array.from({ length: options.jobs }, () => ({ type: "sleep", payload: options.sleepMs }))
  )
  const slots = options.workers * options.threads
  const heldBy = (state: number) =>
    arena.rows<{ id: string; epoch: number }>(
      `SELECT id::text, epoch FROM deadman.job WHERE state = ${state} AND worker LIKE 'crew0-%'`
    )
  yield* Processes.eventually(
    "every slot is taken, and every worker has worked for a while",
    Effect.map(Arena.states(arena), ({ completed, running }) => completed >= 2 * slots && running >= slots),
    "60 seconds"
  )
  yield* crew[0]!.signal("SIGKILL")
  const killedMs = yield* Arena.nowMs
  const held = yield* heldBy(1)
  const list = held.map(({ id }) => `'${id}'`).join()
  const pendingMs: Array<number> = []
  let left = 0
  yield* Processes.eventually(
    "what it held runs again",
    Effect.gen(function*() {
      const rows = yield* arena.rows<{ epoch: number; started: number }>(
        `SELECT epoch, started_at_ms::float8 AS started FROM deadman.job WHERE id IN (${list}) AND epoch > 1`
      )
      if (rows.length < held.length) {
        return false
      }
      pendingMs.push(...rows.map(({ started }) => started - killedMs))
      left = (yield* Arena.states(arena)).pending
      return true
    }),
    Duration.millis(options.leaseMs * 3 + 30_000),
    "100 millis"
  )
  yield* Arena.drained(arena, Duration.millis(options.jobs * options.sleepMs / (slots - options.threads) + 60_000))
  const latest = quantile(pendingMs, 1) ?? Infinity
  return {
    findings: [
      ...(yield* Arena.judgeAll(arena, accepted)),
      yield* allClean(arena),
      law("the killed worker held jobs", held.length > 0, `${held.length}`),
      // Two workers' slots come free one after the other all the time; each of them may be a job's length away.
      law(
        "they run elsewhere within lease + 2 s of a slot's being free",
        latest <= options.leaseMs + 2_000 + options.sleepMs,
        `latest ${latest} ms after the kill`
      ),
      law("ahead of the backlog", left > 0, `${left} were still waiting`)
    ],
    figures: {
      ...options,
      held: held.length,
      left,
      after_kill_ms: spread(pendingMs)
    }
  }
})
