/**
 * Writing outcomes: one statement a batch, fenced by id, epoch, lease and `running` in its WHERE.
 *
 * What it did not find is looked up by a second statement, because the first has an old snapshot of whoever was
 * quicker. A batch that meets a locked row is sent again past the locked ones, so that they alone are undecided. A
 * result that Postgres refuses is left out, and said so on the job: a job must not stay `running` for it.
 */
import { Effect } from "effect"
import type { Settlement } from "../../../domain/Outcome.ts"
import type { JobStore, Settled } from "../../../ports/JobStore.ts"
import { bools, type Database, ints, laneFor, longs, texts, uuids } from "../Database.ts"
import type { DatabaseFailed } from "../DatabaseFailed.ts"
import { orUnavailable, type StoreOptions } from "./Rows.ts"
import * as Sql from "./SettleSql.ts"

const deadlockRetryMax = 4

const isPlain = (settlement: Settlement): boolean =>
  settlement.step === "complete" && settlement.result === null && settlement.failure === null && !settlement.recorded

const claimsOf = (settlements: ReadonlyArray<Settlement>): ReadonlyArray<unknown> => [
  uuids(settlements.map(({ claim }) => claim.id)),
  ints(settlements.map(({ claim }) => claim.epoch)),
  uuids(settlements.map(({ claim }) => claim.lease))
]

const outcomesOf = (settlements: ReadonlyArray<Settlement>): ReadonlyArray<unknown> => [
  ints(settlements.map(({ step }) => Sql.stepCode[step])),
  ints(settlements.map(({ reason }) => Sql.reasonCode(reason))),
  longs(settlements.map(({ delayMs }) => Math.round(delayMs))),
  texts(settlements.map(({ result }) => result)),
  texts(settlements.map(({ failure }) => failure === null ? null : failure.name)),
  texts(settlements.map(({ failure }) => failure === null ? null : failure.message)),
  bools(settlements.map(({ recorded }) => recorded))
]

/** The same step without the text that could not be stored. */
const withoutText = (settlement: Settlement): Settlement => ({
  ...settlement,
  result: null,
  failure: settlement.failure === null && settlement.result === null
    ? null
    : { name: "Unstorable", message: "Postgres refused the text of this outcome, so it was left out." }
})

/** What the record says of a claim that is not the current one. */
export const fate = (epoch: number, row: Sql.FoundRow | undefined): Settled => {
  // Pruned, or forgotten by a failover: nothing to record it on.
  if (row === undefined) return { _tag: "Stale", currentEpoch: 0 }
  const stale: Settled = { _tag: "Stale", currentEpoch: row.current }
  const repeated: Settled = { _tag: "Settled", repeated: true }
  if (epoch > row.current) return stale
  if (epoch === row.current) {
    if (!row.ours) return stale
    return row.running ? { _tag: "Undecided" } : repeated
  }
  if (row.settled_epoch === epoch) return row.settled_ours ? repeated : stale
  // Its ending is on record, older than what is kept about it.
  return row.lost ? stale : repeated
}

export const make = (db: Database["Service"], options: StoreOptions): Pick<JobStore["Service"], "settle"> => {
  const sql = Sql.make(options)
  const recorded: Settled = { _tag: "Settled", repeated: false }
  type Fates = Map<Settlement, Settled>

  const write = (batch: ReadonlyArray<Settlement>, plain: boolean, careful: boolean) => {
    const lane = laneFor(batch.length)
    const { any, anyCareful, completed, completedCareful } = lane === "quick" ? sql.few : sql.many
    return plain
      ? db.query<Sql.MissedRow>(lane, careful ? completedCareful : completed, claimsOf(batch))
      : db.query<Sql.MissedRow>(lane, careful ? anyCareful : any, [...claimsOf(batch), ...outcomesOf(batch)])
  }

  const attempt = (
    batch: ReadonlyArray<Settlement>,
    plain: boolean,
    careful: boolean,
    fates: Fates
  ): Effect.Effect<void, DatabaseFailed> =>
    write(batch, plain, careful).pipe(
      Effect.retry({ times: deadlockRetryMax, while: (error) => error.kind === "deadlock" }),
      Effect.map((rows) => {
        const missed = new Set(rows[0]?.missed ?? [])
        for (const [index, settlement] of batch.entries()) {
          if (!missed.has(index + 1)) fates.set(settlement, recorded)
        }
      }),
      Effect.catchIf((error) => error.kind === "locked" && !careful, () => attempt(batch, plain, true, fates)),
      Effect.catchIf((error) => error.kind === "refused" && !plain, () => {
        const [only] = batch
        if (batch.length === 1 && only !== undefined) {
          const bare = withoutText(only)
          return bare.result === only.result && bare.failure?.name === only.failure?.name
            ? Effect.void
            : Effect.suspend(() => {
              const inner: Fates = new Map()
              return Effect.map(attempt([bare], false, careful, inner), () => {
                const found = inner.get(bare)
                if (found !== undefined) fates.set(only, found)
              })
            })
        }
        const middle = batch.length >> 1
        return Effect.andThen(
          attempt(batch.slice(0, middle), false, careful, fates),
          attempt(batch.slice(middle), false, careful, fates)
        )
      })
    )

  const lookUp = Effect.fnUntraced(function*(missed: ReadonlyArray<Settlement>, fates: Fates) {
    const rows = yield* db.query<Sql.FoundRow>("hot", Sql.find, claimsOf(missed))
    const found = new Map(rows.map((row) => [row.ord - 1, row]))
    const stale: Array<Settlement> = []
    for (const [index, settlement] of missed.entries()) {
      const row = found.get(index)
      const answer = fate(settlement.claim.epoch, row)
      fates.set(settlement, answer)
      if (answer._tag === "Stale" && row !== undefined) stale.push(settlement)
    }
    if (stale.length > 0) {
      // A refused write is counted where that is possible; the refusal does not depend on it.
      yield* db.query("hot", Sql.recordStale, [...claimsOf(stale), texts(stale.map(({ step }) => step))]).pipe(
        Effect.catch((error) => Effect.logDebug("A stale write was not counted", error.message))
      )
    }
  })

  const settle: JobStore["Service"]["settle"] = Effect.fnUntraced(function*(settlements) {
    const fates: Fates = new Map()
    const plain = settlements.filter(isPlain)
    // One claim once: of two writes under one claim the second is a repeat, whatever it carries.
    const seen = new Set<string>()
    const others = settlements.filter((settlement) => {
      if (isPlain(settlement)) return false
      const name = `${settlement.claim.id} ${settlement.claim.epoch} ${settlement.claim.lease}`
      return !seen.has(name) && seen.add(name) !== undefined
    })
    yield* orUnavailable("settle")(Effect.all([
      plain.length === 0 ? Effect.void : attempt(plain, true, false, fates),
      others.length === 0 ? Effect.void : attempt(others, false, false, fates)
    ], { concurrency: 2, discard: true }))
    const missed = settlements.filter((settlement) => !fates.has(settlement))
    if (missed.length > 0) yield* orUnavailable("settle")(lookUp(missed, fates))
    return settlements.map((settlement): Settled => fates.get(settlement) ?? { _tag: "Undecided" })
  })

  return { settle }
}
