import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { ServerAddress } from "../../../src/adapters/http/Server.ts"
import * as JobStoreMemory from "../../../src/adapters/memory/JobStoreMemory.ts"
import type { JobId } from "../../../src/domain/JobId.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import * as ApiClient from "../../support/ApiClient.ts"
import { eventually } from "../../support/Eventually.ts"
import * as FaultyStore from "../../support/FaultyStore.ts"
import * as Raw from "./Raw.ts"
import * as Subject from "./Subject.ts"

const client = Effect.map(ServerAddress, ({ port }) => ApiClient.make(port))

let keys = 0
const freshKey = () => `key-${keys++}`

const post = Effect.fnUntraced(function*(body: unknown, key?: string) {
  return yield* (yield* client).send("POST", "/jobs", body, key === undefined ? {} : { "idempotency-key": key })
})

for (const [store, layer] of Subject.both) {
  it.layer(layer, { excludeTestServices: true, timeout: "2 minutes" })(`HTTP idempotency over ${store}`, (it) => {
    it.effect("the second request under a key is answered with the job of the first", () =>
      Effect.gen(function*() {
        const key = freshKey()
        const first = yield* post({ type: "t", payload: { a: 1 } }, key)
        const second = yield* post({ type: "t", payload: { a: 1 } }, key)
        assert.strictEqual(first.status, 201)
        assert.isNull(first.headers.get("idempotent-replayed"))
        assert.strictEqual(second.status, 200)
        assert.strictEqual(second.headers.get("idempotent-replayed"), "true")
        assert.deepStrictEqual(second.body, first.body)
      }))

    it.effect("fifty concurrent requests under one key make one job", () =>
      Effect.gen(function*() {
        const key = freshKey()
        const answers = yield* Effect.all(
          Array.from({ length: 50 }, () => post({ type: "fifty", payload: 1 }, key)),
          { concurrency: 50 }
        )
        assert.strictEqual(new Set(answers.map(({ body }) => body.id)).size, 1)
        assert.deepStrictEqual(answers.map(({ status }) => status).sort(), [
          ...Array.from({ length: 49 }, () => 200),
          201
        ])
        assert.strictEqual((yield* (yield* client).send("GET", "/jobs?type=fifty")).body.jobs.length, 1)
      }))

    it.effect("B7: JSON that means the same is the same request; explicit defaults and another value are not", () =>
      Effect.gen(function*() {
        const key = freshKey()
        const first = yield* post(`{"type":"t","payload":{"a":1,"b":"é"}}`, key)
        assert.strictEqual(first.status, 201)
        for (
          const same of [
            `{"payload":{"b":"é","a":1},"type":"t"}`,
            `{ "type" : "t",\n "payload" : { "a" : 1 , "b" : "é" } }`,
            `{"type":"t","payload":{"a":1,"b":"\\u00e9"}}`,
            `{"type":"t","payload":{"a":1.0,"b":"é"}}`
          ]
        ) {
          const answer = yield* post(same, key)
          assert.strictEqual(answer.status, 200, same)
          assert.strictEqual(answer.body.id, first.body.id)
        }
        for (
          const other of [
            `{"type":"t","payload":{"a":2,"b":"é"}}`,
            `{"type":"t","payload":{"a":1,"b":"é"},"max_attempts":10}`,
            `{"type":"u","payload":{"a":1,"b":"é"}}`,
            `{"type":"t"}`
          ]
        ) {
          const answer = yield* post(other, key)
          assert.strictEqual(answer.status, 422, other)
          assert.strictEqual(answer.body.error.code, "idempotency_key_reused")
        }
      }))

    it.effect("another request is told which fields differ, and of which job, but never what is in them", () =>
      Effect.gen(function*() {
        const { send } = yield* client
        const key = freshKey()
        const { body: { id } } = yield* post({ type: "t", payload: { a: "secret" }, tags: ["b"] }, key)
        const told = (what: string) =>
          `This Idempotency-Key was used for a different request, whose job is ${id}: ${what}. ` +
          "Use a new key for a new job."
        const messageTo = (body: unknown) => Effect.map(post(body, key), ({ body }) => body.error.message)
        const same = { type: "t", payload: { a: "secret" }, tags: ["b"] }
        assert.strictEqual(yield* messageTo({ ...same, payload: { a: "other" } }), told("payload differs"))
        assert.strictEqual(
          yield* messageTo({ ...same, tags: [], priority: 1, run_at_ms: 4_000_000_000_000, max_attempts: 2 }),
          told("priority, max_attempts, run_at_ms, tags differ")
        )
        const byDefault = yield* messageTo({ ...same, priority: 0 })
        assert.strictEqual(
          byDefault,
          told("one of the two says what the other leaves out, or names another run_at_ms or delay_ms")
        )
        const other = { ...same, type: "u", idempotency_key: key }
        const batch = yield* send("POST", "/jobs/batch", [{ type: "v" }, other])
        assert.strictEqual(batch.body.error.message, `[1]: ${told("type differs")} Nothing of the batch was stored.`)
        const line = yield* send("POST", "/jobs/batch", JSON.stringify(other), {
          "content-type": "application/x-ndjson"
        })
        assert.strictEqual(line.body.error.message, told("type differs"))
      }))

    it.effect("B8: a key is one job on every way in, and no other route heeds it", () =>
      Effect.gen(function*() {
        const { send } = yield* client
        const key = freshKey()
        const first = yield* post({ type: "t" }, key)
        const field = yield* post({ type: "t", idempotency_key: key })
        const batch = yield* send("POST", "/jobs/batch", [{ type: "t", idempotency_key: key }])
        const line = yield* send("POST", "/jobs/batch", `{"type":"t","idempotency_key":"${key}"}`, {
          "content-type": "application/x-ndjson"
        })
        assert.strictEqual(field.status, 200)
        assert.strictEqual(field.body.id, first.body.id)
        assert.strictEqual(batch.status, 200)
        assert.strictEqual(batch.body.jobs[0].id, first.body.id)
        assert.strictEqual(line.body.status, 200)
        assert.strictEqual(line.body.job.id, first.body.id)
        const cancelled = yield* send("DELETE", `/jobs/${first.body.id}`, undefined, { "idempotency-key": key })
        assert.strictEqual(cancelled.body.state, "dead")
        const header = yield* send("POST", "/jobs/batch", [{ type: "t" }], { "idempotency-key": key })
        assert.strictEqual(header.body.error.code, "invalid_idempotency_key")
      }))

    it.effect("B9: a key is 1 to 255 printable ASCII characters; quoted and bare are one", () =>
      Effect.gen(function*() {
        const { port } = yield* ServerAddress
        const raw = (headers: ReadonlyArray<string>, body = `{"type":"t"}`) =>
          Raw.request(port, "POST", "/jobs", [
            Raw.json,
            ...headers.map((value) => ["Idempotency-Key", value] as const)
          ], body)
        for (const key of ["", " ", "a".repeat(256), "a".repeat(8_000), "é", "a b", "\"\""]) {
          const answer = yield* raw([key])
          assert.strictEqual(answer.status, 400, key.slice(0, 20))
          assert.strictEqual(answer.body.error.code, "invalid_idempotency_key")
        }
        assert.strictEqual((yield* raw(["a".repeat(255)])).status, 201)
        const bare = yield* raw(["abc"])
        for (const same of ["\"abc\"", "  abc  ", " \"abc\" "]) {
          const answer = yield* raw([same])
          assert.strictEqual(answer.status, 200)
          assert.strictEqual(answer.body.id, bare.body.id)
        }
        const twice = yield* raw(["abc", "abc"])
        assert.strictEqual(twice.body.id, bare.body.id)
        assert.strictEqual((yield* raw(["abc", "abd"])).body.error.code, "invalid_idempotency_key")
        const field = `{"type":"t","idempotency_key":"abc"}`
        assert.strictEqual((yield* raw(["abc"], field)).body.id, bare.body.id)
        assert.strictEqual((yield* raw(["other"], field)).body.error.code, "invalid_idempotency_key")
      }))

    it.effect("B10: a refused request does not burn its key", () =>
      Effect.gen(function*() {
        const key = freshKey()
        assert.strictEqual((yield* post({ type: "t", priority: 9_999 }, key)).status, 400)
        assert.strictEqual((yield* post("{", key)).status, 400)
        assert.strictEqual((yield* post({ type: "t" }, key)).status, 201)
      }))
  })
}

it.layer(Subject.layer({ store: JobStoreMemory.layerWith({ keyTtlMs: 50 }) }), { excludeTestServices: true })(
  "HTTP idempotency, keys of 50 ms",
  (it) => {
    it.effect("B11: a key outlives its unfinished job's wait, and is free again after its time", () =>
      Effect.gen(function*() {
        const { send } = yield* client
        const key = freshKey()
        const far = { type: "t", run_at_ms: 253_402_300_799_999 }
        const first = yield* post(far, key)
        yield* Effect.sleep("120 millis")
        assert.strictEqual((yield* post(far, key)).body.id, first.body.id)
        yield* send("DELETE", `/jobs/${first.body.id}`)
        yield* eventually("a new job under the key", Effect.map(post(far, key), ({ status }) => status === 201))
      }))
  }
)

it.layer(Subject.layer(), { excludeTestServices: true })("HTTP idempotency, pruned jobs", (it) => {
  it.effect("B11: retention does not take a job while its key lives", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const { send } = yield* client
      const key = freshKey()
      const first = yield* post({ type: "t" }, key)
      yield* send("DELETE", `/jobs/${first.body.id}`)
      yield* store.announced([first.body.id as JobId])
      yield* store.prune({ completedMs: 0, deadMs: 0, limit: 10 })
      const again = yield* post({ type: "t" }, key)
      assert.strictEqual(again.status, 200)
      assert.strictEqual(again.body.id, first.body.id)
      assert.strictEqual(again.body.state, "dead")
    }))
})

it.layer(Subject.layerFaulty(), { excludeTestServices: true })("HTTP idempotency, the store away", (it) => {
  it.effect("B10: a key refused with 503 makes one job when the store is back", () =>
    Effect.gen(function*() {
      const faults = yield* FaultyStore.Faults
      const key = freshKey()
      for (const fault of ["away", "lost"] as const) {
        faults.fault = fault
        const refused = yield* post({ type: fault }, `${key}-${fault}`)
        assert.strictEqual(refused.status, 503)
        assert.strictEqual(refused.headers.get("retry-after"), "1")
        faults.fault = "none"
        const made = yield* post({ type: fault }, `${key}-${fault}`)
        assert.strictEqual(made.status, fault === "away" ? 201 : 200)
        const { body } = yield* (yield* client).send("GET", `/jobs?type=${fault}`)
        assert.strictEqual(body.jobs.length, 1)
      }
    }), 180_000)
})
