/**
 * `LeaseRegister` in the record itself: the row that the claim wrote.
 *
 * A renewal moves the row's token, so one look serves both, and there is
 * nothing to mark before a reclaim. Rows come and go with claims only: holding
 * makes none, and releasing takes none away.
 *
 * Rows are locked in the order of their ids, as everywhere.
 */
import { Effect, Layer } from "effect"
import type { LeaseId } from "../../domain/Claim.ts"
import { LeaseRegister, LeaseRegisterUnavailable, type Renewal } from "../../ports/LeaseRegister.ts"
import { Database, uuids } from "./Database.ts"

/** A heartbeat that is answered later than this was no use. */
const deadlineMs = 1_200

const locked = (where: string) =>
  `o AS MATERIALIZED (
     SELECT id FROM deadman.lease WHERE id = ANY($1::uuid[]) ${where} ORDER BY id FOR NO KEY UPDATE
   )`

const holdSql = `
  WITH ${locked("AND lapsed")}
  UPDATE deadman.lease l SET lapsed = false FROM o WHERE l.id = o.id`

const renewSql = `
  WITH ${locked("AND NOT lapsed")}
  UPDATE deadman.lease l SET token = l.token + 1, seen_at_ms = deadman.now_ms()
  FROM o
  WHERE l.id = o.id AND NOT l.lapsed
  RETURNING l.id, l.revoked IS NOT NULL AS check`

const lookSql = `
  SELECT concat_ws('/', m.incarnation, extract(epoch FROM pg_postmaster_start_time())) AS incarnation, l.id, l.token::text AS token
  FROM deadman.meta m
  LEFT JOIN deadman.lease l ON l.id = ANY($1::uuid[])`

const markSql = `UPDATE deadman.lease SET lapsed = true WHERE id = $1::uuid AND token = $2::text::bigint RETURNING id`

const flagSql = `
  WITH ${locked("AND revoked IS NULL")}
  UPDATE deadman.lease l SET revoked = coalesce(l.revoked, '[]') FROM o WHERE l.id = o.id`

const knownSql = `SELECT id FROM deadman.lease WHERE id = $1::uuid`

const ids = (leases: ReadonlyArray<{ readonly lease: LeaseId }>) => uuids(leases.map(({ lease }) => lease))

const make = Effect.gen(function*() {
  const database = yield* Database

  const query = <Row extends object>(
    operation: LeaseRegisterUnavailable["operation"],
    text: string,
    params: ReadonlyArray<unknown>
  ) =>
    database.query<Row>("vital", text, params, { deadlineMs }).pipe(
      Effect.mapError((cause) => new LeaseRegisterUnavailable({ operation, cause }))
    )

  const hold: LeaseRegister["Service"]["hold"] = Effect.fn("LeaseRegisterPostgres.hold")(function*(leases) {
    if (leases.length > 0) {
      yield* query("hold", holdSql, [ids(leases)])
    }
  })

  const renew: LeaseRegister["Service"]["renew"] = Effect.fn("LeaseRegisterPostgres.renew")(function*(leases) {
    if (leases.length === 0) {
      return []
    }
    const rows = yield* query<{ id: LeaseId; check: boolean }>(
      "renew",
      renewSql,
      [ids(leases)]
    )
    const found = new Map(rows.map(({ check, id }) => [id, check]))
    return leases.map(({ lease }): Renewal => {
      const check = found.get(lease)
      return check === undefined ? "lost" : check ? "check" : "held"
    })
  })

  const look: LeaseRegister["Service"]["look"] = Effect.fn("LeaseRegisterPostgres.look")(function*(leases) {
    const rows = yield* query<{ incarnation: string; id: LeaseId | null; token: string }>(
      "look",
      lookSql,
      [uuids(leases)]
    )
    const tokens = new Map<LeaseId, string>()
    for (const { id, token } of rows) {
      if (id !== null) {
        tokens.set(id, token)
      }
    }
    return { incarnation: rows[0]?.incarnation ?? "", tokens }
  })

  const markLapsed: LeaseRegister["Service"]["markLapsed"] = Effect.fn("LeaseRegisterPostgres.markLapsed")(
    function*(lease, token) {
      if (token === null) {
        return (yield* query("markLapsed", knownSql, [lease])).length === 0
      }
      // A token that is no number is none of ours.
      return /^\d{1,18}$/.test(token) && (yield* query("markLapsed", markSql, [lease, token])).length > 0
    }
  )

  const flag: LeaseRegister["Service"]["flag"] = Effect.fn("LeaseRegisterPostgres.flag")(function*(leases) {
    if (leases.length > 0) {
      yield* query("flag", flagSql, [uuids(leases)])
    }
  })

  return LeaseRegister.of({ isRecord: true, hold, renew, release: () => Effect.void, look, markLapsed, flag })
})

export const layer: Layer.Layer<LeaseRegister, never, Database> = Layer.effect(LeaseRegister, make)
