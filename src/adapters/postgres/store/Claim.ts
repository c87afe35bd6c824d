/**
 * Taking jobs: one statement finds them in order, locks them past whoever is at it, writes the lease and the claims.
 *
 * Entries of the ready index that are dead but not yet cleaned would be walked again by each claim, for as long as
 * somebody's old snapshot keeps them. So while claims come back full, the next begins just below where the last one
 * did. What commits late, or has a higher priority, is found by a walk from the start, at least once a second and
 * after each claim that was not full, which says so. Who may take what others may not has a start of its own.
 *
 * While they do not come back full, what is ready is few as a rule, and a shorter statement takes it as a whole or not
 * at all.
 */
import { Clock, Effect } from "effect"
import { suspectLosses } from "../../../domain/Claim.ts"
import type { Queue } from "../../../domain/Job.ts"
import type { JobId } from "../../../domain/JobId.ts"
import { claimedToken, type ClaimRequest, type JobStore } from "../../../ports/JobStore.ts"
import { type Database, few, ints, laneFor, long, texts, uuids } from "../Database.ts"
import * as Sql from "./ClaimSql.ts"
import { orUnavailable, toClaimedJob } from "./Rows.ts"

/** Below every rank there can be. */
const rankMin = "-9223372036854775808"

/** How far below the last start the next one is: jobs commit in another order than they got their time in. */
const graceMs = 2_000

const fullWalkEveryNanos = 1_000_000_000n

/** How many sets of routes a process remembers a start for. */
const startMax = 64

/** Of sets of routes whose last claim of a kind came back full. */
interface Start {
  readonly rank: string
  readonly walkedNanos: bigint
}

/** A claim that outlived its lease would run jobs that are lost already. */
const deadlineMs = (request: ClaimRequest) => Math.max(50, Math.min(3_000, Math.floor(request.leaseMs * 0.8)))

/** What is left of that, for one of several statements. */
const leftMs = (request: ClaimRequest, begunNanos: bigint) =>
  Effect.map(
    Clock.monotonicTimeNanos,
    (nanos) => Math.max(50, deadlineMs(request) - Number((nanos - begunNanos) / 1_000_000n))
  )

const limited = ({ rooms = [] }: ClaimRequest) => rooms.length === 0 ? null : texts(rooms.map(({ queue }) => queue))

/** What the column can hold. */
const lossesMax = 32_768

/** The losses from which a job is not to be taken. */
const lossesOf = ({ freeSlots, lossesBelow = lossesMax }: ClaimRequest): number =>
  freeSlots > 0 ? lossesBelow : suspectLosses

const parameters = (request: ClaimRequest): ReadonlyArray<unknown> => [
  request.lease,
  request.leaseMs,
  request.worker,
  texts(request.types),
  request.queues === undefined ? null : texts(request.queues),
  request.limit,
  long(request.bytes),
  lossesOf(request)
]

/** Rows of a claim in order: the first says whether there may be more, where the statement does. */
type InOrderRow = Sql.RankedRow & Partial<Sql.RoomedRow>

/** Without the row that is there where nothing was taken. */
const taken = <Row extends Sql.RankedRow>(rows: ReadonlyArray<Row>): ReadonlyArray<Row> =>
  rows.filter((row) => row.id !== null)

/** The statement of a claim in order, and its parameters. */
const inOrder = (request: ClaimRequest, start: string, rooms: ReadonlyArray<Sql.RoomRow>) =>
  [
    rooms.length > 0 ? Sql.claimWithRooms : Sql.claim,
    [
      ...parameters(request),
      start,
      request.readyForMs === undefined ? null : String(request.readyForMs),
      ...(rooms.length > 0 ? [texts(rooms.map(({ queue }) => queue)), ints(rooms.map(({ room }) => room))] : [])
    ]
  ] as const

export const make = (db: Database["Service"]): Pick<JobStore["Service"], "claim" | "claimIds" | "recall"> => {
  const starts = new Map<string, Start>()
  /** When the shorter statement last would not do, by what was asked for. */
  const refusals = new Map<string, bigint>()
  /** For what it must count first. */
  const several = new Set<string>()
  const shorter = { one: Sql.claimAll(false), several: Sql.claimAll(true) }

  const remember = (kind: string, first: { readonly rank: number }, walkedNanos: bigint) => {
    if (starts.size >= startMax) starts.clear()
    starts.set(kind, { rank: String(first.rank - graceMs), walkedNanos })
  }

  /** Whether there is anything to claim, or what looks like it. */
  const glance = (request: ClaimRequest) =>
    db.query<Sql.GlancedRow>("quick", Sql.glance, [
      texts(request.types),
      request.queues === undefined ? null : texts(request.queues)
    ], { deadlineMs: deadlineMs(request) }).pipe(
      Effect.map(([row]) => row?.ready === true),
      orUnavailable("claim")
    )

  /** All that is ready; `null` and nothing is taken where that is for the longer statement. */
  const all = Effect.fnUntraced(function*(request: ClaimRequest, routes: string, begunNanos: bigint) {
    const refused = refusals.get(routes)
    if (refused !== undefined && begunNanos - refused < fullWalkEveryNanos) return null
    const rows = yield* db.query<Sql.AllRow>(
      "quick",
      several.has(routes) ? shorter.several : shorter.one,
      [...parameters(request), rankMin],
      { deadlineMs: yield* leftMs(request, begunNanos) }
    ).pipe(orUnavailable("claim"))
    if (rows[0]?.whole === true) {
      return taken(rows).toSorted((a, b) => a.rank - b.rank || (a.id < b.id ? -1 : 1))
    }
    const learnt = rows[0]?.several === true && !several.has(routes)
    if (learnt) {
      if (several.size >= startMax) several.clear()
      several.add(routes)
    }
    if (refusals.size >= startMax) refusals.clear()
    // One that did not know of several routes is no reason not to try the other form.
    refusals.set(routes, learnt ? begunNanos - fullWalkEveryNanos : begunNanos)
    return null
  })

  const byName = (request: ClaimRequest, deadlineMs: number) =>
    db.transaction("hot", (session) =>
      Effect.gen(function*() {
        yield* session.query(Sql.nameLock, [request.worker])
        const rooms = yield* session.query<Sql.RoomRow>(Sql.roomsOf, [request.worker])
        return taken(yield* session.query<InOrderRow>(...inOrder(request, rankMin, rooms)))
      }), { deadlineMs }).pipe(
        // Claims of one name wait for each other for a moment only, unless a process froze in the middle of one.
        Effect.retry({ times: 4, while: ({ kind }) => kind === "locked" || kind === "deadlock" })
      )

  const claim: JobStore["Service"]["claim"] = Effect.fnUntraced(function*(request) {
    if (request.limit <= 0 || request.types.length === 0) return []
    const begunNanos = yield* Clock.monotonicTimeNanos
    if (request.glance === true && !(yield* glance(request))) return []
    if (request.limitsByName === true) {
      const rows = yield* byName(request, yield* leftMs(request, begunNanos)).pipe(orUnavailable("claim"))
      return rows.map(toClaimedJob)
    }
    const routes = `${request.types.join(" ")}|${request.queues?.join(" ") ?? "*"}`
    // What one kind of claim may not take, it passes over; another must find it.
    const kind = `${lossesOf(request)}|${routes}`
    const rooms = request.rooms ?? []
    // The safety nets look for what others overlooked, so they always walk from the start; and where queues have a
    // limit, what was passed over for want of room is below what was taken.
    const walks = request.readyForMs !== undefined || rooms.length > 0
    const known = walks ? undefined : starts.get(kind)
    if (!walks && known === undefined && request.limit <= few) {
      const rows = yield* all(request, routes, begunNanos)
      if (rows !== null) {
        if (rows.length >= request.limit) remember(kind, rows[0]!, begunNanos)
        return rows.map(toClaimedJob)
      }
    }
    const nanos = yield* Clock.monotonicTimeNanos
    const start = known !== undefined && nanos - known.walkedNanos < fullWalkEveryNanos ? known : null
    const answer = yield* db.query<InOrderRow>(
      laneFor(request.limit),
      ...inOrder(request, start?.rank ?? rankMin, rooms),
      { deadlineMs: yield* leftMs(request, begunNanos) }
    ).pipe(orUnavailable("claim"))
    const rows = taken(answer)
    const [first] = rows
    const full = first !== undefined && rows.length >= request.limit
    if (!walks) {
      if (full) {
        remember(kind, first, start?.walkedNanos ?? nanos)
      } else {
        starts.delete(kind)
      }
    }
    // Of several routes there was more than that, unless others were at it: so it is to be counted anew.
    const passed = !full && !walks && several.has(routes) && (request.limit > few || refusals.delete(routes))
    if (!full && (start !== null || passed || answer[0]?.more === true)) {
      request.onMore?.()
    }
    return rows.map(toClaimedJob)
  })

  const left = (request: ClaimRequest, ids: ReadonlyArray<JobId>) =>
    db.query<Sql.LeftRow>("hot", Sql.left, [uuids(ids), texts(request.types), limited(request)])

  const claimIds: JobStore["Service"]["claimIds"] = (request) =>
    Effect.gen(function*() {
      if (request.limit <= 0 || request.types.length === 0 || request.ids.length === 0) {
        return { claimed: [], notYetDue: [], inOrder: [], left: [] }
      }
      const lane = laneFor(request.ids.length)
      const rows = yield* db.query<Sql.RankedRow>(lane, Sql.claimIds, [
        ...parameters(request),
        uuids(request.ids),
        limited(request)
      ], { deadlineMs: deadlineMs(request) })
      const claimed = new Set(rows.map((row) => row.id))
      const rest = request.ids.filter((id) => !claimed.has(id))
      // The claim stands whatever becomes of this look; an id it does not answer for is found by the scan of what waits.
      const others: ReadonlyArray<Sql.LeftRow> = rest.length === 0
        ? []
        : yield* rows.length === 0 ? left(request, rest) : Effect.orElseSucceed(left(request, rest), () => [])
      return {
        claimed: rows.map(toClaimedJob),
        notYetDue: others.flatMap(({ id, wait_ms }) => wait_ms === null ? [] : [{ id: id as JobId, runAtMs: wait_ms }]),
        inOrder: [...new Set(others.flatMap(({ in_order }) => in_order === null ? [] : [in_order as Queue]))],
        left: rows.length === 0
          ? []
          : others.flatMap(({ id, in_order, wait_ms }) => in_order === null && wait_ms === null ? [id as JobId] : [])
      }
    }).pipe(orUnavailable("claimIds"))

  const recall: JobStore["Service"]["recall"] = (lease) =>
    db.query<Sql.RecalledRow>("hot", Sql.recall, [lease]).pipe(
      Effect.map((rows) => ({ jobs: rows.map(toClaimedJob), token: rows[0]?.token ?? claimedToken })),
      orUnavailable("recall")
    )

  return { claim, claimIds, recall }
}
