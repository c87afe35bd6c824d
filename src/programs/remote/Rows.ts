/**
 * Those who wait for work, in rows: who waits for the same stands in the same row.
 *
 * When something became ready, or a second has passed, the first of a row is tried, and the next only if that one got
 * something. So a thousand that wait cost what one costs. A busy system wakes all the time, and mostly for others: a row
 * that is woken in vain looks less often for a while.
 */
import { Effect, Random, type Scope } from "effect"
import * as Signal from "../worker/Signal.ts"

/** Without a wake, a row looks this often; jittered. */
const lookEveryMs = 1_000
/** Rows that look without a wake in one round; the others come with the next ones. */
const rowsPerRound = 100
/** Between two looks of a row that is woken in vain all the time: doubles from the one to the other. */
const vainMinMs = 10
const vainMaxMs = 100

interface Row<A> {
  readonly key: string
  readonly waiting: Set<A>
  looking: boolean
  /** Woken since its look began. */
  again: boolean
  /** When it last looked in vain, and how long it waits after that. */
  vainAtMs: number
  vainMs: number
}

/** What became of a look. */
export type Became = "took" | "nothing" | "failed"

export interface Rows<A> {
  /** At the end of its row. `again`: something became ready since it looked itself. */
  readonly join: (key: string, waiter: A, again: boolean) => void
  readonly leave: (waiter: A) => void
  readonly wake: () => void
  /** How often it was woken: whoever looks by itself compares. */
  readonly wakes: () => number
  readonly stop: () => void
  /** Ends only by interruption. */
  readonly run: Effect.Effect<never>
}

export const make = Effect.fnUntraced(function*<A>(options: {
  /** Looks for one that waits, who leaves its row for it, and joins it again if it is to wait on. */
  readonly look: (waiter: A) => Effect.Effect<Became>
  /** Said of those that wait on, each second of one of each row. */
  readonly waits: (waiter: A) => void
  /** How long to wait after a look that failed. */
  readonly pauseMs: Effect.Effect<number>
  /** What else is to be done now and then. */
  readonly beside: Effect.Effect<void>
  readonly now: () => number
}): Effect.fn.Return<Rows<A>, never, Scope.Scope> {
  const { now } = options
  const scope = yield* Effect.scope
  const rows = new Map<string, Row<A>>()
  const rowOf = new Map<A, Row<A>>()
  /** Rows for `run` to look at. */
  const told = new Set<Row<A>>()
  const woken = Signal.make()
  let wakes = 0
  let stopped = false

  const tell = (row: Row<A>) => {
    told.add(row)
    woken.notify()
  }

  const look = Effect.fnUntraced(function*(row: Row<A>) {
    while (!stopped) {
      const soonMs = row.vainAtMs + row.vainMs - now()
      if (soonMs > 0) {
        yield* Effect.sleep(Math.ceil(soonMs))
      }
      row.again = false
      const [first] = row.waiting
      if (first === undefined) {
        return
      }
      const became = yield* options.look(first)
      if (became === "failed") {
        return yield* Effect.flatMap(options.pauseMs, Effect.sleep)
      }
      if (became === "took") {
        row.vainMs = 0
        continue
      }
      const atMs = now()
      row.vainMs = atMs - row.vainAtMs > lookEveryMs / 2 ? vainMinMs : Math.min(vainMaxMs, row.vainMs * 2 || vainMinMs)
      row.vainAtMs = atMs
      if (!row.again) {
        return
      }
    }
  })

  const drop = (row: Row<A>) => {
    if (row.waiting.size === 0 && !row.looking && rows.get(row.key) === row) {
      rows.delete(row.key)
    }
  }

  const start = (row: Row<A>): Effect.Effect<void> =>
    Effect.suspend(() => {
      if (row.looking) {
        row.again = true
        return Effect.void
      }
      row.looking = true
      const looked = Effect.ensuring(
        look(row),
        Effect.sync(() => {
          row.looking = false
          drop(row)
          if (row.again && row.waiting.size > 0) {
            tell(row)
          }
        })
      )
      return Effect.asVoid(Effect.forkIn(looked, scope))
    })

  return {
    join: (key, waiter, again) => {
      const row: Row<A> = rows.get(key) ??
        { key, waiting: new Set(), looking: false, again: false, vainAtMs: Number.NEGATIVE_INFINITY, vainMs: 0 }
      rows.set(key, row)
      row.waiting.add(waiter)
      rowOf.set(waiter, row)
      if (again) {
        tell(row)
      }
    },
    leave: (waiter) => {
      const row = rowOf.get(waiter)
      if (row !== undefined) {
        rowOf.delete(waiter)
        row.waiting.delete(waiter)
        drop(row)
      }
    },
    wake: () => {
      wakes += 1
      for (const row of rows.values()) {
        tell(row)
      }
    },
    wakes: () => wakes,
    stop: () => {
      stopped = true
    },
    run: Effect.gen(function*() {
      let nextMs = now() + lookEveryMs
      while (true) {
        yield* woken.wait(Math.max(1, nextMs - now()))
        const due = Array.from(told)
        told.clear()
        for (const row of due) {
          yield* start(row)
        }
        if (now() >= nextMs) {
          nextMs = now() + lookEveryMs * (0.75 + (yield* Random.next) / 2)
          for (const row of Array.from(rows.values()).slice(0, rowsPerRound)) {
            // To the end of the order, so that each has its turn.
            rows.delete(row.key)
            rows.set(row.key, row)
            const [first] = row.waiting
            if (first !== undefined) {
              options.waits(first)
            }
            yield* start(row)
          }
          yield* Effect.forkIn(options.beside, scope)
        }
      }
    })
  }
})
