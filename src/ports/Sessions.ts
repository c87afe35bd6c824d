/**
 * Port: which processes there are, for people.
 *
 * Nothing is decided by it: no lease, claim or reclaim looks here.
 *
 * Laws, which `test/contracts/SessionsContract.ts` holds every adapter to:
 *
 * 1. `report` makes the process appear in `list`, and replaces what it said before.
 * 2. `totals` are the sums of the counters of all processes that ever reported, the gone ones included.
 * 3. A process that has not reported for `staleMs` is not in `list`; its counters stay in `totals`.
 */
import { Context, type Effect, Schema } from "effect"
import { because } from "../domain/Because.ts"

export class SessionsUnavailable extends Schema.TaggedError<SessionsUnavailable>()("SessionsUnavailable", {
  operation: Schema.Literals(["report", "list", "totals", "leave"]),
  cause: Schema.Defect()
}) {
  override get message(): string {
    return `the list of processes did not answer (${this.operation}): ${because(this.cause)}`
  }
}

/** In front of the names that workers elsewhere give themselves: no process of ours is called so. */
export const guestPrefix = "http:"

export interface Session {
  /** Random per boot. */
  readonly name: string
  /** `http`: a worker elsewhere, reported by the server that it talks to. */
  readonly role: "server" | "worker" | "http"
  readonly version: string
  readonly handlers: ReadonlyArray<string>
  readonly slots: number
  readonly running: number
  readonly runaways: number
  readonly draining: boolean
  /** Counted since the process started. */
  readonly counters: Readonly<Record<string, number>>
}

export interface ListedSession extends Session {
  readonly startedAtMs: number
  readonly seenAtMs: number
}

export class Sessions extends Context.Service<Sessions, {
  readonly report: (session: Session) => Effect.Effect<void, SessionsUnavailable>
  readonly leave: (name: string) => Effect.Effect<void, SessionsUnavailable>
  readonly list: (staleMs: number) => Effect.Effect<ReadonlyArray<ListedSession>, SessionsUnavailable>
  readonly totals: Effect.Effect<Readonly<Record<string, number>>, SessionsUnavailable>
}>()("deadman/ports/Sessions") {}
