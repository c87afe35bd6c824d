/** Deadman within a program: promises in front, a real Postgres behind. */
import { afterAll, assert, beforeAll, describe, it, vi } from "@effect/vitest"
import { Effect, Exit, Fiber, Layer, Redacted, Schema, Scope } from "effect"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Client } from "pg"
import * as SubmitBody from "../../../src/adapters/http/SubmitBody.ts"
import { bodyOf } from "../../../src/programs/client/SubmitOptions.ts"
import { Deadman, Effects, Job, Transaction } from "../../../src/programs/deadman.ts"
import { freshDatabase } from "../../support/Database.ts"
import { eventually } from "../../support/Eventually.ts"

const scope = Scope.makeUnsafe()
let databaseUrl = ""

beforeAll(() =>
  Effect.runPromise(Scope.provide(freshDatabase, scope)).then(({ url }) => {
    databaseUrl = Redacted.value(url)
  })
)
afterAll(() => Effect.runPromise(Scope.close(scope, Exit.void)))

const double = Job.define({ type: "double", payload: Schema.Struct({ n: Schema.Int }), result: Schema.Int })

/** Stops it whatever happens. */
const started = (options: Deadman.StartOptions = {}) =>
  Effect.acquireRelease(
    Effect.promise(() => Deadman.start({ databaseUrl, logLevel: "none", ...options })),
    (deadman) => Effect.promise(() => deadman.stop())
  )

const does = <A>(ask: () => Promise<A>) => Effect.promise(ask)
const refusal = (ask: () => Promise<unknown>) =>
  does(() =>
    ask().then(
      (): never => assert.fail("it was accepted"),
      (error: Error & { readonly _tag?: string }) => error
    )
  )

const live = <A, E>(test: Effect.Effect<A, E, Scope.Scope>) => () => Effect.runPromise(Effect.scoped(test))

describe("Deadman.start", () => {
  it(
    "one process submits and another runs; the result comes back as its type",
    live(Effect.gen(function*() {
      const web = yield* started()
      yield* started({ handlers: [double.handle(({ n }) => n * 2)] })
      const job = yield* does(() => web.submit(double, { n: 21 }))
      const ended = yield* does(() => web.wait(job))
      assert.deepStrictEqual([ended.state, ended.result, job.created], ["completed", 42, true])
      const refused = yield* refusal(() => web.cancel(job))
      assert.deepStrictEqual([refused._tag, (refused as Deadman.WrongState).state], ["WrongState", "completed"])
      // Elsewhere a retry is what is called resubmit here.
      assert.match(
        (yield* refusal(() => web.retry(job))).message,
        /pending or failed \(one that has ended is resubmitted\)$/
      )
    })),
    180_000
  )

  it(
    "says whether it is well and what it has counted, and is not ready once it is told to stop",
    live(Effect.gen(function*() {
      let end: (() => void) | undefined
      const holds = Job.define({ type: "holds", payload: Schema.Null })
      const deadman = yield* started({
        handlers: [holds.handle(() => new Promise<void>((resolve) => void (end = resolve)))]
      })
      const ready = does(() => deadman.ready())
      yield* eventually("it is ready", Effect.map(ready, (answer) => answer.ready), "60 seconds")
      const { degraded, loops, services } = yield* ready
      assert.deepStrictEqual([degraded, services], [[], { store: "up" }])
      assert.includeMembers(loops.map(({ name }) => name), ["claim", "settle", "heartbeat", "reap", "schedule"])
      assert.deepStrictEqual([...new Set(loops.map((loop) => Object.keys(loop).join()))], ["name,lastOkMsAgo"])

      yield* does(() => deadman.submit(holds, null))
      yield* eventually("the job runs", Effect.sync(() => end !== undefined), "60 seconds")
      const claimed = /^deadman_claimed_total (\d+)$/m.exec(yield* does(() => deadman.metrics()))?.[1]
      assert.isAtLeast(Number(claimed), 1)

      // The drain waits for the job, and the process says meanwhile that it is going.
      const stopped = deadman.stop()
      yield* eventually(
        "it is not ready any more",
        Effect.map(ready, ({ reasons }) => reasons.includes("shutting down")),
        "60 seconds"
      )
      assert.isFalse((yield* ready).ready)
      end?.()
      yield* does(() => stopped)
    })),
    180_000
  )

  it(
    "a key is one job, and another request under it is refused",
    live(Effect.gen(function*() {
      const web = yield* started()
      const submit = (n: number) => web.submit(double, { n }, { idempotencyKey: "key-1" })
      const [first, second] = yield* does(() => Promise.all([submit(1), submit(1)]))
      assert.strictEqual(first.id, second.id)
      assert.deepStrictEqual([first.created, second.created].sort(), [false, true])
      const refused = yield* refusal(() => submit(2))
      const message = `this idempotencyKey was used for another request, whose job is ${first.id} (payload differs): ` +
        "use one key per request"
      assert.deepStrictEqual([refused._tag, refused.message], ["SubmitRefused", message])
      const late = { idempotencyKey: "key-1", runAtMs: 4_000_000_000_000, priority: 3 }
      const batch = yield* refusal(() =>
        web.submitAll([{ job: double, payload: { n: 1 } }, { job: double, payload: { n: 1 }, options: late }])
      )
      assert.match(batch.message, /\(priority, runAtMs differ\)|\(priority differs\)/)
      yield* does(() => web.cancel(first))
    })),
    180_000
  )

  it("a request means the same over HTTP: one key, one fingerprint", () => {
    const options = { maxAttempts: 3, idempotencyKey: "k", tags: ["a"], timeoutMs: undefined }
    const ours = SubmitBody.decode(bodyOf("double", { n: 1 }, options), "", null)
    const theirs = SubmitBody.decodeText(
      `{"tags":["a"],"type":"double","payload":{"n":1},"idempotency_key":"k","max_attempts":3}`,
      null
    )
    assert.deepStrictEqual(ours, theirs)
  })

  it(
    "what can never be accepted is refused in the words of who asked",
    live(Effect.gen(function*() {
      const web = yield* started()
      const said = (ask: () => Promise<unknown>) => Effect.map(refusal(ask), ({ message }) => message)
      assert.include(yield* said(() => web.submit(double, { n: 0.5 })), "payload.n")
      assert.match(yield* said(() => web.submit("x", null, { maxAttempts: 0 })), /^maxAttempts must be a whole number/)
      const at = new Date(0) as unknown as number
      assert.match(yield* said(() => web.submit("x", null, { runAtMs: at })), /^runAtMs must be milliseconds since the/)
      const inTwoWays = { runAtMs: 1, delayMs: 1 }
      assert.match(yield* said(() => web.submit("x", null, inTwoWays)), /^delayMs must not be given with runAtMs: /)
      assert.include(yield* said(() => web.submit("x", { a: [Number.NaN] })), "NaN, which JSON cannot hold")
      assert.include(yield* said(() => web.submit("x", { a: 1n })), "a BigInt")
      // JSON would make null or {} of these.
      assert.include(
        yield* said(() => web.submit("x", { at: Reflect.construct(Date, ["soon"]) })),
        "at is an invalid Date"
      )
      assert.include(yield* said(() => web.submit("x", { all: new Map([["a", 1]]) })), "all is a Map")
      assert.include(yield* said(() => web.submit("x", new Set([1]))), "it is a Set")
      assert.include(yield* said(() => web.submit("x", [Promise.resolve(1)])), "a Promise that was not awaited")
      const ring: { self?: unknown } = {}
      ring.self = ring
      assert.match(yield* said(() => web.submit("x", ring)), /^the payload cannot be written as JSON: .*circular.*$/)
      assert.include(yield* said(() => web.submit("no spaces", null)), "type must be")
      const lost = undefined as unknown as string
      assert.include(yield* said(() => web.submit(lost, 1)), "or the name of a type: not undefined")
      assert.include(yield* said(() => web.schedule("lost", { job: lost, everyMs: 1_000 })), "not undefined")
      assert.include(yield* said(() => web.schedule(lost, { job: "x", everyMs: 1_000 })), "name must be")
      assert.include(yield* said(() => web.queues.get(lost)), "name must be")
      const none = undefined as never
      for (const batch of [none, null as never, { job: "x" } as never]) {
        assert.include(yield* said(() => web.submitAll(batch)), "submitAll takes an array")
      }
      assert.include(yield* said(() => web.submitAll([null as never])), "[0]: a job must be a definition")
      assert.include(yield* said(() => web.schedule("lost", none)), "a job must be a definition")
      assert.match(yield* said(() => web.queues.set("lost", none)), /^say what to change: .*concurrency/)
      // Neither goes around the check by the definition.
      const sneaked = { type: "y", payload: { n: "x" } } as Deadman.SubmitOptions
      assert.include(yield* said(() => web.submit(double, { n: 1 }, sneaked)), "type is no option")
      // In the words of these options.
      for (const [slip, meant] of [["priorty", "priority"], ["maxAtempts", "maxAttempts"]] as const) {
        assert.match(
          yield* said(() => web.submit("x", null, { [slip]: 1 } as Deadman.SubmitOptions)),
          new RegExp(`^${slip} is not a field .* Is ${meant} meant\\?$`)
        )
      }
      assert.include(
        yield* said(() =>
          web.submitAll([{ job: "y", payload: 1 }, { job: "y", payload: 2, options: { priority: 5e9 } }])
        ),
        "[1]: priority must be"
      )
      const many = Array.from({ length: 10_001 }, () => ({ job: "y" }))
      assert.match(yield* said(() => web.submitAll(many)), /^a batch of 10001 jobs is too long; .* 10000 .* in parts/)
      const large = Array.from({ length: 17 }, () => ({ job: "y", payload: "é".repeat(500_000) }))
      assert.match(yield* said(() => web.submitAll(large)), /^the payloads of the batch are 17\d+ bytes; .* in parts/)
      assert.deepStrictEqual((yield* does(() => web.list({ type: "y" }))).jobs, [])
      const both = yield* does(() => web.submitAll([{ job: "y", payload: 1 }, { job: double, payload: { n: 2 } }]))
      assert.deepStrictEqual(both.map(({ type }) => type), ["y", "double"])
      yield* does(() => Promise.all(both.map((job) => web.cancel(job))))
    })),
    180_000
  )

  it(
    "a list is asked for by the rules of the API, and what is wrong with it is said before the database is asked",
    live(Effect.gen(function*() {
      const web = yield* started()
      const said = (options: object) =>
        Effect.map(
          refusal(() => web.list(options as Deadman.ListOptions)),
          (error) => [error._tag, (error as Deadman.SubmitRefused).field]
        )
      const wrong = [
        { limit: 0 },
        { limit: 501 },
        { limit: 1.5 },
        { state: "gone" },
        { before: "nonsense" },
        {
          offset: -1
        },
        { type: "a b" },
        { queue: "" },
        { tag: "" },
        { sate: "dead" },
        { cursor: "x" },
        { id: "x" }
      ]
      assert.deepStrictEqual(
        yield* Effect.forEach(wrong, said),
        ["limit", "limit", "limit", "state", "before", "offset", "type", "queue", "tag", "sate", "cursor", "id"].map(
          (field) => ["SubmitRefused", field]
        )
      )
      const jobs = yield* does(() => web.submitAll([1, 2, 3].map((payload) => ({ job: "listed", payload }))))
      const first = yield* does(() => web.list({ type: "listed", state: "pending", queue: "default", limit: 2 }))
      const second = yield* does(() => web.list({ type: "listed", before: first.next ?? "" }))
      assert.deepStrictEqual(
        [...first.jobs, ...second.jobs].map(({ id }) => id).sort(),
        jobs.map(({ id }) => id).sort()
      )
      assert.lengthOf((yield* does(() => web.list({ type: "listed", offset: 2, before: undefined } as object))).jobs, 1)
      yield* does(() => Promise.all(jobs.map((job) => web.cancel(job))))
    })),
    180_000
  )

  it(
    "however often it is started, nothing of it stays behind on stderr",
    live(Effect.gen(function*() {
      const heard: Array<number> = []
      for (let time = 0; time < 3; time++) {
        yield* does(() => Deadman.start({ databaseUrl, logLevel: "none" }).then((deadman) => deadman.stop()))
        heard.push(process.stderr.listenerCount("error"))
      }
      assert.deepStrictEqual(new Set(heard).size, 1, heard.join(" "))
    })),
    180_000
  )

  it(
    "stop lets a running job finish, with what it submits, and is done once",
    live(Effect.gen(function*() {
      const web = yield* started()
      let begun: () => void = () => {}
      let go: () => void = () => {}
      const beginning = new Promise<void>((resolve) => (begun = resolve))
      const going = new Promise<void>((resolve) => (go = resolve))
      const worker: Deadman.Started = yield* started({
        handlers: {
          parent: () => {
            begun()
            return going.then(() => worker.submit("child", 7)).then(({ id }) => id)
          }
        }
      })
      const parent = yield* does(() => web.submit("parent"))
      yield* does(() => beginning)
      const stopping = yield* Effect.forkChild(does(() => Promise.all([worker.stop(), worker.stop()])))
      yield* Effect.yieldNow
      go()
      const ended = yield* does(() => web.wait(parent))
      yield* Fiber.join(stopping)
      assert.deepStrictEqual([ended.state, ended.attempts, ended.deliveries], ["completed", 0, 1])
      const child = yield* does(() => web.get(String(ended.result)))
      assert.deepStrictEqual([child?.type, child?.payload, child?.state], ["child", 7, "pending"])
      const late = yield* refusal(() => worker.submit("child"))
      assert.strictEqual(late._tag, "SubmitUncertain")
      yield* does(() => web.cancel(child?.id ?? ""))
    })),
    180_000
  )

  it(
    "waiting ends with the job, or with the time for it, and the job goes on",
    live(Effect.gen(function*() {
      const web = yield* started({ keeper: false })
      const job = yield* does(() => web.submit("nobody.runs.this"))
      const late = yield* refusal(() => web.wait(job, { timeoutMs: 50 }))
      assert.strictEqual(late._tag, "WaitTimedOut")
      const waits = yield* Effect.forkChild(does(() => Promise.all([web.wait(job), web.wait(job.id), web.wait(job)])))
      yield* does(() => web.cancel(job))
      assert.deepStrictEqual((yield* Fiber.join(waits)).map(({ reason }) => reason), [
        "cancelled",
        "cancelled",
        "cancelled"
      ])
      // Cancelled is cancelled, however often.
      assert.strictEqual((yield* does(() => web.cancel(job))).reason, "cancelled")
      // Whoever has no time to wait learns what is known.
      assert.strictEqual((yield* does(() => web.wait(job, { timeoutMs: 0 }))).state, "dead")
      assert.strictEqual((yield* refusal(() => web.wait("nonsense")))._tag, "JobNotFound")
      for (const none of [undefined, null, 5, {}]) {
        for (
          const ask of [web.get, web.cancel, web.retry, web.wait] as ReadonlyArray<(id: unknown) => Promise<unknown>>
        ) {
          assert.match((yield* refusal(() => ask(none))).message, /^a job is named by its id/)
        }
      }
      assert.isNull(yield* does(() => web.get("nonsense")))
      const resubmitted = yield* does(() => web.resubmit(job))
      assert.strictEqual(resubmitted.resubmittedFrom, job.id)
      // Nobody is left to ask for it: that is said at once, and keeps no process.
      const web2 = yield* started({ keeper: false })
      const waiting = yield* Effect.forkChild(refusal(() => web2.wait(resubmitted, { timeoutMs: 600_000 })))
      yield* Effect.promise(() => new Promise((resolve) => setImmediate(resolve)))
      yield* does(() => web2.stop())
      assert.strictEqual((yield* Fiber.join(waiting))._tag, "WaitTimedOut")
      assert.strictEqual((yield* refusal(() => web2.wait(resubmitted, { timeoutMs: 600_000 })))._tag, "WaitTimedOut")
      yield* does(() => web.cancel(resubmitted.id))
    })),
    180_000
  )

  it(
    "says where its own Postgres is: one's own transactions, and effects in a handler's, are possible there",
    live(Effect.gen(function*() {
      const dataDir = yield* Effect.acquireRelease(
        Effect.sync(() => mkdtempSync(join(tmpdir(), "deadman-test-own-"))),
        (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
      )
      const address: { url: string } = { url: "" }
      const connected = () => {
        const client = new Client({ connectionString: address.url })
        return client.connect().then(() => client)
      }
      const note = double.handle(({ n }, running) =>
        connected().then((client) =>
          Effects.onceWith(
            running,
            "note",
            (text, values) => client.query(text, [...values]).then(({ rows }) => rows),
            () => client.query("INSERT INTO note VALUES ($1)", [n])
          ).finally(() => client.end())
        ).then(() => n * 2)
      )
      const deadman = yield* started({ databaseUrl: undefined, dataDir, handlers: [note] })
      address.url = deadman.databaseUrl
      const password = new URL(deadman.databaseUrl).password
      assert.isAbove(password.length, 8)
      assert.notInclude(JSON.stringify(deadman), password)
      const client = yield* Effect.acquireRelease(does(connected), (client) => does(() => client.end()))
      const submitting = (n: number, end: "COMMIT" | "ROLLBACK") =>
        does(() =>
          client.query("BEGIN")
            .then(() => client.query(Transaction.statement(double, { n })))
            .then(({ rows }) => client.query(end).then(() => String(rows[0].id)))
        )
      yield* does(() => client.query("CREATE TABLE note (n int)"))
      const never = yield* submitting(1, "ROLLBACK")
      const job = yield* submitting(4, "COMMIT")
      const ended = yield* does(() => deadman.wait(job))
      assert.deepStrictEqual([ended.state, ended.result], ["completed", 8])
      assert.isNull(yield* does(() => deadman.get(never)))
      assert.deepStrictEqual((yield* does(() => client.query("SELECT n FROM note"))).rows, [{ n: 4 }])
    })),
    180_000
  )

  it(
    "as a Layer it gives the client, the ports of schedules and queues, and the address of the database",
    live(
      Effect.gen(function*() {
        const schedules = yield* Deadman.Schedules
        const queues = yield* Deadman.Queues
        assert.strictEqual(Redacted.value(yield* Deadman.DatabaseUrl), databaseUrl)
        assert.deepStrictEqual((yield* schedules.list({ limit: 10, after: null })).schedules, [])
        assert.isArray((yield* queues.list({ limit: 10, after: null })).queues)
      }).pipe(
        Effect.provide(Layer.unwrap(Effect.sync(() => Deadman.layer({ databaseUrl, keeper: false })))),
        Effect.orDie
      )
    ),
    180_000
  )

  it(
    "warns of a variable that is none of Deadman's",
    live(Effect.gen(function*() {
      const said: Array<string> = []
      yield* Effect.acquireRelease(
        Effect.sync(() => {
          process.env["DEADMAN_WORKER_THREDS"] = "9"
          return vi.spyOn(process.stderr, "write").mockImplementation((text) => said.push(String(text)) > 0)
        }),
        (spy) =>
          Effect.sync(() => {
            delete process.env["DEADMAN_WORKER_THREDS"]
            spy.mockRestore()
          })
      )
      yield* started({ logLevel: undefined })
      assert.match(said.join(""), /DEADMAN_WORKER_THREDS is not a variable .* is DEADMAN_WORKER_THREADS meant/)
      assert.notInclude(said.join(""), "\"9\"")
    })),
    180_000
  )

  it("what is wrong with the options is said in their words, before anything is started", () => {
    const said = (options: object) =>
      Deadman.start({ databaseUrl, logLevel: "none", ...options }).then(
        (deadman) => deadman.stop().then(() => assert.fail("it started")),
        (error: Error & { readonly _tag?: string }) => {
          assert.strictEqual(error._tag, "StartFailed")
          return error.message
        }
      )
    return Promise.all([
      said({ databaseUrl: "mysql://x" }).then((message) =>
        assert.match(message, /^databaseUrl must look like postgres:/)
      ),
      said({ handlers: { a: () => 1 }, slots: 0 }).then((message) => assert.match(message, /^slots must be/)),
      // Where nothing runs, too: the next process would start with the same.
      said({ slots: -1 }).then((message) => assert.match(message, /^slots must be a whole number from 0 to 1024, not/)),
      said({ slots: 2.5, keeper: false }).then((message) => assert.match(message, /^slots must be/)),
      said({ leaseMs: 1 }).then((message) => assert.match(message, /^leaseMs must be/)),
      said({ keeper: false, retainDeadMs: 5 }).then((message) => assert.match(message, /^retainDeadMs must be/)),
      said({ keeper: "no" }).then((message) => assert.match(message, /^keeper must be true or false/)),
      ...[double.handle(() => 1), { double: double.handle(() => 1) }, null, "x", () => 1].map((handlers) =>
        said({ handlers }).then((message) =>
          assert.match(message, /^handlers must be an array of what handle\(\) makes/)
        )
      ),
      ...[null, "postgres://x"].map((options) =>
        Deadman.start(options as never).then(
          () => assert.fail("it started"),
          ({ _tag, message }) => assert.include([_tag, message].join(), "StartFailed,the options are an object")
        )
      ),
      said({ slotz: 3 }).then((message) =>
        assert.match(message, /^slotz is not an option; these are: databaseUrl.*\. Is slots meant\?$/)
      ),
      said({ colour: 3 }).then((message) => assert.match(message, /^colour is not an option; .*handlers, keeper$/)),
      said({ kafkaBrokers: "127.0.0.1:99999" }).then((message) =>
        assert.match(message, /^kafkaBrokers must look like/)
      ),
      said({ dataDir: "x" }).then((message) => assert.match(message, /exclude each other/)),
      said({ handlers: [double.handle(() => 1), double.handle(() => 2)] }).then((message) =>
        assert.include(message, `"double"`)
      ),
      said({ handlers: [] }).then((message) => assert.include(message, "no handler"))
    ])
  }, 180_000)
})
