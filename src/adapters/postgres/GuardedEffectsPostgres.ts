/**
 * `GuardedEffects` in one statement: the lock on the job with the check of the claim, the guard's row, and the commit.
 *
 * What the runs of a process ask for at the same time shares a statement: while one is under way the next gathers. The
 * rows of those whose claim is not current are not inserted, and cost the others nothing. A statement that waits for a
 * lock, loses a deadlock or meets a key that cannot be stored is sent again entry by entry, so that one is to blame.
 *
 * Jobs are locked in the order of their ids and keys taken in their own order, so two statements cannot deadlock. Since
 * it is one round trip, there is no moment at which a worker that freezes has a job locked.
 */
import { Effect, FiberSet, Layer } from "effect"
import type { Claim } from "../../domain/Claim.ts"
import { ClaimNotCurrent, GuardedEffects, GuardedEffectsUnavailable } from "../../ports/GuardedEffects.ts"
import { Database, ints, texts, uuids } from "./Database.ts"
import type { DatabaseFailed } from "./DatabaseFailed.ts"
import { state } from "./store/Rows.ts"

const deadlineMs = 2_000
const batchMax = 500
const queueMax = 10_000
/** Of the connections for handlers one stays free for their transactions. */
const flightsMax = 2

const onceSql = `WITH x AS MATERIALIZED (
    SELECT x.* FROM unnest($1::text[], $2::uuid[], $3::int[], $4::uuid[], $5::text[]) WITH ORDINALITY
      AS x(key, id, epoch, lease, worker, ord)
    ORDER BY x.id
  ),
  c AS MATERIALIZED (
    SELECT x.* FROM x CROSS JOIN LATERAL (
      SELECT q.id FROM deadman.job q
      WHERE q.id = x.id AND q.epoch = x.epoch AND q.lease = x.lease AND q.state = ${state.running}
      LIMIT 1 FOR NO KEY UPDATE
    ) j
  ),
  i AS (
    INSERT INTO deadman.effect (key, job, epoch, worker, at_ms)
    SELECT c.key, c.id, c.epoch, c.worker, deadman.now_ms() FROM c ORDER BY c.key
    ON CONFLICT (key) DO NOTHING
    RETURNING key
  )
  SELECT c.ord::int AS ord, i.key IS NOT NULL AS fired FROM c LEFT JOIN i ON i.key = c.key`

interface FiredRow {
  readonly ord: number
  readonly fired: boolean
}

type Said = Effect.Effect<"fired" | "already", ClaimNotCurrent | GuardedEffectsUnavailable>

interface Entry {
  readonly claim: Claim
  readonly key: string
  readonly worker: string
  readonly answer: (said: Said) => void
}

const isApart = ({ kind }: DatabaseFailed): boolean => kind === "locked" || kind === "deadlock" || kind === "refused"

const make = Effect.gen(function*() {
  const database = yield* Database
  const fork = yield* FiberSet.makeRuntime<never, void, never>()
  let queue: Array<Entry> = []
  let flights = 0
  let scheduled = false

  const send = (entries: ReadonlyArray<Entry>): Effect.Effect<void> =>
    database.query<FiredRow>("handler", onceSql, [
      texts(entries.map(({ key }) => key)),
      uuids(entries.map(({ claim }) => claim.id)),
      ints(entries.map(({ claim }) => claim.epoch)),
      uuids(entries.map(({ claim }) => claim.lease)),
      texts(entries.map(({ worker }) => worker))
    ], { deadlineMs }).pipe(
      Effect.map((rows) => {
        const fired = new Map(rows.map((row) => [row.ord, row.fired]))
        for (const [index, { answer, claim }] of entries.entries()) {
          const found = fired.get(index + 1)
          answer(
            found === undefined
              ? Effect.fail(new ClaimNotCurrent({ claim }))
              : Effect.succeed(found ? "fired" : "already")
          )
        }
      }),
      Effect.catch((cause) =>
        entries.length > 1 && isApart(cause)
          ? Effect.forEach(entries, (entry) => send([entry]), { discard: true })
          : Effect.sync(() => {
            const unavailable = Effect.fail(new GuardedEffectsUnavailable({ cause }))
            for (const { answer } of entries) answer(unavailable)
          })
      )
    )

  /** Each key once: who asks for the same one waits for the next statement, and sees what became of it. */
  const take = (): ReadonlyArray<Entry> => {
    const keys = new Set<string>()
    const taken: Array<Entry> = []
    const left: Array<Entry> = []
    for (const entry of queue) {
      if (taken.length < batchMax && !keys.has(entry.key)) {
        keys.add(entry.key)
        taken.push(entry)
      } else {
        left.push(entry)
      }
    }
    queue = left
    return taken
  }

  const pump = () => {
    scheduled = false
    while (flights < flightsMax && queue.length > 0) {
      flights += 1
      const entries = take()
      fork(
        send(entries).pipe(Effect.ensuring(Effect.sync(() => {
          flights -= 1
          pump()
        })))
      )
    }
  }

  // What is asked for in one turn of the event loop leaves in one statement.
  const once: GuardedEffects["Service"]["once"] = (claim, key, worker) =>
    Effect.callback((resume) => {
      if (queue.length >= queueMax) {
        resume(Effect.fail(new GuardedEffectsUnavailable({ cause: new Error(`${queueMax} effects wait already`) })))
        return
      }
      queue.push({ claim, key, worker, answer: resume })
      if (!scheduled) {
        scheduled = true
        queueMicrotask(pump)
      }
    })

  return GuardedEffects.of({ once })
})

export const layer: Layer.Layer<GuardedEffects, never, Database> = Layer.effect(GuardedEffects, make)
