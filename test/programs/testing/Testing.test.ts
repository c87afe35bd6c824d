/** What users test their handlers with: jobs in memory, on a clock that the test moves. */
import { assert, describe, it } from "@effect/vitest"
import { DateTime, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { Deadman, Effects, Job } from "../../../src/programs/deadman.ts"
import * as Testing from "../../../src/programs/testing.ts"

const mail = Job.define({
  type: "mail.send",
  payload: Schema.Struct({ to: Schema.String, at: Schema.Date }),
  result: Schema.Struct({ sent: Schema.Date }),
  maxAttempts: 3,
  backoff: { kind: "fixed", delayMs: 60_000 }
})

const Nap = Job.define({ type: "nap", payload: Schema.Null })

const at = DateTime.toDateUtc(DateTime.makeUnsafe("2026-03-01T12:00:00Z"))

const using = <A>(
  options: Testing.TestOptions,
  test: (deadman: Testing.TestDeadman) => Promise<A>
): Promise<A> => Testing.start(options).then((deadman) => test(deadman).finally(() => deadman.stop()))

describe("deadman/testing", () => {
  it("a job runs when it is told to, and not before; its result comes back as its type", () =>
    using({
      handlers: [mail.handle((payload) => ({ sent: payload.at }))]
    }, (deadman) =>
      deadman.submit(mail, { to: "a@example.org", at }).then((submission) =>
        deadman.get(submission)
          .then((job) => assert.strictEqual(job?.state, "pending"))
          .then(() => deadman.drain())
          .then((ran) =>
            assert.deepStrictEqual(ran.map(({ id, state }) => [id, state]), [[submission.id, "completed"]])
          )
          .then(() => deadman.wait(submission))
          .then((ended) => {
            assert.strictEqual(ended.state, "completed")
            assert.deepStrictEqual(ended.result, { sent: at })
          })
      )))

  it("a failed job is retried when the clock says so, and each failure counts", () => {
    const runs: Array<number> = []
    return using({
      now: at,
      handlers: [mail.handle((_payload, { job }) => {
        runs.push(job.attempt)
        throw new Error("the mail service is away")
      })]
    }, (deadman) =>
      deadman.submit(mail, { to: "a", at }).then((submission) =>
        deadman.drain()
          .then(([job]) => {
            assert.strictEqual(job?.state, "failed")
            assert.strictEqual(job?.errors[0]?.message, "the mail service is away")
          })
          .then(() => deadman.advance(59_999))
          .then((ran) => assert.deepStrictEqual([ran.length, runs], [0, [1]]))
          .then(() => deadman.advance(1))
          .then(() => assert.deepStrictEqual(runs, [1, 2]))
          .then(() => deadman.wait(submission))
          .then((job) => {
            assert.deepStrictEqual([job.state, job.reason, job.attempts], ["dead", "attempts_exhausted", 3])
            assert.strictEqual(deadman.now(), Number(at) + 120_000)
          })
      ))
  })

  it("a year passes in no time, and what is due on the way runs at its time", () => {
    const started: Array<string> = []
    return using(
      {
        now: at,
        handlers: { tick: (job) => void started.push(`${job.id}`) }
      },
      (deadman) =>
        Promise.all(
          [10, 300, 20].map((days) => {
            const ms = days * 86_400_000
            return deadman.submit("tick", null, days === 10 ? { runAtMs: Number(at) + ms } : { delayMs: ms })
          })
        )
          .then(([ten, late, twenty]) =>
            deadman.advance(365 * 86_400_000).then((ran) => {
              assert.deepStrictEqual(started, [ten!.id, twenty!.id, late!.id])
              assert.deepStrictEqual(
                ran.map((job) => job.startedAtMs),
                [10, 20, 300].map((days) => Number(at) + days * 86_400_000)
              )
            })
          )
    )
  })

  it("shows what was submitted, decoded, whatever became of it", () =>
    using({ handlers: [] }, (deadman) =>
      deadman.submit(mail, { to: "a", at })
        .then(() => deadman.submit(mail, { to: "b", at }, { tags: ["urgent"] }))
        .then(() => deadman.submit("other", 1))
        .then(() => deadman.submitted(mail))
        .then((jobs) => {
          assert.deepStrictEqual(jobs.map(({ payload }) => payload), [{ to: "a", at }, { to: "b", at }])
          assert.deepStrictEqual(jobs[1]?.tags, ["urgent"])
        })))

  it("a job without a handler is not waited for, and the message says what to do", () =>
    using({ handlers: { other: () => 1 } }, (deadman) =>
      deadman.submit(mail, { to: "a", at })
        .then((job) => deadman.wait(job))
        .then(() => assert.fail("it ended"), (error: Error) =>
          assert.include(error.message, "give its handler to start()"))))

  it("a wait for no job, or for no time, is refused in the words of Deadman.start", () =>
    using({}, (deadman) =>
      Promise.all([
        deadman.wait(undefined as never),
        deadman.wait("x", { timeoutMs: "5s" as never })
      ].map((waited) => waited.then(() => "it ended", (error: Error) => error.message))).then(([noJob, noTime]) => {
        assert.include(noJob, "a job is named by its id")
        assert.strictEqual(noTime, "timeoutMs must be a number of milliseconds")
      })))

  it("the clock stands while a handler does real work, and its timeout with it", () =>
    using({
      now: at,
      handlers: { slow: () => Effect.runPromise(Effect.sleep("150 millis")).then(() => "done") }
    }, (deadman) =>
      deadman.submit("slow", null, { timeoutMs: 100 }).then((job) =>
        deadman.wait(job).then((ended) => {
          assert.deepStrictEqual([ended.state, ended.result], ["completed", "done"])
          assert.strictEqual(deadman.now(), Number(at))
        })
      )))

  it("an Effect that waits for the clock goes on when that is moved, and runs out of its time by it", () =>
    using(
      { now: at, handlers: { nap: () => Effect.as(Effect.sleep("1 hour"), "rested") } },
      (deadman) =>
        deadman.submit(Nap, null).then((job) =>
          deadman.drain()
            .then(() => assert.fail("it ended"), (error: Error) => assert.include(error.message, "advance()"))
            .then(() => deadman.advance(3_600_000))
            .then((ran) => assert.deepStrictEqual(ran.map(({ result }) => result), ["rested"]))
            .then(() => deadman.submit(Nap, null, { timeoutMs: 60_000, maxAttempts: 1 }))
            .then((job) => deadman.wait(job))
            .then((ended) => assert.deepStrictEqual([ended.state, ended.errors[0]?.name], ["dead", "Timeout"]))
            .then(() => assert.strictEqual(deadman.now(), Number(at) + 3_660_000))
            .then(() => job)
        )
    ))

  it(
    "a handler that submits its own job without end is found out",
    () =>
      using({ handlers: { loop: () => Job.again(0) } }, (deadman) =>
        deadman.submit("loop")
          .then(() => deadman.drain())
          .then(() => assert.fail("it ended"), (error: Error) => assert.include(error.message, "runs in one go"))),
    180_000
  )

  it("one run of one handler: what it said is on the job", () =>
    Testing.runOnce(
      [mail.handle((_payload, context) => {
        context.log("looking for the address")
        context.progress({ done: 1, of: 2 })
        return Job.again(5_000)
      })],
      "mail.send",
      { to: "a", at: at.toISOString() }
    ).then((job) => {
      assert.strictEqual(job.state, "pending")
      assert.strictEqual(job.attempts, 0)
      assert.deepStrictEqual(job.logs?.map(({ line }) => line), ["looking for the address"])
      assert.deepStrictEqual(job.progress, { done: 1, of: 2 })
    }))

  it("a payload that does not fit is dead before its handler sees it", () =>
    Testing.runOnce([mail.handle(() => assert.fail("it ran"))], "mail.send", { to: 1, at: "never" }).then((job) => {
      assert.deepStrictEqual([job.state, job.reason], ["dead", "rejected"])
      assert.include(job.errors[0]?.message, "payload.to")
    }))

  it("schedules fire as the clock moves over their ticks, each tick once, and each job runs at its tick", () => {
    const ran: Array<number | null> = []
    return using(
      { now: at, handlers: { tick: () => "done" } },
      (deadman) =>
        deadman.schedule("hourly", { job: "tick", cron: "0 * * * *" })
          .then(() => deadman.drain())
          .then((jobs) => assert.deepStrictEqual(jobs, []))
          .then(() => deadman.advance(3 * 3_600_000))
          .then((jobs) => {
            const hours = [1, 2, 3].map((n) => Number(at) + n * 3_600_000)
            assert.deepStrictEqual(jobs.map(({ schedule, state }) => [schedule, state]), [
              ["hourly", "completed"],
              ["hourly", "completed"],
              ["hourly", "completed"]
            ])
            assert.deepStrictEqual(jobs.map(({ tickMs }) => tickMs), hours)
            assert.deepStrictEqual(jobs.map(({ startedAtMs }) => startedAtMs), hours)
            ran.push(...hours)
          })
          .then(() => deadman.schedules.pause("hourly"))
          .then(() => deadman.advance(5 * 3_600_000))
          .then((jobs) => assert.deepStrictEqual(jobs, []))
          .then(() => deadman.schedules.run("hourly"))
          .then((job) => deadman.wait(job))
          .then((ended) => assert.deepStrictEqual([ended.state, ended.tickMs, ran.length], ["completed", null, 3]))
    )
  })

  it("a schedule that cancels ends the run before, and one that skips lets it go on", () =>
    Promise.all((["cancel", "skip"] as const).map((overlap) => {
      let stopped = 0
      const long = () =>
        Effect.as(Effect.sleep("90 minutes"), "done").pipe(Effect.onInterrupt(() => Effect.sync(() => stopped += 1)))
      return using(
        { now: at, handlers: { long } },
        (deadman) =>
          deadman.schedule("hourly", { job: "long", everyMs: 3_600_000, overlap })
            .then(() => deadman.advance(2 * 3_600_000))
            .then(() => assert.strictEqual(stopped, overlap === "cancel" ? 1 : 0))
            .then(() => deadman.advance(3_600_000 - 1))
            .then(() => deadman.submitted("long"))
            .then((jobs) =>
              assert.deepStrictEqual(
                jobs.map(({ reason, state }) => [state, reason]),
                overlap === "cancel" ? [["dead", "cancelled"], ["running", null]] : [["completed", null]]
              )
            )
      )
    })))

  it("a job that was not started in time is dead as the clock gets there, and one that was is not", () =>
    using({ now: at, handlers: { quick: () => 1 } }, (deadman) =>
      Promise.all([
        deadman.submit("nobody", null, { startByMs: Number(at) + 60_000 }),
        deadman.submit("quick", null, { startByMs: Number(at) + 60_000 })
      ]).then(([late, quick]) =>
        deadman.advance(59_999)
          .then(() => deadman.get(late))
          .then((job) => assert.strictEqual(job?.state, "pending"))
          .then(() => deadman.advance(1))
          .then(() => Promise.all([deadman.get(late), deadman.get(quick)]))
          .then(([expired, done]) => {
            assert.deepStrictEqual([expired?.state, expired?.reason], ["dead", "expired"])
            assert.strictEqual(expired?.finishedAtMs, Number(at) + 60_000)
            assert.strictEqual(done?.state, "completed")
          })
          .then(() => deadman.submit("nobody", null, { startByMs: deadman.now() + 5_000 }))
          .then((job) => deadman.wait(job))
          .then((ended) => assert.deepStrictEqual([ended.state, ended.reason], ["dead", "expired"]))
      )))

  it("a cancelled run is interrupted", () => {
    let stopped = false
    const hangs = () =>
      Effect.onInterrupt(Effect.sleep("1 day"), () =>
        Effect.sync(() => {
          stopped = true
        }))
    return using({ handlers: { hangs } }, (deadman) =>
      deadman.submit("hangs").then((job) =>
        deadman.advance(1)
          .then(() => deadman.get(job))
          .then((running) => assert.strictEqual(running?.state, "running"))
          .then(() => deadman.cancel(job))
          .then(() => deadman.drain())
          .then(() => deadman.get(job))
          .then((cancelled) => {
            assert.deepStrictEqual([cancelled?.state, cancelled?.reason, stopped], ["dead", "cancelled", true])
          })
      ))
  })

  it("effects, which commit with a job that is in Postgres, say at once that it is not", () => {
    let asked = 0
    const query: Effects.Query = () => Promise.reject(new Error(`asked ${++asked} times`))
    const handlers = {
      once: (_: unknown, context: Job.JobContext) => Effects.onceWith(context, "k", query, () => query("", [])),
      complete: (_: unknown, context: Job.JobContext) => Effects.completeWith(context, query, () => query("", [])),
      guard: (_: unknown, context: Job.JobContext) => Effects.guard(context, "k", query),
      completing: (_: unknown, context: Job.JobContext) => Effects.completing(context, null, query)
    }
    const types = Object.keys(handlers) as Array<keyof typeof handlers>
    const typed = types.map((type) => Job.define({ type, payload: Schema.Null }).handle(handlers[type]))
    return using({ handlers: typed }, (deadman) =>
      Promise.all(types.map((type) => deadman.submit(type, null)))
        .then(() => deadman.drain())
        .then((jobs) => {
          assert.deepStrictEqual(jobs.map(({ reason }) => reason), types.map(() => "rejected" as const))
          for (const { errors } of jobs) {
            assert.strictEqual(errors[0]?.name, "EffectsNeedPostgres")
            assert.include(errors[0]?.message, "Deadman.start({ handlers, databaseUrl })")
          }
          assert.strictEqual(asked, 0)
        }))
  })

  it.effect("effects of Effect SQL say so too", () =>
    Effect.gen(function*() {
      const client = yield* Deadman.Client
      const runner = yield* Testing.Runner
      yield* client.submit("once", null)
      yield* client.submit("complete", null)
      const jobs = yield* runner.drain
      assert.deepStrictEqual(jobs.map(({ errors }) => errors[0]?.name), ["EffectsNeedPostgres", "EffectsNeedPostgres"])
    }).pipe(
      Effect.provide(
        Testing.layer({
          handlers: [
            Job.define({ type: "once", payload: Schema.Null }).handle(() => Effects.once("k", Effect.void)),
            Job.define({ type: "complete", payload: Schema.Null }).handle(() => Effects.complete(Effect.void))
          ]
        }).pipe(Layer.provide(Layer.succeed(SqlClient.SqlClient, {} as SqlClient.SqlClient)))
      )
    ))

  it.effect("as a Layer it runs on the clock that the test has, and handlers find the client", () =>
    Effect.gen(function*() {
      const client = yield* Deadman.Client
      const runner = yield* Testing.Runner
      const submission = yield* client.submit("parent", 3)
      yield* runner.advance("1 minute")
      const parent = yield* client.wait(submission)
      const children = yield* client.list({ type: "child" })
      assert.strictEqual(parent.state, "completed")
      assert.deepStrictEqual(children.jobs.map(({ state }) => state), ["completed", "completed", "completed"])
      assert.isAtLeast(yield* Effect.clockWith((clock) => clock.currentTimeMillis), 60_000)
    }).pipe(Effect.provide(Testing.layer({ handlers: [parent, child] }))))
})

const Children = Job.define({ type: "child", payload: Schema.Number })
const Parent = Job.define({ type: "parent", payload: Schema.Number })
const child = Children.handle(() => Effect.sleep("10 seconds"))
const parent = Parent.handle((count) =>
  Effect.gen(function*() {
    const client = yield* Deadman.Client
    yield* Effect.forEach(Array.from({ length: count }, (_, n) => n), (n) => client.submit(Children, n))
  })
)
