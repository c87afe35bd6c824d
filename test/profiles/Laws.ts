/**
 * What users are promised, said once and held to on every profile: each law through real servers and a real worker.
 *
 * `laws` may run side by side; those of `timedLaws` look at the clock and want the machine for themselves. What concerns
 * workers over HTTP is in `RemoteLaws.ts`.
 */
import { assert } from "@effect/vitest"
import { Clock, Effect } from "effect"
import * as Scale from "../faults/ScaleStage.ts"
import * as Processes from "../support/Processes.ts"
import { daily, ids, law, type Laws, leaseMs, prompt, type Told } from "./System.ts"

const soon = { kind: "fixed", delay_ms: 50 }

/** In the order in which they were started. */
const started = (jobs: ReadonlyArray<Told>) => ids(jobs.toSorted((a, b) => a.started_at_ms - b.started_at_ms))

export const laws: Laws = {
  "a job runs, and what its handler said and noted is on it": law(({ job, reaches, submit }) =>
    Effect.gen(function*() {
      const payload = { do: "echo", ms: 7 }
      const id = yield* submit({ type: "crunch", payload })
      yield* reaches(id, "completed")
      // Notes travel by themselves, and may come behind the end of the job.
      yield* Processes.eventually("the notes are there", Effect.map(job(id), ({ progress }) => progress !== null))
      const found = yield* job(id)
      assert.deepInclude(found, { result: payload, progress: { half: true }, attempts: 0, deliveries: 1 })
      assert.deepStrictEqual(found.logs.map(({ line }: { line: string }) => line), ["delivery 1"])
    })
  ),

  "work in a thread may block for longer than a lease": law(({ reaches, submit }) =>
    Effect.gen(function*() {
      const id = yield* submit({ type: "crunch", payload: { do: "block", ms: leaseMs + 500 } })
      assert.deepInclude(yield* reaches(id, "completed"), {
        result: `blocked for ${leaseMs + 500}`,
        deliveries: 1,
        lease_losses: 0
      })
    })
  ),

  "what fails is tried again, and dead after its last attempt": law(({ reaches, submit }) =>
    Effect.gen(function*() {
      const again = yield* submit({ type: "failK", payload: 2, backoff: soon })
      const never = yield* submit({ type: "always-fails", max_attempts: 2, backoff: soon })
      assert.deepInclude(yield* reaches(again, "completed"), { attempts: 2, deliveries: 3, result: 3 })
      assert.deepInclude(yield* reaches(never, "dead"), { attempts: 2, reason: "attempts_exhausted" })
    })
  ),

  "an attempt that exceeds its timeout is interrupted, and is a failure": law(({ reaches, submit }) =>
    Effect.gen(function*() {
      const id = yield* submit({ type: "sleep", payload: 60_000, timeout_ms: 300, max_attempts: 1 })
      const found = yield* reaches(id, "dead")
      assert.deepInclude(found, { reason: "attempts_exhausted", attempts: 1 })
      assert.deepInclude(found.errors[0], { name: "Timeout" })
    })
  ),

  "one idempotency key is one job": law(({ api, submit }) =>
    Effect.gen(function*() {
      const body = { type: "noop", payload: 1, idempotency_key: "key-of-the-laws" }
      const id = yield* submit(body)
      const repeat = yield* api.send("POST", "/jobs", body)
      assert.deepStrictEqual([repeat.status, repeat.body.id], [200, id])
      assert.strictEqual(repeat.headers.get("idempotent-replayed"), "true")
      assert.strictEqual((yield* api.send("POST", "/jobs", { ...body, payload: 2 })).status, 422)
    })
  ),

  "of unique jobs one is skipped, replaced, or kept out for a window": law(({ api, reaches, send, submit }) =>
    Effect.gen(function*() {
      yield* send("PUT", "/queues/unique", { paused: true })
      const one = (n: number, unique: object, payload: object = {}) =>
        api.send("POST", "/jobs", { type: "noop", queue: "unique", payload: { n, ...payload }, unique })
      const first = yield* one(1, { fields: ["to"] }, { to: "ada" })
      const skipped = yield* one(2, { fields: ["to"] }, { to: "ada" })
      assert.deepStrictEqual([skipped.status, skipped.body.id], [200, first.body.id])
      assert.strictEqual(skipped.headers.get("deadman-unique"), "skipped")

      const old = yield* one(1, { fields: ["of"] }, { of: "it" })
      const anew = yield* one(2, { fields: ["of"], on_conflict: "replace" }, { of: "it" })
      assert.deepStrictEqual([old.status, anew.status], [201, 201])
      yield* send("PUT", "/queues/unique", { paused: false })
      assert.deepInclude(yield* reaches(old.body.id, "dead"), { reason: "cancelled", deliveries: 0 })
      assert.deepInclude(yield* reaches(anew.body.id, "completed"), { deliveries: 1 })
      yield* reaches(first.body.id, "completed")
      // That one is over, and its place is free again.
      assert.strictEqual((yield* one(3, { fields: ["to"] }, { to: "ada" })).status, 201)

      // It has to be asked for again within it, whatever else the machine has to do.
      const windowed = { type: "noop", payload: { window: 1 }, unique: { window_ms: 8_000 } }
      const begun = yield* submit(windowed)
      yield* reaches(begun, "completed")
      assert.strictEqual((yield* api.send("POST", "/jobs", windowed)).body.id, begun)
      yield* Processes.eventually(
        "the window is over",
        Effect.map(api.send("POST", "/jobs", windowed), ({ status }) => status === 201),
        "60 seconds",
        "200 millis"
      )
    })
  ),

  "what was not started in time is dead, and what was runs": law(({ reaches, send, submit }) =>
    Effect.gen(function*() {
      yield* send("PUT", "/queues/late", { paused: true })
      const nowMs = yield* Clock.currentTimeMillis
      const late = yield* submit({ type: "noop", queue: "late", start_by_ms: nowMs + 3_000 })
      const inTime = yield* submit({ type: "noop", queue: "late", start_by_ms: nowMs + 600_000 })
      assert.deepInclude(yield* reaches(late, "dead"), { reason: "expired", deliveries: 0, attempts: 0 })
      yield* send("PUT", "/queues/late", { paused: false })
      yield* reaches(inTime, "completed")
    })
  ),

  "a job is kept for as long as it says": law(({ api, reaches, rows, submit }) =>
    Effect.gen(function*() {
      const short = yield* submit({ type: "noop", retain_ms: 1_000 })
      const long = yield* submit({ type: "noop" })
      yield* reaches(short, "completed")
      yield* reaches(long, "completed")
      // As if that were two minutes ago.
      yield* rows(
        `UPDATE deadman.job SET finished_at_ms = finished_at_ms - 120000, prune_ms = prune_ms - 120000
         WHERE id IN ('${short}', '${long}')`
      )
      yield* Processes.eventually(
        "it is gone",
        Effect.map(api.send("GET", `/jobs/${short}`), ({ status }) => status === 404),
        "60 seconds",
        "500 millis"
      )
      yield* reaches(long, "completed")
    })
  ),

  "jobs are found by their tags": law(({ list, reaches, submit }) =>
    Effect.gen(function*() {
      const both = yield* submit({ type: "noop", tags: ["red", "blue"] })
      const one = yield* submit({ type: "noop", tags: ["blue"] })
      yield* reaches(both, "completed")
      yield* reaches(one, "completed")
      assert.deepStrictEqual(ids(yield* list("tag=red")), [both])
      assert.deepStrictEqual(ids(yield* list("tag=blue&state=completed")).toSorted(), [both, one].toSorted())
    })
  ),

  "a queue's order is that of its priorities and their step": law(({ list, reaches, send, submit }) =>
    Effect.gen(function*() {
      const inOrder = Effect.fnUntraced(function*(queue: string, settings: object, ...priorities: Array<number>) {
        yield* send("PUT", `/queues/${queue}`, { paused: true, concurrency: 1, ...settings })
        const jobs: Array<string> = []
        for (const priority of priorities) {
          jobs.push(yield* submit({ type: "sleep", payload: 5, queue, priority }))
          // What a step is worth is time.
          yield* Effect.sleep("120 millis")
        }
        yield* send("PUT", `/queues/${queue}`, { paused: false })
        yield* Effect.forEach(jobs, (id) => reaches(id, "completed"))
        return started(yield* list(`queue=${queue}`)).map((id) => jobs.indexOf(id))
      })
      const orders = yield* Effect.all([
        inOrder("by-default", {}, 0, -1, 5, 0),
        inOrder("by-strict", { step_ms: "strict" }, 0, -1, 5, 0),
        inOrder("by-time", { step_ms: 0 }, 0, -1, 5, 0),
        inOrder("by-age", { step_ms: 50 }, 0, 1, 900)
      ], { concurrency: "unbounded" })
      assert.deepStrictEqual(orders, [[2, 0, 3, 1], [2, 0, 3, 1], [0, 1, 2, 3], [2, 0, 1]])
    })
  ),

  "a paused queue runs nothing, and goes on where it was": law(({ job, reaches, send, submit }) =>
    Effect.gen(function*() {
      yield* send("PUT", "/queues/paused", { paused: true })
      const waiting = yield* Effect.forEach(Array.from({ length: 20 }), () => submit({ type: "noop", queue: "paused" }))
      const other = yield* submit({ type: "noop", queue: "not-paused" })
      yield* reaches(other, "completed")
      assert.isTrue((yield* Effect.forEach(waiting, job)).every(({ state }) => state === "pending"))
      yield* send("POST", "/queues/paused/resume")
      for (const id of waiting) {
        assert.deepInclude(yield* reaches(id, "completed"), { deliveries: 1 })
      }
    })
  ),

  "a limited queue runs no more at once than it may, and all of it": law(({ ended, jobs, send, submit }) =>
    Effect.gen(function*() {
      // Paused until the limit is known: what was claimed beyond it would be handed back, and delivered again.
      yield* send("PUT", "/queues/narrow", { concurrency: 2, paused: true })
      const all = yield* Effect.forEach(
        Array.from({ length: 12 }),
        () => submit({ type: "sleep", payload: 120, queue: "narrow" }),
        { concurrency: 4 }
      )
      yield* send("POST", "/queues/narrow/resume")
      yield* ended(all)
      const runs = yield* jobs(all)
      assert.isTrue(runs.every(({ deliveries, state }) => state === 3 && deliveries === 1))
      assert.strictEqual(Scale.overlap(runs), 2)
    })
  ),

  "a delayed job runs when it is due, a retried one at once, and what was over again as another": law(
    ({ reaches, send, submit }) =>
      Effect.gen(function*() {
        const dueMs = (yield* Clock.currentTimeMillis) + 1_200
        const delayed = yield* submit({ type: "noop", run_at_ms: dueMs })
        const hurried = yield* submit({ type: "noop", delay_ms: 3_600_000 })
        yield* send("POST", `/jobs/${hurried}/retry`)
        yield* reaches(hurried, "completed")
        const found = yield* reaches(delayed, "completed")
        assert.isAtLeast(found.started_at_ms, dueMs)
        assert.isBelow(found.started_at_ms, dueMs + 2_000)
        const { id } = yield* send("POST", `/jobs/${delayed}/resubmit`)
        assert.deepInclude(yield* reaches(id, "completed"), { resubmitted_from: delayed })
      })
  ),

  "a cancel ends what waits and what runs": law(({ reaches, send, submit }) =>
    Effect.gen(function*() {
      const waiting = yield* submit({ type: "noop", run_at_ms: 253_402_300_799_999 })
      const running = yield* submit({ type: "sleep", payload: 600_000 })
      yield* reaches(running, "running")
      yield* send("DELETE", `/jobs/${waiting}`)
      yield* send("DELETE", `/jobs/${running}`)
      assert.deepInclude(yield* reaches(waiting, "dead"), { reason: "cancelled", deliveries: 0 })
      assert.deepInclude(yield* reaches(running, "dead"), { reason: "cancelled", deliveries: 1 })
    })
  ),

  "each tick of a schedule is one job, and so is a run by hand": law(({ list, reaches, send }) =>
    Effect.gen(function*() {
      const query = "queue=ticks"
      // Also those for which a busy keeper came late.
      const missed = { all: 100 }
      yield* send("PUT", "/schedules/ticks", { every_ms: 1_000, type: "noop", queue: "ticks", missed })
      yield* Processes.eventually("some have fired", Effect.map(list(query), ({ length }) => length >= 4))
      yield* send("POST", "/schedules/ticks/pause")
      const byHand = yield* send("POST", "/schedules/ticks/run")
      const jobs: ReadonlyArray<Told> = yield* list(query)
      assert.strictEqual((yield* reaches(byHand.id, "completed")).tick_ms, null)
      const ticks = jobs.map(({ tick_ms }) => tick_ms).filter((tick) => tick !== null).toSorted()
      assert.deepStrictEqual(ticks, ticks.map((_, n) => ticks[0]! + n * 1_000))
      for (const id of ids(jobs)) {
        assert.deepInclude(yield* reaches(id, "completed"), { schedule: "ticks", deliveries: 1 })
      }
      yield* send("DELETE", "/schedules/ticks")
    })
  ),

  "what a schedule has missed is made up for as it says": law(({ list, rows, send }) =>
    Effect.gen(function*() {
      const cron = yield* daily
      const policies = [["skip", "skip", 0], ["latest", "latest", 1], ["all", { all: 3 }, 3]] as const
      for (const [name, missed] of policies) {
        yield* send("PUT", `/schedules/missed-${name}`, { cron, type: "noop", queue: `missed-${name}`, missed })
      }
      // As if nobody had been there for five days.
      yield* rows(
        `UPDATE deadman.schedule SET next_fire_ms = next_fire_ms - 5 * 86400000 WHERE name LIKE 'missed-%'`
      )
      yield* Processes.eventually(
        "they are booked anew",
        Effect.map(
          rows<{ n: number }>(
            `SELECT count(*)::int AS n FROM deadman.schedule
             WHERE name LIKE 'missed-%' AND next_fire_ms > deadman.now_ms()`
          ),
          ([found]) => found?.n === policies.length
        )
      )
      const nowMs = yield* Clock.currentTimeMillis
      for (const [name, , count] of policies) {
        const jobs: ReadonlyArray<Told> = yield* list(`queue=missed-${name}`)
        const days = jobs.map(({ tick_ms }) => Math.floor((nowMs - tick_ms) / 86_400_000)).toSorted()
        assert.deepStrictEqual(days, Array.from({ length: count }, (_, n) => n), name)
      }
    })
  ),

  "a schedule heeds the job before, by skipping its tick or by cancelling that": law(({ list, send }) =>
    Effect.gen(function*() {
      const long = { every_ms: 1_000, type: "sleep", payload: 600_000 }
      yield* send("PUT", "/schedules/waits", { ...long, queue: "waits", overlap: "skip" })
      yield* send("PUT", "/schedules/cuts", { ...long, queue: "cuts", overlap: "cancel" })
      const cuts: Effect.Effect<ReadonlyArray<Told>> = list("queue=cuts")
      yield* Processes.eventually("three have fired", Effect.map(cuts, ({ length }) => length >= 3))
      for (const name of ["waits", "cuts"]) {
        yield* send("POST", `/schedules/${name}/pause`)
      }
      const [last, ...before] = yield* cuts
      assert.include(["pending", "running"], last!.state)
      assert.isTrue(before.every(({ reason }) => reason === "cancelled"))
      const waits: ReadonlyArray<Told> = yield* list("queue=waits")
      assert.lengthOf(waits, 1)
      for (const id of ids([last!, ...waits])) {
        yield* send("DELETE", `/jobs/${id}`)
      }
    })
  ),

  "an effect in the handler's transaction happens once, whatever becomes of its attempts": law(
    ({ reaches, rows, submit }) =>
      Effect.gen(function*() {
        const deposit = yield* submit({ type: "deposit", payload: { account: "ada", amount: 5 } })
        const charge = yield* submit({ type: "charge", payload: { account: "bob", amount: -3 }, backoff: soon })
        assert.deepInclude(yield* reaches(deposit, "completed"), { result: { balance: 5 }, deliveries: 1 })
        assert.deepInclude(yield* reaches(charge, "completed"), { attempts: 2, deliveries: 3 })
        assert.deepStrictEqual(
          yield* rows("SELECT account, amount FROM public.ledger WHERE account IN ('ada', 'bob') ORDER BY account"),
          [{ account: "ada", amount: 5 }, { account: "bob", amount: -3 }]
        )
      })
  ),

  "jobs in bulk are all or nothing as an array, and each for itself as lines": law(({ api, ended, list }) =>
    Effect.gen(function*() {
      const of = (tag: string, count: number) =>
        Array.from({ length: count }, (_, n) => ({ type: "noop", payload: n, tags: [tag] }))
      const whole = yield* api.send("POST", "/jobs/batch", of("whole", 200))
      assert.strictEqual(whole.status, 201)
      const wrong = { type: "noop", tags: ["broken"], max_attempts: 0 }
      assert.strictEqual((yield* api.send("POST", "/jobs/batch", [...of("broken", 50), wrong])).status, 400)
      const lines = [...of("lines", 20), wrong, ...of("lines", 20)].map((one) => JSON.stringify(one)).join("\n")
      const answer = yield* api.send("POST", "/jobs/batch", lines, { "content-type": "application/x-ndjson" })
      const said = String(answer.body).trim().split("\n").map((line) => JSON.parse(line))
      assert.lengthOf(said.filter(({ status }) => status === 201), 40)
      assert.lengthOf(said.filter(({ status }) => status === 400), 1)
      yield* ended([...ids(whole.body.jobs), ...said.flatMap(({ job }) => job === undefined ? [] : [job.id])])
      assert.deepStrictEqual(yield* list("tag=broken"), [])
      for (const [tag, count] of [["whole", 200], ["lines", 40]] as const) {
        const jobs: ReadonlyArray<{ state: string; deliveries: number }> = yield* list(`tag=${tag}`)
        assert.lengthOf(jobs.filter(({ deliveries, state }) => state === "completed" && deliveries === 1), count)
      }
    })
  ),

  "what SQL submits belongs to its transaction": law(({ connection, list, reaches }) =>
    Effect.gen(function*() {
      const client = yield* connection
      const query = (text: string) => Effect.promise(() => client.query(text))
      const submit = (options: string) =>
        Effect.map(query(`SELECT deadman.submit('noop', '{"from": "sql"}', '${options}') AS id`), ({ rows }) =>
          String(rows[0].id))
      yield* query("BEGIN")
      yield* submit(`{"tags": ["sql-undone"]}`)
      yield* submit(`{"tags": ["sql-undone"], "priority": 9}`)
      yield* query("ROLLBACK")
      yield* query("BEGIN")
      const kept = [
        yield* submit(`{"tags": ["sql-kept"]}`),
        yield* submit(`{"tags": ["sql-kept"], "priority": 9, "queue": "sql"}`)
      ]
      assert.deepStrictEqual(yield* list("tag=sql-kept"), [], "nothing before the commit")
      yield* query("COMMIT")
      for (const id of kept) {
        assert.deepInclude(yield* reaches(id, "completed"), { deliveries: 1, payload: { from: "sql" } })
      }
      assert.deepStrictEqual(yield* list("tag=sql-undone"), [])
    })
  )
}

export const timedLaws: Laws = {
  "an idle worker begins at once, wherever a job comes from": law(({ connection, reaches, submit }) =>
    Effect.gen(function*() {
      const client = yield* connection
      const sources = {
        http: submit({ type: "noop" }),
        priority: submit({ type: "noop", priority: 5 }),
        sql: Effect.map(
          Effect.promise(() => client.query("SELECT deadman.submit('noop', '1') AS id")),
          ({ rows }) => String(rows[0].id)
        )
      }
      for (const [name, source] of Object.entries(sources)) {
        const ended = Effect.flatMap(source, (id) => reaches(id, "completed"))
        yield* prompt(name, Effect.map(ended, ({ created_at_ms, started_at_ms }) => started_at_ms - created_at_ms))
      }
    })
  )
}
