import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { ServerAddress } from "../../../src/adapters/http/Server.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import * as ApiClient from "../../support/ApiClient.ts"
import * as Jobs from "../../support/Jobs.ts"
import * as Subject from "./Subject.ts"

const client = Effect.map(ServerAddress, ({ port }) => ApiClient.make(port))

const post = Effect.fnUntraced(function*(path: string, body: unknown, headers: Record<string, string> = {}) {
  return yield* (yield* client).send("POST", path, body, headers)
})

const get = Effect.fnUntraced(function*(path: string) {
  return (yield* (yield* client).send("GET", path)).body
})

const terms = {
  start_by_ms: 253_402_300_799_999,
  retain_ms: 60_000,
  unique: { fields: ["a"], window_ms: 60_000, on_conflict: "replace" }
}
const shown = {
  ...terms,
  unique: { ...terms.unique, states: ["pending", "running", "failed", "completed"] }
}
const none = { start_by_ms: null, retain_ms: null, unique: null }

const chosen = (job: Record<string, unknown>) => ({
  start_by_ms: job["start_by_ms"],
  retain_ms: job["retain_ms"],
  unique: job["unique"]
})

for (const [store, layer] of Subject.both) {
  it.layer(layer, { excludeTestServices: true, timeout: "2 minutes" })(`HTTP jobs with terms over ${store}`, (it) => {
    it.effect("are shown as they were sent, with defaults, in every answer", () =>
      Effect.gen(function*() {
        const type = yield* Jobs.freshType
        const made = yield* post("/jobs", { type, payload: { a: 1 }, ...terms })
        const plain = yield* post("/jobs", { type, payload: { a: 1 } })
        const nothing = yield* post("/jobs", { type, payload: { a: 1 }, ...none })
        assert.strictEqual(made.status, 201)
        assert.deepStrictEqual(yield* get(`/jobs/${made.body.id}`), made.body)
        assert.deepStrictEqual(yield* get(`/jobs/${plain.body.id}`), plain.body)
        assert.deepStrictEqual([made, plain, nothing].map(({ body }) => chosen(body)), [shown, none, none])
        const list = yield* get(`/jobs?type=${type}`)
        assert.deepStrictEqual(list.jobs.map(chosen), [none, none, shown])
      }))

    it.effect("a unique job that is skipped is 200 with the job in its way, and the header says so", () =>
      Effect.gen(function*() {
        const type = yield* Jobs.freshType
        const first = yield* post("/jobs", { type, payload: { to: "ada", n: 1 }, unique: { fields: ["to"] } })
        const second = yield* post("/jobs", { type, payload: { to: "ada", n: 2 }, unique: { fields: ["to"] } })
        assert.strictEqual(first.status, 201)
        assert.isNull(first.headers.get("deadman-unique"))
        assert.strictEqual(second.status, 200)
        assert.strictEqual(second.headers.get("deadman-unique"), "skipped")
        assert.isNull(second.headers.get("idempotent-replayed"))
        assert.deepStrictEqual(second.body, first.body)
        const replacing = { fields: ["to"], on_conflict: "replace" }
        const third = yield* post("/jobs", { type, payload: { to: "ada", n: 3 }, unique: replacing })
        assert.strictEqual(third.status, 201)
        assert.deepInclude(yield* get(`/jobs/${first.body.id}`), { state: "dead", reason: "cancelled" })
      }))

    it.effect("under one Idempotency-Key a skipped job is answered with the same job for ever", () =>
      Effect.gen(function*() {
        const type = yield* Jobs.freshType
        const key = { "idempotency-key": yield* Jobs.freshKey }
        const first = yield* post("/jobs", { type, unique: {} })
        const skipped = yield* post("/jobs", { type, unique: {} }, key)
        yield* (yield* client).send("DELETE", `/jobs/${first.body.id}`)
        const repeat = yield* post("/jobs", { type, unique: {} }, key)
        const other = yield* post("/jobs", { type, payload: 2, unique: {} }, key)
        assert.strictEqual(skipped.headers.get("deadman-unique"), "skipped")
        assert.strictEqual(repeat.status, 200)
        assert.strictEqual(repeat.headers.get("idempotent-replayed"), "true")
        assert.strictEqual(repeat.body.id, first.body.id)
        assert.strictEqual(other.status, 422)
      }))

    it.effect("thirty at once are one job", () =>
      Effect.gen(function*() {
        const type = yield* Jobs.freshType
        const answers = yield* Effect.all(
          Array.from({ length: 30 }, () => post("/jobs", { type, payload: [1], unique: {} })),
          { concurrency: "unbounded" }
        )
        assert.deepStrictEqual(
          answers.map(({ status }) => status).toSorted(),
          [...Array.from({ length: 29 }, () => 200), 201]
        )
        assert.strictEqual(new Set(answers.map(({ body }) => body.id)).size, 1)
      }))

    it.effect("an array and lines take them too, entry by entry", () =>
      Effect.gen(function*() {
        const type = yield* Jobs.freshType
        const entries = [
          { type, payload: { a: 1 }, ...terms },
          { type, payload: { a: 2 } },
          { type, payload: { a: 3 }, unique: {} },
          { type, payload: { a: 3 }, unique: {} }
        ]
        const array = yield* post("/jobs/batch", entries)
        assert.strictEqual(array.status, 201)
        assert.deepStrictEqual(
          array.body.jobs.slice(0, 2).map(chosen),
          [shown, none]
        )
        assert.strictEqual(array.body.jobs[3].id, array.body.jobs[2].id)
        const text = [...entries, { type, retain_ms: -1 }].map((entry) => JSON.stringify(entry)).join("\n")
        const answer = yield* post("/jobs/batch", text, { "content-type": "application/x-ndjson" })
        const lines = String(answer.body).trim().split("\n").map((line) => JSON.parse(line))
          .sort((a, b) => a.line - b.line)
        assert.deepStrictEqual(lines.map(({ status }) => status), [201, 201, 200, 200, 400])
        assert.strictEqual(lines[4].error.field, "retain_ms")
        assert.strictEqual(lines[2].job.id, array.body.jobs[2].id)
      }))

    it.effect("a job that was not started in time is dead and expired, and cannot be taken or retried", () =>
      Effect.gen(function*() {
        const type = yield* Jobs.freshType
        const made = yield* post("/jobs", { type, start_by_ms: 1 })
        yield* (yield* JobStore).expire(100)
        const found = yield* get(`/jobs/${made.body.id}`)
        assert.deepInclude(found, { state: "dead", reason: "expired", attempts: 0, start_by_ms: 1 })
        const retried = yield* post(`/jobs/${made.body.id}/retry`, undefined)
        assert.strictEqual(retried.status, 409)
        const anew = yield* post(`/jobs/${made.body.id}/resubmit`, undefined)
        assert.deepInclude(anew.body, { state: "pending", start_by_ms: null })
      }))

    it.effect("what is wrong with them is named, and nothing is stored", () =>
      Effect.gen(function*() {
        const type = yield* Jobs.freshType
        const wrong: ReadonlyArray<readonly [field: string, fields: object]> = [
          ["start_by_ms", { start_by_ms: "soon" }],
          ["start_by_ms", { start_by_ms: 5, run_at_ms: 6 }],
          ["retain_ms", { retain_ms: 0.5 }],
          ["unique", { unique: "yes" }],
          ["unique.field", { unique: { field: "a" } }],
          ["unique.fields", { unique: { fields: "a" } }],
          ["unique.fields", { payload: 1, unique: { fields: ["a"] } }],
          ["unique.window_ms", { unique: { window_ms: 0 } }],
          ["unique.states", { unique: { states: ["over"] } }],
          ["unique.on_conflict", { unique: { on_conflict: "merge" } }]
        ]
        for (const [field, fields] of wrong) {
          const { body, status } = yield* post("/jobs", { type, payload: {}, ...fields })
          assert.strictEqual(status, 400, JSON.stringify(fields))
          assert.strictEqual(body.error.field, field)
          assert.isTrue(body.error.message.startsWith(field), body.error.message)
        }
        const other = yield* Jobs.freshType
        const atOnce = 253_402_300_799_999
        assert.strictEqual((yield* post("/jobs", { type: other, start_by_ms: atOnce, run_at_ms: atOnce })).status, 201)
        const inArray = yield* post("/jobs/batch", [{ type }, { type, unique: { window_ms: -1 } }])
        assert.strictEqual(inArray.body.error.field, "[1].unique.window_ms")
        assert.deepStrictEqual((yield* get(`/jobs?type=${type}`)).jobs, [])
      }))

    it.effect("are in OpenAPI, of what is sent and of what is answered", () =>
      Effect.gen(function*() {
        const { components } = yield* get("/openapi.json")
        for (const name of ["NewJob", "Job"]) {
          assert.containsAllKeys(components.schemas[name].properties, ["start_by_ms", "retain_ms", "unique"])
        }
      }))
  })
}
