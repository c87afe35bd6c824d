/**
 * What the tests of the fault catalogue share: an arena, probe handlers, and a sink that handlers call.
 *
 * One arena serves a file. Processes belong to the test that started them, so that each test has a crew of its own.
 */
import { PgClient } from "@effect/sql-pg"
import { assert } from "@effect/vitest"
import { Context, type Duration, Effect, Layer, Redacted, Scope } from "effect"
import { SqlClient } from "effect/sql"
import { createServer, type Server as HttpServer, type ServerResponse } from "node:http"
import * as Arena from "../siege/Arena.ts"
import type * as ApiClient from "../support/ApiClient.ts"
import * as PostgresServer from "../support/PostgresServer.ts"
import * as Processes from "../support/Processes.ts"
import * as Servers from "../support/Servers.ts"

type Env = Readonly<Record<string, string>>

// oxlint-disable-next-line typescript/no-explicit-any -- tests read what they expect; a wrong shape fails the assertion
type Body = any

const make = Effect.fnUntraced(function*(env: Env, settings: Env) {
  const postgres = yield* PostgresServer.start({ settings })
  const url = Redacted.value(postgres.url)
  const base: Env = {
    DEADMAN_DATABASE_URL: url,
    DEADMAN_LEASE_MS: "1000",
    DEADMAN_HANDLERS: "built-in test/support/handlers/probes.js",
    ...env
  }
  const sql = yield* Layer.build(PgClient.layer({ url: postgres.url, maxConnections: 4, applicationName: "judge" }))
  const rows = <Row extends object>(text: string): Effect.Effect<ReadonlyArray<Row>> =>
    Effect.flatMap(SqlClient.SqlClient, (client) => client.unsafe<Row>(text)).pipe(
      Effect.provideContext(sql),
      Effect.orDie
    )

  const starting = (more: Env = {}) => Servers.start({ ...base, ...more })
  const ready = (one: Servers.Server, within: Duration.Input = "90 seconds") => Servers.ready(one, within)
  const server = (more: Env = {}) => Effect.tap(starting(more), (one) => ready(one))
  /** One for all tests of the file that need no other. */
  const shared = yield* Effect.cached(Effect.provideService(server(), Scope.Scope, yield* Effect.scope))

  const crew: Array<{ readonly name: string; readonly program: Processes.Program }> = []
  const worker = (name: string, more: Env = {}) =>
    Effect.tap(
      Processes.start("worker", { ...base, DEADMAN_WORKER_NAME: name, DEADMAN_WORKER_THREADS: "4", ...more }),
      (program) => Effect.sync(() => crew.push({ name, program }))
    )

  /** Each body, with what they have in common; all must be taken. */
  const submit = (api: ApiClient.ApiClient, bodies: ReadonlyArray<object>, common: object = {}) =>
    Arena.submitAll(api, bodies.map((body) => ({ ...body, ...common })))

  const job = (api: ApiClient.ApiClient, id: string): Effect.Effect<Body> =>
    Effect.map(api.send("GET", `/jobs/${id}`), ({ body }) => body)

  const list = (ids: ReadonlyArray<string>) => ids.map((id) => `'${id}'`).join(",")

  interface Found {
    readonly id: string
    readonly state: number
    readonly attempts: number
    readonly deliveries: number
    readonly losses: number
    readonly stale: number
    readonly reason: number | null
    readonly worker: string | null
    readonly started: number
    readonly finished: number
  }

  const jobs = (ids: ReadonlyArray<string>) =>
    ids.length === 0 ? Effect.succeed([]) : rows<Found>(
      `SELECT id::text, state, attempts, deliveries, losses, stale, reason, worker, started_at_ms::float8 AS started,
              finished_at_ms::float8 AS finished FROM deadman.job WHERE id IN (${list(ids)}) ORDER BY id`
    )

  const reached = (ids: ReadonlyArray<string>, states: ReadonlyArray<number>) =>
    Effect.map(
      rows<{ n: number }>(
        `SELECT count(*)::int AS n FROM deadman.job WHERE id IN (${list(ids)}) AND state IN (${states.join(",")})`
      ),
      ([found]) => found?.n === ids.length
    )

  /** Every worker that lives has begun: how long a process takes to start is nobody's promise. */
  const present = Processes.eventually(
    "the workers are there",
    Effect.map(
      rows<{ name: string }>(`SELECT name FROM deadman.session`),
      (sessions) =>
        crew.every(({ name, program }) =>
          !program.alive() || sessions.some((session) => session.name.startsWith(`${name}-`))
        )
    ),
    "60 seconds"
  )

  const ended = (ids: ReadonlyArray<string>, within: Duration.Input = "60 seconds") =>
    Effect.andThen(present, Processes.eventually("the jobs are final", reached(ids, [3, 4]), within)).pipe(
      Effect.tapError(() =>
        Effect.flatMap(jobs(ids), (found) =>
          Effect.logError(
            "not final",
            JSON.stringify(found.filter(({ state }) => state < 3).slice(0, 5)),
            crew.slice(-3).map(({ name, program }) => [name, program.alive(), program.output().slice(-1_000)])
          ))
      )
    )
  /** All at once, so they must run for longer than a look takes on a busy machine. */
  const running = (ids: ReadonlyArray<string>, within: Duration.Input = "60 seconds") =>
    Processes.eventually("the jobs run", reached(ids, [1]), within)

  /** All completed, at no attempt; each delivered `deliveries` times at most. */
  const clean = Effect.fnUntraced(function*(ids: ReadonlyArray<string>, deliveries = Infinity) {
    const found = yield* jobs(ids)
    assert.strictEqual(found.length, ids.length, "every job exists")
    const off = found.filter((one) => one.state !== 3 || one.attempts !== 0 || one.deliveries > deliveries)
    assert.deepStrictEqual(off, [])
  })

  /** Every worker that lives claims: a predecessor of its name is no proof of that. */
  const manned = Processes.eventually(
    "the workers are up",
    Effect.sync(() => crew.every(({ program }) => !program.alive() || program.output().includes("worker is up")))
  )

  /** That exactly `slots` of more handlers run at once, as the sink they call sees it: nothing has leaked. */
  const capacity = Effect.fnUntraced(function*(api: ApiClient.ApiClient, slots: number) {
    yield* manned
    const slow = yield* sink
    slow.mode = "slow"
    const ids = yield* submit(
      api,
      Array.from({ length: slots * 3 }, () => ({ type: "http", payload: { url: slow.url } }))
    )
    yield* ended(ids)
    yield* clean(ids)
    assert.strictEqual(slow.most, slots)
  })

  return {
    postgres,
    url,
    base,
    rows,
    manned,
    starting,
    ready,
    server,
    shared,
    worker,
    submit,
    job,
    jobs,
    ended,
    running,
    clean,
    capacity
  }
})

export class Stage extends Context.Service<Stage, Effect.Success<ReturnType<typeof make>>>()(
  "deadman/test/faults/Stage"
) {}

export const layer = (env: Env = {}, settings: Env = {}) => Layer.effect(Stage, make(env, settings))

export interface Hit {
  readonly id: string
  readonly key: string
  readonly attempt: number
  readonly delivery: number
  readonly worker: string
  readonly ping: number
  readonly at_ms: number
}

export interface Sink {
  url: string
  readonly hits: Array<Hit>
  /** What it does with a call: `slow` takes a second, and one that hangs waits for `letGo`. */
  mode: "answer" | "slow" | "hang" | "refuse"
  readonly letGo: () => void
  /** The most calls that were open at once. */
  most: number
}

/**
 * Many jobs, in batches that a busy machine stores within the statement timeout of so short a lease; their ids in order.
 */
export const bulk = Effect.fnUntraced(function*(api: ApiClient.ApiClient, bodies: ReadonlyArray<object>) {
  const ids: Array<string> = []
  for (let at = 0; at < bodies.length; at += 250) {
    const { body, status } = yield* api.send("POST", "/jobs/batch", bodies.slice(at, at + 250))
    assert.strictEqual(status, 201, JSON.stringify(body).slice(0, 300))
    ids.push(...body.jobs.map(({ id }: { id: string }) => id))
  }
  return ids
})

/** Where `http` handlers call. */
export const sink: Effect.Effect<Sink, never, Scope.Scope> = Effect.gen(function*() {
  const hits: Array<Hit> = []
  const held: Array<ServerResponse> = []
  const letGo = () => held.splice(0).forEach((response) => response.end("ok"))
  const state: Sink = { url: "", hits, mode: "answer", letGo, most: 0 }
  let open = 0
  const listening = yield* Effect.acquireRelease(
    Effect.callback<HttpServer>((resume) => {
      const server = createServer((request, response) => {
        let text = ""
        request.on("data", (chunk) => {
          text += String(chunk)
        })
        request.on("end", () => {
          hits.push(JSON.parse(text))
          open += 1
          state.most = Math.max(state.most, open)
          if (state.mode === "refuse") {
            response.statusCode = 503
          }
          if (state.mode === "hang") {
            held.push(response)
          } else {
            const answer = Effect.sync(() => void response.end("ok"))
            Effect.runFork(state.mode === "slow" ? Effect.delay(answer, "1 second") : answer)
          }
        })
        response.on("close", () => {
          open -= 1
        })
      })
      server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
    }),
    (server) =>
      Effect.sync(() => {
        server.closeAllConnections()
        server.close()
      })
  )
  const address = listening.address()
  const port = typeof address === "object" && address !== null ? address.port : 0
  return Object.assign(state, { url: `http://127.0.0.1:${port}/` })
})

/** Loaded into a program before all else: its wall clock is wrong by so much, and steps further after a while. */
export const wrongClock = (aheadMs: number, stepMs = 0, afterMs = 0): Env => ({
  NODE_OPTIONS: "--require ./test/support/handlers/wrongClock.cjs",
  WRONG_CLOCK: JSON.stringify({ aheadMs, stepMs, afterMs })
})
