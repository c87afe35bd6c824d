/** The queues over HTTP, over both stores: what is answered, what is refused and how, and that claims heed it. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { ServerAddress } from "../../../src/adapters/http/Server.ts"
import * as Steps from "../../contracts/JobStoreContractSteps.ts"
import * as ApiClient from "../../support/ApiClient.ts"
import * as FaultyStore from "../../support/FaultyStore.ts"
import * as Jobs from "../../support/Jobs.ts"
import * as Raw from "./Raw.ts"
import * as Subject from "./Subject.ts"

const client = Effect.map(ServerAddress, ({ port }) => ApiClient.make(port))

const none = { pending: 0, running: 0, failed: 0, completed: 0, dead: 0 }

for (const [store, layer] of Subject.both) {
  it.layer(layer, { excludeTestServices: true, timeout: "2 minutes" })(`HTTP queues over ${store}`, (it) => {
    it.effect("a queue is there with its first job or its first put, and not before", () =>
      Effect.gen(function*() {
        const { send } = yield* client
        const [worked, put] = [yield* Jobs.freshQueue, yield* Jobs.freshQueue]
        const absent = yield* send("GET", `/queues/${worked}`)
        assert.strictEqual(absent.status, 404)
        assert.strictEqual(absent.body.error.code, "not_found")
        yield* send("POST", "/jobs", { type: "t", queue: worked })
        const found = yield* send("GET", `/queues/${worked}`)
        assert.strictEqual(found.status, 200)
        assert.deepStrictEqual(found.body, {
          name: worked,
          paused: false,
          concurrency: null,
          step_ms: 60_000,
          created_at_ms: null,
          jobs: { ...none, pending: 1 }
        })
        const made = yield* send("PUT", `/queues/${put}`, {})
        assert.strictEqual(made.status, 200)
        assert.isNumber(made.body.created_at_ms)
        assert.deepStrictEqual((yield* send("GET", `/queues/${put}`)).body, made.body)
      }))

    it.effect("a put changes what it names, and its answer may be put back", () =>
      Effect.gen(function*() {
        const { send } = yield* client
        const path = `/queues/${yield* Jobs.freshQueue}`
        const first = yield* send("PUT", path, { concurrency: 3, step_ms: "strict" })
        assert.deepInclude(first.body, { paused: false, concurrency: 3, step_ms: "strict" })
        assert.deepInclude((yield* send("PUT", path, { step_ms: 100_000_000_000 })).body, { step_ms: "strict" })
        assert.deepInclude((yield* send("POST", `${path}/pause`)).body, { paused: true, concurrency: 3 })
        assert.deepInclude((yield* send("POST", `${path}/pause`)).body, { paused: true })
        assert.deepInclude((yield* send("PUT", path, { concurrency: null, step_ms: 0 })).body, {
          paused: true,
          concurrency: null,
          step_ms: 0
        })
        const resumed = yield* send("POST", `${path}/resume`)
        assert.strictEqual(resumed.status, 200)
        const { concurrency, paused, step_ms } = resumed.body
        assert.deepStrictEqual((yield* send("PUT", path, { concurrency, paused, step_ms })).body, resumed.body)
      }))

    it.effect("claims heed a pause from its answer on", () =>
      Effect.gen(function*() {
        const { send } = yield* client
        const { queue, type } = yield* Steps.submitted({ queue: yield* Jobs.freshQueue })
        assert.strictEqual((yield* send("POST", `/queues/${queue}/pause`)).status, 200)
        assert.lengthOf(yield* Steps.take({ type }), 0)
        assert.strictEqual((yield* send("POST", `/queues/${queue}/resume`)).status, 200)
        assert.lengthOf(yield* Steps.take({ type }), 1)
        assert.deepStrictEqual((yield* send("GET", `/queues/${queue}`)).body.jobs, { ...none, running: 1 })
      }))

    it.effect("A5: what is no setting is refused by its field, and changes nothing", () =>
      Effect.gen(function*() {
        const { send } = yield* client
        const path = `/queues/${yield* Jobs.freshQueue}`
        const before = (yield* send("PUT", path, { concurrency: 2 })).body
        const refused: ReadonlyArray<readonly [body: unknown, code: string, field?: string]> = [
          ["", "invalid_body"],
          ["{", "invalid_json"],
          ["[]", "invalid_body"],
          ["null", "invalid_body"],
          [{ paused: "yes" }, "invalid_field", "paused"],
          [{ paused: null }, "invalid_field", "paused"],
          [{ concurrency: 0 }, "invalid_field", "concurrency"],
          [{ concurrency: -1 }, "invalid_field", "concurrency"],
          [{ concurrency: 1.5 }, "invalid_field", "concurrency"],
          [{ concurrency: "3" }, "invalid_field", "concurrency"],
          [{ concurrency: 10_001 }, "invalid_field", "concurrency"],
          [{ concurrency: 2 ** 31 }, "invalid_field", "concurrency"],
          [{ step_ms: -1 }, "invalid_field", "step_ms"],
          [{ step_ms: 100_000_000_001 }, "invalid_field", "step_ms"],
          [{ step_ms: "loose" }, "invalid_field", "step_ms"],
          [{ step_ms: null }, "invalid_field", "step_ms"],
          [{ name: "x" }, "unknown_field", "name"],
          [`{"__proto__":1}`, "unknown_field", "__proto__"],
          [{ paused: true, pased: true }, "unknown_field", "pased"]
        ]
        for (const [body, code, field] of refused) {
          const answer = yield* send("PUT", path, body)
          const shown = JSON.stringify(body)
          // An empty body is no JSON, or no body at all.
          assert.include(body === "" ? ["invalid_json", "invalid_body"] : [code], answer.body.error?.code, shown)
          assert.strictEqual(answer.body.error.field, field, shown)
          assert.strictEqual(answer.status, 400, shown)
          if (field !== undefined) {
            assert.include(answer.body.error.message, field)
          }
        }
        assert.deepStrictEqual((yield* send("GET", path)).body, before)
        const text = yield* send("PUT", path, "{}", { "content-type": "text/plain" })
        assert.strictEqual(text.status, 415)
        assert.strictEqual((yield* send("PUT", path, { ...before, x: "y".repeat(20_000) })).status, 413)
        assert.strictEqual((yield* send("DELETE", path)).status, 405)
      }))

    it.effect("A5: a name that no queue can have is refused on every route", () =>
      Effect.gen(function*() {
        const { port } = yield* ServerAddress
        for (const name of ["%20", "..%2fx", "%F0%9F%98%80", "-a", "a".repeat(129), "%00", "a%20b"]) {
          for (const [method, end] of [["GET", ""], ["PUT", ""], ["POST", "/pause"], ["POST", "/resume"]] as const) {
            const body = method === "PUT" ? "{}" : ""
            const answer = yield* Raw.request(port, method, `/queues/${name}${end}`, [Raw.json], body)
            assert.strictEqual(answer.status, 400, `${method} ${name}${end}`)
            assert.strictEqual(answer.body.error.field, "name")
          }
        }
      }))

    it.effect("A5: a name of 128 characters is a name like any other", () =>
      Effect.gen(function*() {
        const { send } = yield* client
        const path = `/queues/${"q".repeat(128)}`
        assert.strictEqual((yield* send("PUT", path, { concurrency: 2 })).status, 200)
        assert.strictEqual((yield* send("POST", `${path}/pause`)).status, 200)
        assert.deepInclude((yield* send("GET", path)).body, { name: "q".repeat(128), paused: true, concurrency: 2 })
        yield* send("PUT", path, { concurrency: null })
      }))

    it.effect("lists walk by name in pages, with counts", () =>
      Effect.gen(function*() {
        const { send } = yield* client
        const names: Array<string> = []
        for (let n = 0; n < 7; n++) {
          const queue = yield* Jobs.freshQueue
          names.push(queue)
          yield* send("PUT", `/queues/${queue}`, {})
        }
        yield* send("POST", "/jobs", { type: "t", queue: names[0] })
        const seen: Array<{ readonly name: string; readonly jobs: unknown }> = []
        let cursor: string | null = ""
        while (cursor !== null) {
          const answer: ApiClient.Answer = yield* send(
            "GET",
            `/queues?limit=3${cursor === "" ? "" : `&cursor=${cursor}`}`
          )
          assert.strictEqual(answer.status, 200)
          assert.isAtMost(answer.body.queues.length, 3)
          seen.push(...answer.body.queues)
          cursor = answer.body.next_cursor
        }
        const found = seen.map(({ name }) => name)
        assert.deepStrictEqual(found, [...new Set(found)].toSorted())
        assert.includeMembers(found, names)
        assert.deepStrictEqual(seen.find(({ name }) => name === names[0])?.jobs, { ...none, pending: 1 })
        for (
          const [query, field] of [["limit=0", "limit"], ["limit=501", "limit"], ["cursor=x", "cursor"], ["a=1", "a"]]
        ) {
          const answer = yield* send("GET", `/queues?${query}`)
          assert.strictEqual(answer.status, 400, query)
          assert.strictEqual(answer.body.error.field, field)
        }
      }))
  })
}

it.layer(Subject.layerFaulty(), { excludeTestServices: true })("HTTP queues while the store is away", (it) => {
  it.effect("every route answers 503 within seconds, and says nothing of the store", () =>
    Effect.gen(function*() {
      const { send } = yield* client
      const faults = yield* FaultyStore.Faults
      for (const fault of ["away", "hanging"] as const) {
        faults.fault = fault
        const answers = yield* Effect.all([
          send("GET", "/queues"),
          send("GET", "/queues/q"),
          send("PUT", "/queues/q", {}),
          send("POST", "/queues/q/pause"),
          send("POST", "/queues/q/resume")
        ], { concurrency: "unbounded" }).pipe(Effect.timeout("6 seconds"))
        for (const answer of answers) {
          assert.strictEqual(answer.status, 503, fault)
          assert.strictEqual(answer.headers.get("retry-after"), "1")
          assert.notInclude(JSON.stringify(answer.body), "secret")
        }
      }
      faults.fault = "none"
    }))
})
