/** The same program, in a process that takes part and over HTTP: the names, the options and the answers are the same. */
import { assert, describe, it } from "@effect/vitest"
import { DateTime, Effect, Redacted, Schema } from "effect"
import { createServer, type Server } from "node:http"
import { ServerAddress } from "../../../src/adapters/http/Server.ts"
import { connect, Deadman, Job } from "../../../src/programs/deadman.ts"
import * as Subject from "../../adapters/http/Subject.ts"
import { freshDatabase } from "../../support/Database.ts"

const report = Job.define({
  type: "report",
  payload: Schema.Struct({ n: Schema.Int, at: Schema.Date }),
  result: Schema.Int,
  maxAttempts: 3,
  backoff: { kind: "exponential", baseMs: 10, capMs: 20 },
  retainMs: 60_000
})

const epoch = DateTime.toDateUtc(DateTime.makeUnsafe(0))
const payload = { n: 1, at: epoch }

type Speaker = Deadman.Jobs<never>

const does = <A>(ask: () => Promise<A>) => Effect.promise(ask)

const refusal = (ask: () => Promise<unknown>) =>
  does(() =>
    ask().then(
      (): never => assert.fail("it was accepted"),
      (error: Error & { readonly _tag?: string; readonly field?: string | null; readonly state?: string }) => error
    )
  )

/** What both say to the same, without what is drawn. */
const speaks = (deadman: Speaker) =>
  Effect.gen(function*() {
    const key = { idempotencyKey: "k-1" }
    const first = yield* does(() => deadman.submit(report, payload, { ...key, tags: ["a"] }))
    const again = yield* does(() => deadman.submit(report, payload, { ...key, tags: ["a"] }))
    assert.deepStrictEqual([first.created, again.created, again.id], [true, false, first.id])
    assert.deepStrictEqual(Object.keys(first), ["id", "type", "created"])
    const stored = yield* does(() => deadman.get(first))
    const refused = yield* does(() =>
      Promise.all([
        deadman.submit(report, { n: 0.5, at: epoch }),
        deadman.submit("x", null, { maxAttempts: 0 }),
        deadman.submit("x", null, { backoff: { kind: "fixed", delayMs: -1 } }),
        deadman.submit("x", Number.NaN),
        deadman.submit(report, { ...payload, n: 2 }, key)
      ].map((asked) =>
        // That the key was used the server says in its own words.
        asked.then(
          () => "accepted",
          ({ _tag, field, message }) => [_tag, field, field === "idempotencyKey" ? null : message]
        )
      ))
    )
    const all = yield* does(() =>
      deadman.submitAll([{ job: report, payload }, { job: "other", payload: [1], options: { priority: 7 } }])
    )
    const repeated = yield* does(() =>
      deadman.submitAll([{ job: report, payload, options: { ...key, tags: ["a"] } }, {
        job: "other",
        payload: [2],
        options: { tags: ["b"] }
      }])
    )
    yield* does(() => deadman.cancel(repeated[1]!))
    const page = yield* does(() => deadman.list({ limit: 2 }))
    const rest = yield* does(() => deadman.list({ limit: 2, before: page.next ?? "" }))
    const alone = yield* does(() =>
      deadman.submit("alone", { a: 1 }, { unique: { windowMs: 5_000, onConflict: "replace" } })
        .then((job) => deadman.cancel(job))
    )
    const aloneStill = yield* does(() => deadman.cancel(alone))
    const delayed = yield* does(() =>
      deadman.submit("later", null, { delayMs: 60_000, idempotencyKey: "later-1" })
        .then(() => deadman.submit("later", null, { delayMs: 60_000, idempotencyKey: "later-1" }))
        .then((job) => deadman.get(job))
    )
    const tooMany = yield* refusal(() => deadman.submitAll(Array.from({ length: 10_001 }, () => ({ job: "many" }))))
    const cancelled = yield* does(() => deadman.cancel(all[1]!))
    const late = yield* refusal(() => deadman.wait(first, { timeoutMs: 1 }))
    const ended = yield* does(() => deadman.wait(all[1]!))
    const anew = yield* does(() => deadman.resubmit(ended))
    const wrong = yield* refusal(() => deadman.retry(all[1]!))
    const gone = yield* does(() => deadman.get("no-such-job"))
    const unknown = yield* refusal(() => deadman.cancel("no-such-job"))
    const strange = ["", ".", "..", "a/b", "\ud800", "x".repeat(20_000)]
    const nobodys = yield* Effect.forEach(strange, (id) =>
      Effect.all([
        does(() => deadman.get(id)),
        Effect.map(refusal(() => deadman.cancel(id)), ({ _tag, message }) => [_tag, message]),
        Effect.map(refusal(() => deadman.wait(id, { timeoutMs: 1 })), ({ _tag }) => _tag)
      ]))

    const put = yield* does(() =>
      deadman.schedules.put("nightly", {
        job: report,
        payload,
        cron: "0 3 * * *",
        zone: "Europe/Zurich",
        overlap: "skip"
      })
    )
    const ran = yield* does(() => deadman.schedules.run("nightly"))
    const overlaps = yield* refusal(() => deadman.schedules.run("nightly"))
    yield* does(() => deadman.cancel(ran))
    const once = yield* does(() => deadman.schedules.run("nightly", { idempotencyKey: "r-1" }))
    const twice = yield* does(() => deadman.schedules.run("nightly", { idempotencyKey: "r-1" }))
    const reused = yield* refusal(() => deadman.submit("x", null, { idempotencyKey: "r-1" }))
    const badKey = yield* refusal(() => deadman.schedules.run("nightly", { idempotencyKey: "a b" }))
    const paused = yield* does(() => deadman.schedules.pause("nightly"))
    const resumed = yield* does(() => deadman.schedules.resume("nightly"))
    const schedules = yield* does(() => deadman.schedules.list())
    const read = yield* does(() => deadman.schedules.get("nightly"))
    const deleted = yield* does(() => deadman.schedules.delete("nightly"))
    const unscheduled = yield* does(() => deadman.unschedule("nightly"))
    const noSchedule = yield* does(() => deadman.schedules.get("nightly"))
    const cannotPause = yield* refusal(() => deadman.schedules.pause("nightly"))
    const badCron = yield* refusal(() => deadman.schedule("x", { job: "x", everyMs: 1 }))

    const set = yield* does(() => deadman.queues.set("slow", { concurrency: 2, stepMs: "strict" }))
    const held = yield* does(() => deadman.queues.pause("slow"))
    const open = yield* does(() => deadman.queues.resume("slow"))
    const queues = yield* does(() => deadman.queues.list())
    const noQueue = yield* does(() => deadman.queues.get("nobody"))
    const badQueue = yield* refusal(() => deadman.queues.set("slow", { stepMs: -1 }))
    const stats = yield* does(() => deadman.stats())
    const badLists = yield* Effect.forEach(
      [{ state: "done" }, { limit: 0 }, { limit: "ten" }, { tipe: "x" }],
      (options) => refusal(() => deadman.list(options as never))
    )
    const badWait = yield* refusal(() => deadman.wait(first, { timeoutMs: "5s" as never }))

    return {
      stored: {
        ...stored,
        id: null,
        runAtMs: null,
        createdAtMs: null
      },
      refused,
      page: [page.jobs.map(({ type }) => type), rest.jobs.map(({ type }) => type), rest.next],
      cancelled: [cancelled.state, cancelled.reason, ended.state, ended.reason],
      created: [all, repeated].map((batch) => batch.map((one) => [Object.keys(one), one.created])),
      states: [wrong.state, overlaps.state],
      run: [once.id === twice.id, reused._tag, reused.field, badKey._tag, badKey.field],
      anew: [anew.resubmittedFrom === all[1]!.id, anew.state, anew.priority],
      errors: [late, wrong, unknown, overlaps, cannotPause, badCron, badQueue].map(({ _tag }) => _tag),
      fields: [badCron.field, badQueue.field],
      messages: [badCron.message, badQueue.message],
      unique: [alone.unique, alone.backoff, aloneStill.state, aloneStill.reason, aloneStill.unique],
      delayed: delayed === null ? null : delayed.runAtMs - delayed.createdAtMs,
      tooMany: [tooMany._tag, tooMany.field, tooMany.message],
      gone,
      nobodys,
      put: { ...put, createdAtMs: null, updatedAtMs: null },
      ran: [ran.schedule, ran.tickMs, ran.retainMs, ran.payload, ran.backoff],
      paused: [paused.paused, paused.nextFireMs, resumed.paused, resumed.nextFireMs === put.nextFireMs],
      schedules: schedules.schedules.map(({ name }) => name),
      read: [read?.name, read?.lastJob === once.id],
      deleted,
      unscheduled,
      noSchedule,
      set: [set.name, set.paused, set.concurrency, set.stepMs, set.byState, held.paused, open.paused],
      queues: queues.queues.map(({ name }) => name),
      noQueue,
      stats: Object.keys(stats).sort(),
      snakes: Object.keys(stats.counters).filter((name) => name.includes("_")),
      badLists: badLists.map(({ _tag, field, message }) => [_tag, field, message]),
      badWait: [badWait.name, badWait.message]
    }
  })

describe("Deadman.start and connect()", () => {
  it.live("speak one language", () =>
    Effect.gen(function*() {
      const { url } = yield* freshDatabase
      const deadman = yield* Effect.acquireRelease(
        does(() => Deadman.start({ databaseUrl: Redacted.value(url), logLevel: "none", keeper: false })),
        (deadman) => does(() => deadman.stop())
      )
      const here = yield* speaks(deadman)
      const { port } = yield* ServerAddress
      const there = yield* speaks(connect({ url: `http://127.0.0.1:${port}` }))
      assert.strictEqual(here.delayed, 60_000)
      assert.deepStrictEqual(here.errors, [
        "WaitTimedOut",
        "WrongState",
        "JobNotFound",
        "WrongState",
        "ScheduleNotFound",
        "SubmitRefused",
        "SubmitRefused"
      ])
      assert.deepStrictEqual(here.fields, ["everyMs", "stepMs"])
      for (const [got, [cancelled], waited] of here.nobodys) {
        assert.deepStrictEqual([got, cancelled, waited], [null, "JobNotFound", "JobNotFound"])
      }
      assert.deepStrictEqual(here.refused.map((said) => said.slice(0, 2)), [
        ["SubmitRefused", "payload.n"],
        ["SubmitRefused", "maxAttempts"],
        ["SubmitRefused", "backoff"],
        ["SubmitRefused", "payload"],
        ["SubmitRefused", "idempotencyKey"]
      ])
      assert.deepStrictEqual(here.badLists.map((said) => said.slice(0, 2)), [
        ["SubmitRefused", "state"],
        ["SubmitRefused", "limit"],
        ["SubmitRefused", "limit"],
        ["SubmitRefused", "tipe"]
      ])
      assert.deepStrictEqual(here.badWait, ["TypeError", "timeoutMs must be a number of milliseconds"])
      assert.deepStrictEqual(here.snakes, [])
      assert.deepStrictEqual(there, here)
      const keys = ["id", "type", "created"]
      assert.deepStrictEqual(here.created, [[[keys, true], [keys, true]], [[keys, false], [keys, true]]])
      assert.deepStrictEqual(here.states, ["dead", "pending"])
      const unique: Deadman.UniqueTerms = {
        fields: null,
        windowMs: 5_000,
        states: ["pending", "running", "failed", "completed"],
        onConflict: "replace"
      }
      const backoff1: Deadman.Backoff = { kind: "exponential", baseMs: 1_000, capMs: 900_000 }
      assert.deepStrictEqual(here.unique, [unique, backoff1, "dead", "cancelled", unique])
      assert.deepStrictEqual(here.put.backoff, { kind: "exponential", baseMs: 10, capMs: 20 })
      assert.match(String(here.tooMany[2]), /^a batch of 10001 jobs is too long/)
      assert.deepStrictEqual(here.run, [true, "SubmitRefused", "idempotencyKey", "SubmitRefused", "idempotencyKey"])
      const { backoff, maxAttempts, payload: stored, retainMs, tags } = here.stored
      assert.deepStrictEqual({ backoff, maxAttempts, stored, retainMs, tags }, {
        backoff: { kind: "exponential", baseMs: 10, capMs: 20 },
        maxAttempts: 3,
        stored: { n: 1, at: "1970-01-01T00:00:00.000Z" },
        retainMs: 60_000,
        tags: ["a"]
      })
    }).pipe(Effect.provide(Subject.layer()), Effect.scoped), 180_000)
})

/** Takes connections and answers nothing. */
const silent = Effect.acquireRelease(
  Effect.callback<Server>((resume) => {
    const server = createServer(() => {}).listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
  }),
  (server) =>
    Effect.callback<void>((resume) => {
      server.closeAllConnections()
      server.close(() => resume(Effect.void))
    })
)

describe("connect()", () => {
  it.live(
    "walks all pages, says whether the server is ready, and draws keys unless told otherwise",
    () =>
      Effect.gen(function*() {
        const { port } = yield* ServerAddress
        const deadman = connect({ url: `http://127.0.0.1:${port}/` })
        assert.strictEqual(deadman.url, `http://127.0.0.1:${port}`)
        const unkeyed = yield* does(() => deadman.submit("one", null, { keyed: false }))
        yield* does(() => deadman.submitAll(Array.from({ length: 4 }, (_, n) => ({ job: "many", payload: n }))))
        const walked: Array<unknown> = []
        const jobs = deadman.walk({ type: "many", limit: 3 })[Symbol.asyncIterator]()
        for (let next = yield* does(() => jobs.next()); next.done !== true; next = yield* does(() => jobs.next())) {
          walked.push(next.value.payload)
        }
        assert.deepStrictEqual(walked, [3, 2, 1, 0])
        const wrong = yield* refusal(() => deadman.walk({ state: "done" as never })[Symbol.asyncIterator]().next())
        assert.strictEqual(wrong.field, "state")
        assert.isTrue(unkeyed.created)
        assert.isArray((yield* does(() => deadman.ready())).loops)
        assert.throws(() => connect({ url: "nowhere" }), /must look like/)
        assert.throws(() => connect("http://127.0.0.1:1" as never), /connect takes an object/)
        assert.throws(() => connect(undefined as never), /connect takes an object/)
        assert.throws(
          () => connect({ url: "http://127.0.0.1:1", tocken: "secret-value" } as never),
          /^tocken is not an option of connect; these are: url, token, deadlineMs, tryMs, tries\. Is token meant\?$/
        )
        const batch = yield* refusal(() => deadman.submitAll(undefined as never))
        assert.include(batch.message, "submitAll takes an array")
      }).pipe(Effect.provide(Subject.layer())),
    180_000
  )

  it.live("gives a call up when its signal says so, and says that nobody is there", () =>
    Effect.gen(function*() {
      const address = (yield* silent).address()
      const url = `http://127.0.0.1:${typeof address === "object" ? address?.port : 0}`
      const began = performance.now()
      yield* refusal(() => connect({ url }).get("j1", { signal: AbortSignal.timeout(100) }))
      assert.isBelow(performance.now() - began, 2_000)
      const nobody = yield* refusal(() => connect({ url: "http://127.0.0.1:1", tries: 1 }).stats())
      assert.strictEqual(nobody._tag, "ServerUnavailable")
    }).pipe(Effect.scoped), 180_000)
})
