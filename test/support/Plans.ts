/** What a statement costs the server, of the very text that is sent: its plan, as it ran. */
import { Effect } from "effect"
import { Database, ints, long, type Session, texts } from "../../src/adapters/postgres/Database.ts"
import type { DatabaseFailed } from "../../src/adapters/postgres/DatabaseFailed.ts"
import * as ClaimSql from "../../src/adapters/postgres/store/ClaimSql.ts"
import * as Jobs from "./Jobs.ts"

export interface Plan {
  readonly "Node Type": string
  readonly "Relation Name"?: string
  readonly "Actual Rows": number
  readonly "Actual Loops": number
  readonly "Shared Hit Blocks": number
  readonly "Shared Read Blocks": number
  readonly Filter?: string
  readonly Plans?: ReadonlyArray<Plan>
}

export const nodesOf = (plan: Plan): ReadonlyArray<Plan> => [plan, ...(plan.Plans ?? []).flatMap(nodesOf)]

export const buffersOf = (plan: Plan): number => plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]

/** Jobs that a claim took, by what it wrote. */
export const takenBy = (plan: Plan): number =>
  nodesOf(plan).filter((node) => node["Node Type"] === "ModifyTable" && node["Relation Name"] === "job")
    .reduce((sum, node) => sum + node["Actual Rows"] * node["Actual Loops"], 0)

/** Whether it reads a table from its beginning, or by a bitmap of it: costs grow with the table then. */
export const walks = (plan: Plan, table: string): boolean =>
  plan["Relation Name"] === table && /^(Seq|Bitmap Heap) Scan$/.test(plan["Node Type"])

/** Runs it, by whatever asks: what it writes is written. */
export const explain = (
  ask: Session["query"],
  text: string,
  params: ReadonlyArray<unknown> = []
): Effect.Effect<Plan, DatabaseFailed> =>
  Effect.map(
    ask<{ readonly "QUERY PLAN": ReadonlyArray<{ readonly Plan: Plan }> }>(
      `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ${text}`,
      params
    ),
    ([row]) => row!["QUERY PLAN"][0]!.Plan
  )

/** The same, in a session of its own. */
export const explainAlone = (
  text: string,
  params: ReadonlyArray<unknown> = []
): Effect.Effect<Plan, DatabaseFailed, Database> =>
  Effect.flatMap(Database, (database) => explain((...asked) => database.query("read", ...asked), text, params))

/** Queues with a limit, and how many more jobs of each there is room for. */
export type Rooms = ReadonlyArray<readonly [queue: string, room: number]>

/** The plan of the statement that a claim sends; what it took is given back. */
export const ofClaim = Effect.fnUntraced(function*(types: ReadonlyArray<string>, limit: number, rooms: Rooms = []) {
  const database = yield* Database
  const lease = yield* Jobs.freshLease
  return yield* database.transaction("hot", (session) =>
    Effect.flatMap(
      explain(session.query, rooms.length === 0 ? ClaimSql.claim : ClaimSql.claimWithRooms, [
        lease,
        5_000,
        "ada",
        texts(types),
        null,
        limit,
        long(1e9),
        32_768,
        "-9223372036854775808",
        null,
        ...(rooms.length === 0 ? [] : [texts(rooms.map(([queue]) => queue)), ints(rooms.map(([, room]) => room))])
      ]),
      // What fails is rolled back.
      (plan) => Effect.fail({ _tag: "Explained", plan } as const)
    )).pipe(Effect.catchTag("Explained", ({ plan }) => Effect.succeed(plan)))
})
