import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { ServerAddress } from "../../../src/adapters/http/Server.ts"
import * as SubmitBody from "../../../src/adapters/http/SubmitBody.ts"
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

const ndjson = { "content-type": "application/x-ndjson" }

const waits = (job: { readonly run_at_ms: number; readonly created_at_ms: number }) => job.run_at_ms - job.created_at_ms

for (const [store, layer] of Subject.both) {
  it.layer(layer, { excludeTestServices: true, timeout: "2 minutes" })(`HTTP jobs with delays over ${store}`, (it) => {
    it.effect("are due so long after they are created, on every way in, and 0 is none", () =>
      Effect.gen(function*() {
        const type = yield* Jobs.freshType
        const entries = [3_600_000, 0, null, 1, 3_155_760_000_000].map((delay_ms) => ({ type, delay_ms }))
        const expected = [3_600_000, 0, 0, 1, 3_155_760_000_000]
        for (const [index, entry] of entries.entries()) {
          for (const more of [{}, { idempotency_key: yield* Jobs.freshKey }, { retain_ms: 0 }]) {
            const made = yield* post("/jobs", { ...entry, ...more })
            assert.deepStrictEqual([made.status, waits(made.body)], [201, expected[index]])
            assert.deepStrictEqual(yield* get(`/jobs/${made.body.id}`), made.body)
          }
        }
        const { jobs } = (yield* post("/jobs/batch", entries)).body
        assert.deepStrictEqual(jobs.map(waits), expected)
        assert.deepStrictEqual((yield* get(`/jobs/${jobs[0].id}`)).run_at_ms, jobs[0].run_at_ms)
        const line = yield* post("/jobs/batch", JSON.stringify(entries[0]), ndjson)
        assert.deepStrictEqual([line.body.status, waits(line.body.job)], [201, expected[0]])
      }))

    it.effect("a repeat with the same delay is the same request however much later, with another it is not", () =>
      Effect.gen(function*() {
        const type = yield* Jobs.freshType
        const key = { "idempotency-key": yield* Jobs.freshKey }
        const first = yield* post("/jobs", { type, delay_ms: 60_000 }, key)
        yield* Effect.sleep("20 millis")
        const again = yield* post("/jobs", { delay_ms: 60_000, type }, key)
        const inArray = yield* post("/jobs/batch", [{
          type,
          delay_ms: 60_000,
          idempotency_key: key["idempotency-key"]
        }])
        assert.deepStrictEqual([again.status, again.body], [200, first.body])
        assert.deepStrictEqual(inArray.body.jobs, [first.body])
        for (const other of [{ delay_ms: 60_001 }, { delay_ms: 0 }, {}, { run_at_ms: first.body.run_at_ms }]) {
          assert.strictEqual((yield* post("/jobs", { type, ...other }, key)).status, 422, JSON.stringify(other))
        }
        // Of a request without a delay, one that says so is a repeat.
        const plain = { "idempotency-key": yield* Jobs.freshKey }
        const { body } = yield* post("/jobs", { type }, plain)
        for (const none of [{ delay_ms: 0 }, { delay_ms: null }]) {
          assert.strictEqual((yield* post("/jobs", { type, ...none }, plain)).body.id, body.id)
        }
      }))

    it.effect("what is wrong with one is named, and nothing is stored", () =>
      Effect.gen(function*() {
        const type = yield* Jobs.freshType
        for (const delay_ms of [-1, 0.5, "30s", true, 3_155_760_000_001]) {
          const { body, status } = yield* post("/jobs", { type, delay_ms })
          assert.strictEqual(status, 400)
          assert.deepStrictEqual(body.error, {
            code: "invalid_field",
            field: "delay_ms",
            message: "delay_ms must be a whole number from 0 to 3155760000000"
          })
        }
        for (const both of [{ run_at_ms: 0, delay_ms: 0 }, { delay_ms: 1, run_at_ms: 253_402_300_799_999 }]) {
          const { body } = yield* post("/jobs/batch", [{ type }, { type, ...both }])
          assert.deepStrictEqual(body.error, {
            code: "invalid_field",
            field: "[1].delay_ms",
            message: "[1].delay_ms must not be given with run_at_ms: one of the two says when the job is due"
          })
        }
        assert.strictEqual((yield* post("/jobs", { type: "t", delay_ms: null, run_at_ms: 5 })).status, 201)
        assert.deepStrictEqual((yield* get(`/jobs?type=${type}`)).jobs, [])
        const { body } = yield* post("/jobs", { type, delay: 5 })
        assert.include(body.error.message, "Is delay_ms meant?")
        const schedule = yield* (yield* client).send("PUT", "/schedules/s", { type, every_ms: 60_000, delay_ms: 5 })
        assert.deepInclude(schedule.body.error, { code: "unknown_field", field: "delay_ms" })
      }))

    it.effect("are in OpenAPI, of what is sent and not of what is answered", () =>
      Effect.gen(function*() {
        const { NewJob, Job } = (yield* get("/openapi.json")).components.schemas
        assert.property(NewJob.properties, "delay_ms")
        assert.notProperty(Job.properties, "delay_ms")
      }))
  })
}

describe("the fingerprint of a request", () => {
  // As versions without delays have stored them: these never change.
  it.each([
    [{ type: "t" }, "IkFgjoJx6sgA1NSsgEs_OTUqSjg7uce6EmKXJLydYKs"],
    [
      { type: "t", payload: { b: [1.5], a: "é" }, run_at_ms: 1_900_000_000_000, queue: "q", idempotency_key: "k" },
      "7YwMDZowHsdI2hCYimANXntcmCx93OFO0nyLMXLowRM"
    ]
  ])("without a delay is what it was before there were any", (body, fingerprint) => {
    assert.strictEqual(SubmitBody.fingerprint(body), fingerprint)
    assert.strictEqual(SubmitBody.fingerprint({ ...body, delay_ms: 0 }), fingerprint)
    assert.notStrictEqual(SubmitBody.fingerprint({ ...body, delay_ms: 1 }), fingerprint)
  })
})
