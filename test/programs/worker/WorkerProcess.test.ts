/** The built worker as a process: handlers that misbehave, modules that do not load, and being told to stop. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { freshDatabase } from "../../support/Database.ts"
import * as Processes from "../../support/Processes.ts"
import * as Servers from "../../support/Servers.ts"

const probes = "test/support/handlers/probes.js"

const stage = Effect.gen(function*() {
  const url = Redacted.value((yield* freshDatabase).url)
  const { api } = yield* Servers.started({ DEADMAN_DATABASE_URL: url })
  const sql = yield* Layer.build(PgClient.layer({ url: Redacted.make(url), maxConnections: 1 }))
  return {
    rows: (text: string) =>
      Effect.flatMap(SqlClient.SqlClient, (client) => client.unsafe(text)).pipe(
        Effect.provideContext(sql),
        Effect.orDie
      ),
    worker: (env: Readonly<Record<string, string>>) =>
      Processes.start("worker", { DEADMAN_DATABASE_URL: url, DEADMAN_LEASE_MS: "1000", ...env }),
    submit: (type: string, payload?: unknown, more: object = {}) =>
      Effect.map(api.send("POST", "/jobs", { type, payload, ...more }), ({ body, status }) => {
        assert.strictEqual(status, 201, JSON.stringify(body))
        return String(body.id)
      }),
    job: (id: string) => Effect.map(api.send("GET", `/jobs/${id}`), ({ body }) => body),
    ended: (id: string) =>
      Processes.eventually(
        `job ${id} is final`,
        Effect.map(api.send("GET", `/jobs/${id}`), ({ body }) => ["completed", "dead"].includes(String(body.state)))
      )
  }
})

describe("a worker process", () => {
  it.live("outlives what its handlers leave behind, and the other jobs go on", () =>
    Effect.gen(function*() {
      const { ended, job, submit, worker } = yield* stage
      const program = yield* worker({ DEADMAN_HANDLERS: probes, DEADMAN_WORKER_THREADS: "4" })
      const culprits = [yield* submit("rejectsLater"), yield* submit("throwsInTimer")]
      const good = yield* Effect.forEach(Array.from({ length: 10 }), () => submit("failK", 0))
      for (const id of [...culprits, ...good]) {
        yield* ended(id)
        assert.strictEqual((yield* job(id)).state, "completed")
      }
      assert.isTrue(program.alive())
      assert.include(program.output(), "nobody awaited this")
      assert.include(program.output(), "thrown in a timer")
    }), 180_000)

  it.live(
    "a handler that blocks for three leases ends dead of it, and takes no other job and no worker with it",
    () =>
      Effect.gen(function*() {
        const { ended, job, submit, worker } = yield* stage
        const blocking = yield* submit("block", 3_000)
        const others = yield* Effect.forEach([1, 2, 3], () => submit("ignoresAbort", 500))
        const program = yield* worker({ DEADMAN_HANDLERS: probes, DEADMAN_WORKER_THREADS: "4" })
        for (const id of others) {
          yield* ended(id)
          const ending = yield* job(id)
          assert.strictEqual(ending.state, "completed", JSON.stringify(ending))
          assert.strictEqual(ending.attempts, 0)
        }
        yield* ended(blocking)
        const ending = yield* job(blocking)
        assert.strictEqual(ending.reason, "crash_loop")
        assert.strictEqual(ending.attempts, 0)
        assert.isTrue(program.alive())
      }),
    180_000
  )

  it.live("hands its running job back when it is told to stop, and exits with 0", () =>
    Effect.gen(function*() {
      const { job, submit, worker } = yield* stage
      const program = yield* worker({ DEADMAN_WORKER_THREADS: "2", DEADMAN_DRAIN_MS: "500" })
      const id = yield* submit("sleep", 60_000)
      yield* Processes.eventually("it runs", Effect.map(job(id), ({ state }) => state === "running"))
      yield* program.signal("SIGTERM")
      assert.strictEqual(yield* program.exit("6 seconds"), 0)
      // Its last words may be read after its end.
      yield* Processes.eventually("it has", Effect.sync(() => program.output().includes(`"message":"stopped"`)))
      const said = program.output().matchAll(/"message":"(told to stop|stop[^"]*)"/g)
      assert.deepStrictEqual(Array.from(said, ([, message]) => message), [
        "told to stop",
        "stopping: 1 running job may take 500ms to finish",
        "stopped: 1 job was handed back",
        "stopped"
      ])
      const up = program.output().split("\n").find((line) => line.includes("worker is up")) ?? "{}"
      const { data_dir, pid, worker: name } = JSON.parse(up)
      assert.deepStrictEqual({ data_dir, pid }, { data_dir: null, pid: program.pid })
      assert.strictEqual((yield* job(id)).worker, name)
      const back = yield* job(id)
      assert.strictEqual(back.state, "pending")
      assert.strictEqual(back.attempts, 0)
      assert.strictEqual(back.lease_losses, 0)
    }), 180_000)

  it.live("loads TypeScript modules, and modules beside the built-in handlers", () =>
    Effect.gen(function*() {
      const { ended, job, submit, worker } = yield* stage
      yield* worker({ DEADMAN_HANDLERS: "test/support/handlers/typed.ts, built-in" })
      const greets = yield* submit("greets", "you")
      const refuses = yield* submit("refuses")
      const twice = yield* submit("twice")
      const noop = yield* submit("noop")
      for (const id of [greets, refuses, twice, noop]) {
        yield* ended(id)
      }
      assert.strictEqual((yield* job(greets)).result, "hello you")
      assert.strictEqual((yield* job(refuses)).reason, "rejected")
      assert.strictEqual((yield* job(twice)).result, 2)
      assert.strictEqual((yield* job(twice)).attempts, 0)
    }), 180_000)

  it.live(
    "loads typed handlers with a layer of their own: an effect in their transaction happens once",
    () =>
      Effect.gen(function*() {
        const { ended, job, rows, submit, worker } = yield* stage
        yield* rows("CREATE TABLE public.ledger (account text, amount int)")
        yield* worker({ DEADMAN_HANDLERS: "test/support/handlers/ledger.ts" })
        const retry = { backoff: { kind: "fixed", delay_ms: 0 } }
        const charged = yield* submit("charge", { account: "ada", amount: 5 }, retry)
        const wrong = yield* submit("charge", { account: "ada" })
        yield* ended(charged)
        const charge = yield* job(charged)
        assert.deepInclude(charge, { state: "completed", result: "Already", attempts: 2 })
        assert.deepStrictEqual(
          charge.logs.map(({ attempt, line }: { attempt: number; line: string }) => [attempt, line]),
          [
            [1, "entered"]
          ]
        )
        const deposited = yield* submit("deposit", { account: "ada", amount: 2 })
        yield* ended(deposited)
        assert.deepInclude(yield* job(deposited), { state: "completed", result: { balance: 7 }, attempts: 0 })
        yield* ended(wrong)
        const refused = yield* job(wrong)
        assert.strictEqual(refused.reason, "rejected")
        assert.include(refused.errors[0].message, "payload.amount")
      }),
    180_000
  )

  it.live.each(
    [
      ["test/support/handlers/nowhere.js", "not there"],
      ["package.json", "package.json"],
      ["test/support/handlers/misnamed.js", "misnamed.js, but \"send mail\" is not a type a job can have"],
      ["test/support/handlers/probes.js,test/support/handlers/../handlers/probes.js", "so has"],
      ["src/programs/Version.ts", "exports no handlers"],
      ["test/support/handlers/mixed.js", "number 2 of its array is no typed handler"],
      ["test/support/handlers/doubled.ts", "it has two handlers for \"twice\""]
    ] as const
  )("DEADMAN_HANDLERS=%s stops it with one line", ([path, said]) =>
    Effect.gen(function*() {
      const program = yield* Processes.start("worker", {
        DEADMAN_HANDLERS: path,
        // Nobody answers there: the line must come before anything is waited for.
        DEADMAN_DATABASE_URL: "postgres://nobody@127.0.0.1:1/nothing"
      })
      assert.strictEqual(yield* program.exit("90 seconds"), 1)
      const lines = program.output().trim().split("\n")
      assert.strictEqual(lines.length, 1, program.output())
      assert.include(lines[0], "DEADMAN_HANDLERS")
      assert.include(lines[0], said)
    }), 180_000)
})
