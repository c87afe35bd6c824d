/**
 * One system for all laws of a profile: two servers that run nothing, a worker with handlers of every form, and workers
 * over HTTP where a law wants one. Each law has queues, types or tags of its own, so that they may run side by side.
 */
import { assert } from "@effect/vitest"
import { Clock, Context, Effect, Layer, type Scope } from "effect"
import { Client } from "pg"
import { Stage } from "../faults/Stage.ts"
import type * as ApiClient from "../support/ApiClient.ts"
import * as Processes from "../support/Processes.ts"

/** Long enough that none is lost on a machine that has other things to do. */
export const leaseMs = 3_000

/** For the programs. */
export const env = {
  DEADMAN_LEASE_MS: String(leaseMs),
  DEADMAN_HANDLERS:
    "built-in test/support/handlers/probes.js test/support/handlers/ledger.ts test/support/handlers/offloaded.ts"
}

const make = Effect.gen(function*() {
  const stage = yield* Stage
  yield* stage.rows("CREATE TABLE public.ledger (account text NOT NULL, amount int NOT NULL)")
  const [one, two] = yield* Effect.all([stage.server(), stage.server()], { concurrency: 2 })
  yield* stage.worker("crew", { DEADMAN_WORKER_THREADS: "16" })
  const { api } = one
  yield* Processes.eventually(
    "the worker is there",
    Effect.map(
      api.send("GET", "/stats"),
      ({ body }) => body.workers.some(({ role }: { role: string }) => role === "worker")
    )
  )

  const send = Effect.fnUntraced(function*(method: string, path: string, body?: unknown) {
    const answer = yield* api.send(method, path, body)
    assert.isBelow(answer.status, 300, `${method} ${path}: ${JSON.stringify(answer.body)}`)
    return answer.body
  })
  const submit = (body: object): Effect.Effect<string> => Effect.map(send("POST", "/jobs", body), ({ id }) => id)
  const job = (id: string) => Effect.map(api.send("GET", `/jobs/${id}`), ({ body }) => body)
  const list = (query: string) => Effect.map(send("GET", `/jobs?limit=500&${query}`), ({ jobs }) => jobs)

  /** The job once it is in this state. */
  const reaches = Effect.fnUntraced(function*(id: string, state: string) {
    let found = yield* job(id)
    yield* Processes.eventually(
      () => `it is ${state}: ${JSON.stringify(found)}`,
      Effect.map(job(id), (now) => {
        found = now
        return found.state === state
      })
    )
    return found
  })

  /** Asks for jobs as a worker over HTTP does. */
  const ask = (of: ApiClient.ApiClient, request: object) =>
    of.send("POST", "/workers/claims", {
      worker: "raw",
      lease: crypto.randomUUID(),
      limit: 1,
      wait_ms: 8_000,
      lease_ms: 10_000,
      ...request
    }).pipe(Effect.map(({ body, status }) => {
      assert.strictEqual(status, 200, JSON.stringify(body))
      return body
    }))

  /** Reports how all of a claim ended. */
  const report = (
    of: ApiClient.ApiClient,
    { claims, lease }: {
      readonly claims: ReadonlyArray<{ job: { id: string }; epoch: number }>
      readonly lease: string
    },
    kind = "completed"
  ) =>
    Effect.map(
      of.send("POST", "/workers/outcomes", {
        outcomes: claims.map(({ epoch, job: { id } }) => ({ id, epoch, lease, kind }))
      }),
      ({ body }) => body
    )

  /** A connection of whoever has one. */
  const connection = Effect.acquireRelease(
    Effect.promise(() => {
      const client = new Client({ connectionString: stage.url })
      return client.connect().then(() => client)
    }),
    (client) => Effect.promise(() => client.end())
  )

  return { ...stage, one, two, api, send, submit, job, list, reaches, ask, report, connection }
})

export class System extends Context.Service<System, Effect.Success<typeof make>>()("deadman/test/profiles/System") {}

export const layer = Layer.effect(System, make)

export type Law = Effect.Effect<void, unknown, System | Scope.Scope>

export type Laws = Readonly<Record<string, Law>>

export const law = (body: (system: System["Service"]) => Law): Law => Effect.flatMap(System, body)

export interface Told {
  readonly id: string
  readonly started_at_ms: number
  readonly tick_ms: number
  readonly state: string
  readonly reason: string | null
}

export const ids = (jobs: ReadonlyArray<{ readonly id: string }>) => jobs.map(({ id }) => id)

/** A cron of once a day, twelve hours from the next and from the last: nobody fires it while the test runs. */
export const daily = Effect.map(
  Clock.currentTimeMillis,
  (nowMs) => `0 ${(Math.floor(nowMs / 3_600_000) + 12) % 24} * * *`
)

/** How long a hint may take. Without one a job is found by looking, every second or so. */
const promptMs = 400
/** Of so many the median counts: now and then a machine that is busy is late. */
const samples = 9

/** That the median of these waits is prompt. No more are taken than that takes to know. */
export const prompt = <E, R>(name: string, waited: Effect.Effect<number, E, R>) =>
  Effect.gen(function*() {
    const waits: Array<number> = []
    const late = () => waits.filter((ms) => !(ms < promptMs)).length
    while (Math.max(late(), waits.length - late()) < samples / 2) {
      waits.push(yield* waited)
    }
    assert.isBelow(late(), samples / 2, `${name}: ${waits.join(" ")}`)
  })
