import { assert, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { ServerAddress } from "../../../src/adapters/http/Server.ts"
import * as JsonText from "../../../src/domain/JsonText.ts"
import * as ApiClient from "../../support/ApiClient.ts"
import * as ApiJobs from "../../support/ApiJobs.ts"
import * as Garbage from "./Garbage.ts"
import * as Raw from "./Raw.ts"
import * as Subject from "./Subject.ts"

const client = Effect.map(ServerAddress, ({ port }) => ApiClient.make(port))

const post = Effect.fnUntraced(function*(body: unknown, headers?: Record<string, string>) {
  return yield* (yield* client).send("POST", "/jobs", body, headers)
})

const refused = Effect.fnUntraced(function*(body: unknown, code: string, field?: string) {
  const answer = yield* post(body)
  const shown = JSON.stringify(body).slice(0, 120)
  assert.strictEqual(answer.body?.error?.code, code, shown)
  assert.strictEqual(answer.body.error.field, field, shown)
  assert.isTrue(answer.status >= 400 && answer.status < 500, shown)
  if (field !== undefined) {
    assert.include(answer.body.error.message, field)
  }
})

for (const [store, layer] of Subject.both) {
  it.layer(layer, { excludeTestServices: true, timeout: "2 minutes" })(`HTTP input over ${store}`, (it) => {
    it.effect("a job comes back with every field of the contract, absent values as null", () =>
      Effect.gen(function*() {
        const { send } = yield* client
        const created = yield* send("POST", "/jobs", {
          type: "mail.send",
          payload: { to: ["a", "b"], n: 1.5, deep: { x: null } },
          queue: "q1",
          priority: -5,
          max_attempts: 1,
          run_at_ms: 253_402_300_799_999,
          backoff: { kind: "fixed", delay_ms: 5 },
          timeout_ms: 1,
          tags: ["a b", "c"]
        })
        assert.strictEqual(created.status, 201)
        const found = yield* send("GET", `/jobs/${created.body.id}`)
        assert.strictEqual(found.status, 200)
        assert.deepStrictEqual(found.body, created.body)
        const { created_at_ms, id } = found.body
        assert.isNumber(created_at_ms)
        assert.strictEqual(created.headers.get("location"), `/jobs/${id}`)
        assert.deepStrictEqual(found.body, {
          ...ApiJobs.job,
          id,
          created_at_ms,
          type: "mail.send",
          queue: "q1",
          priority: -5,
          payload: { to: ["a", "b"], n: 1.5, deep: { x: null } },
          tags: ["a b", "c"],
          max_attempts: 1,
          backoff: { kind: "fixed", delay_ms: 5 },
          timeout_ms: 1,
          run_at_ms: 253_402_300_799_999
        })
      }))

    it.effect("A1: a payload that would be changed by storing it is refused by its place", () =>
      Effect.gen(function*() {
        for (
          const [value, path] of [
            ["{\"n\":12345678901234567890}", "payload.n"],
            ["{\"e\":1e400}", "payload.e"],
            ["[0,{\"f\":1e-400}]", "payload[1].f"],
            ["\"\\u0000\"", "payload"],
            ["\"\\ud800\"", "payload"]
          ] as const
        ) {
          const answer = yield* post(`{"type":"t","payload":${value}}`)
          assert.strictEqual(answer.status, 400, value)
          assert.strictEqual(answer.body.error.field, path)
        }
      }))

    it.effect("A1: odd keys stay plain keys, and pollute nothing", () =>
      Effect.gen(function*() {
        const { send } = yield* client
        const text = `{"__proto__":{"x":1},"constructor":1,"":0,"toString":null,"z":-0}`
        const created = yield* send("POST", "/jobs", `{"type":"t","payload":${text}}`)
        const found = yield* send("GET", `/jobs/${created.body.id}`)
        // Postgres keeps no order of keys.
        assert.strictEqual(JsonText.canonical(found.body.payload), JsonText.canonical(JSON.parse(text)))
        assert.isUndefined(({} as { x?: unknown }).x)
      }))

    it.effect("A1: any JSON value is a payload, and comes back equal", () =>
      Effect.gen(function*() {
        const { send } = yield* client
        for (const payload of [null, 0, -1.25, "", "é\n\u2028😀", true, [], {}, [[[]]], { a: { b: [1, "x", null] } }]) {
          const created = yield* send("POST", "/jobs", { type: "t", payload })
          assert.strictEqual(created.status, 201)
          assert.deepStrictEqual((yield* send("GET", `/jobs/${created.body.id}`)).body.payload, payload)
        }
      }))

    it.effect("A2: deep nesting is refused above a limit, and harms nobody", () =>
      Effect.gen(function*() {
        const others = yield* Effect.forkChild(Effect.all(
          Array.from({ length: 20 }, () => post({ type: "t" })),
          { concurrency: 5 }
        ))
        for (const depth of [100, 1_000, 5_000, 50_000, 500_000]) {
          for (const [open, close] of [["[", "]"], ["{\"a\":", "}"]] as const) {
            const payload = open.repeat(depth) + (open === "[" ? "" : "1") + close.repeat(depth)
            const answer = yield* post(`{"type":"deep","payload":${payload}}`)
            const expected = depth === 100 ? 201 : payload.length > 1_100_000 ? 413 : 400
            assert.strictEqual(answer.status, expected, `${depth} ${open}`)
          }
        }
        for (const answer of yield* Fiber.join(others)) {
          assert.strictEqual(answer.status, 201)
        }
        const listed = yield* (yield* client).send("GET", "/jobs?type=deep&limit=500")
        assert.strictEqual(listed.body.jobs.length, 2)
      }))

    it.effect("A3: bad and unknown ids are 404 or 400, with a JSON error, on every route", () =>
      Effect.gen(function*() {
        const { port } = yield* ServerAddress
        const ids = [
          "x",
          "..%2f..",
          "%00",
          "%zz",
          "%ff",
          "a".repeat(10_000),
          "0190b0c0-0000-7000-8000-000000000000",
          "9223372036854775808",
          "-1",
          "'%20OR%201=1--",
          "%F0%9F%98%80"
        ]
        for (const id of ids) {
          for (
            const [method, path] of [["GET", ""], ["DELETE", ""], ["POST", "/retry"], ["POST", "/resubmit"]] as const
          ) {
            const answer = yield* Raw.request(port, method, `/jobs/${id}${path}`, [])
            assert.include([400, 404], answer.status, `${method} ${id.slice(0, 40)}${path}`)
            assert.isString(answer.body.error.code)
          }
        }
      }))

    it.effect("A3: an id may be written in capitals", () =>
      Effect.gen(function*() {
        const { send } = yield* client
        const { body } = yield* send("POST", "/jobs", { type: "t" })
        assert.strictEqual((yield* send("GET", `/jobs/${body.id.toUpperCase()}`)).body.id, body.id)
      }))

    it.effect("A4: max_attempts is a whole number from 1 to 1000", () =>
      Effect.gen(function*() {
        for (const value of [0, -1, 1.5, "3", null, 1e9, 2 ** 31, "NaN", true, [], {}]) {
          yield* refused({ type: "t", max_attempts: value }, "invalid_field", "max_attempts")
        }
        for (const value of [1, 1_000]) {
          assert.strictEqual((yield* post({ type: "t", max_attempts: value })).body.max_attempts, value)
        }
      }))

    it.effect("A5: numbers and names at their edges are named in the refusal", () =>
      Effect.gen(function*() {
        const wrong: ReadonlyArray<readonly [string, ReadonlyArray<unknown>]> = [
          ["priority", [-1_001, 1_001, 1.5, 2 ** 31, "high", null]],
          ["timeout_ms", [0, -1, 2 ** 31, 1e12, 0.5, "1"]],
          ["run_at_ms", [-1, 1.5, "tomorrow", 253_402_300_800_000, 1e300, true, 1_000_000_000, 99_999_999_999]],
          ["start_by_ms", [-1, 1_700_000_000]],
          ["retain_ms", [-1, 3_155_760_000_001, 0.5, "1"]],
          ["queue", ["", "a".repeat(300), "../x", "😀", " a", "a b", null, 1]],
          ["type", ["", "a".repeat(129), "../x", "😀", " a", null, 1, [], undefined]],
          ["tags", ["x", [""], [1], [" a"], ["a".repeat(65)], Array.from({ length: 33 }, () => "a"), null]],
          ["backoff", [
            null,
            {},
            "fixed",
            { kind: "fixed" },
            { kind: "fixed", delay_ms: -1 },
            {
              kind: "fixed",
              delay_ms: 1,
              more: 1
            },
            { kind: "exponential", base_ms: 1, cap_ms: 1e12 },
            { kind: "exponential", base_ms: 1, cap_ms: 1, more: 1 },
            { kind: "linear", delay_ms: 1 }
          ]],
          ["idempotency_key", ["", " ", "a".repeat(256), "é", "a b", 1, null]]
        ]
        for (const [field, values] of wrong) {
          for (const value of values) {
            yield* refused({ type: "t", [field]: value }, "invalid_field", field)
          }
        }
        for (
          const [field, value] of [["queue", "a:b"], ["queue", "A"], ["priority", 0], ["timeout_ms", null]] as const
        ) {
          const answer = yield* post({ type: "t", [field]: value })
          assert.strictEqual(answer.status, 201)
          assert.strictEqual(answer.body[field], value)
        }
      }))

    it.effect("an unknown field is refused by its name, a reserved one too", () =>
      Effect.gen(function*() {
        for (const field of ["maxAttempts", "key", "debounce", "<b>", "id"]) {
          yield* refused({ type: "t", [field]: 1 }, "unknown_field", field)
        }
        const answer = yield* post(`{"type":"t","__proto__":{"x":1}}`)
        assert.strictEqual(answer.body.error.field, "__proto__")
      }))

    it.effect("an unknown field that is near a known one is answered with that one, wherever fields are read", () =>
      Effect.gen(function*() {
        const { send } = yield* client
        const claim = { worker: "w", types: ["t"] }
        type Slip = readonly [method: string, path: string, body: unknown, field: string, meant: string]
        const slips: ReadonlyArray<Slip> = [
          ["POST", "/jobs", { type: "t", maxAttempts: 1 }, "maxAttempts", "max_attempts"],
          ["POST", "/jobs", { type: "t", run_at: 1 }, "run_at", "run_at_ms"],
          ["POST", "/jobs", { type: "t", unique: { windowMs: 1 } }, "unique.windowMs", "window_ms"],
          ["POST", "/jobs/batch", [{ type: "t", tag: [] }], "[0].tag", "tags"],
          ["PUT", "/queues/near", { stepMs: 1 }, "stepMs", "step_ms"],
          ["PUT", "/schedules/near", { type: "t", everyMs: 1_000 }, "everyMs", "every_ms"],
          ["POST", "/workers/claims", { ...claim, waitMs: 1 }, "waitMs", "wait_ms"],
          ["POST", "/workers/outcomes", { outcomes: [{ delayMs: 1 }] }, "outcomes[0].delayMs", "delay_ms"],
          ["GET", "/jobs?stat=dead", undefined, "stat", "state"],
          ["GET", "/queues?limits=1", undefined, "limits", "limit"]
        ]
        for (const [method, path, body, field, meant] of slips) {
          const { error } = (yield* send(method, path, body)).body
          assert.deepInclude(error, { code: "unknown_field", field })
          assert.match(error.message, new RegExp(` Is ${meant} meant\\?$`))
        }
        const { error } = (yield* post({ type: "t", colour: 1 })).body
        assert.notInclude(error.message, "meant")
      }))

    it.effect("A6: parameters of a list are bound and bounded", () =>
      Effect.gen(function*() {
        const { send } = yield* client
        const wrong = [
          "limit=0",
          "limit=-1",
          "limit=1000000000",
          "limit=501",
          "limit=abc",
          "limit=1.5",
          "limit=",
          "offset=-1",
          "offset=10001",
          "cursor=garbage",
          "cursor=",
          "cursor=MS4x",
          "state=unknown",
          "state=pending&state=dead",
          "state=%27%20OR%201%3D1--",
          "sort=id%3Bdrop%20table%20jobs",
          "type=%27",
          "queue=a%20b",
          "tag=",
          "tag=%00",
          `id=${Array.from({ length: 201 }, () => "x").join(",")}`,
          "id=x&limit=1"
        ]
        for (const query of wrong) {
          const answer = yield* send("GET", `/jobs?${query}`)
          assert.strictEqual(answer.status, 400, query)
          assert.include(["invalid_field", "unknown_field"], answer.body.error.code)
          assert.strictEqual(answer.body.error.field, query.split("=")[0])
        }
        for (const state of ["pending", "running", "failed", "completed", "dead"]) {
          assert.strictEqual((yield* send("GET", `/jobs?state=${state}`)).status, 200)
        }
      }))

    it.effect("the jobs of many ids come at once, newest first, and those that are not there are left out", () =>
      Effect.gen(function*() {
        const { send } = yield* client
        const ids: Array<string> = []
        for (let n = 0; n < 3; n++) {
          ids.push((yield* send("POST", "/jobs", { type: "ids", payload: n })).body.id)
        }
        const strangers = [crypto.randomUUID(), "no-id", ""]
        const page = yield* send(
          "GET",
          `/jobs?id=${[...strangers, ids[1], ids[2]!.toUpperCase(), ids[0], ids[1]].join(",")}`
        )
        assert.strictEqual(page.status, 200)
        assert.deepStrictEqual(page.body.jobs.map((job: { id: string }) => job.id), ids.toReversed())
        assert.isNull(page.body.next_cursor)
        assert.deepStrictEqual((yield* send("GET", "/jobs?id=")).body, { jobs: [], next_cursor: null })
      }))

    it.effect("A6: a cursor walks a changing list with no row repeated and none missed", () =>
      Effect.gen(function*() {
        const { send } = yield* client
        const before = new Set<string>()
        for (let i = 0; i < 23; i++) {
          before.add((yield* send("POST", "/jobs", { type: "walk" })).body.id)
        }
        const seen: Array<string> = []
        let cursor: string | null = ""
        while (cursor !== null) {
          const page: ApiClient.Answer = yield* send(
            "GET",
            `/jobs?type=walk&limit=5${cursor === "" ? "" : `&cursor=${cursor}`}`
          )
          assert.strictEqual(page.status, 200)
          seen.push(...page.body.jobs.map((job: { id: string }) => job.id))
          cursor = page.body.next_cursor
          yield* send("POST", "/jobs", { type: "walk" })
        }
        assert.strictEqual(new Set(seen).size, seen.length)
        assert.deepStrictEqual(new Set(seen), before)
        const first = yield* send("GET", "/jobs?type=walk&limit=1")
        const other = yield* send("GET", `/jobs?type=else&cursor=${first.body.next_cursor}`)
        assert.strictEqual(other.status, 400)
        assert.include(other.body.error.message, "other filters")
      }))

    it.effect("a body that is no JSON object of UTF-8 is refused", () =>
      Effect.gen(function*() {
        const { port } = yield* ServerAddress
        for (
          const body of ["", " ", "{", "[]", "null", "1", "\"x\"", "{\"type\":}", "{\"type\":\"t\"}x", "\u{feff}{}"]
        ) {
          const answer = yield* Raw.request(port, "POST", "/jobs", [Raw.json], body)
          assert.strictEqual(answer.status, 400, body)
          assert.include(["invalid_json", "invalid_body"], answer.body.error.code)
        }
        const bytes = Buffer.concat([Buffer.from(`{"type":"t","payload":"`), Buffer.from([0xff]), Buffer.from(`"}`)])
        const head =
          `POST /jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n` +
          `Content-Length: ${bytes.length}\r\n\r\n`
        const answer = yield* Raw.send(port, Buffer.concat([Buffer.from(head), bytes]))
        assert.strictEqual(answer.body.error.code, "invalid_json")
      }))

    it.effect("only JSON is taken, in UTF-8, uncompressed", () =>
      Effect.gen(function*() {
        const { port } = yield* ServerAddress
        const body = `{"type":"t"}`
        for (
          const headers of [
            [],
            [["Content-Type", "text/plain"]],
            [["Content-Type", "application/x-www-form-urlencoded"]],
            [["Content-Type", "application/json; charset=latin1"]],
            [["Content-Type", "application/x-ndjson"]],
            [Raw.json, ["Content-Encoding", "gzip"]]
          ] as ReadonlyArray<ReadonlyArray<readonly [string, string]>>
        ) {
          for (const path of ["/jobs", "/jobs/batch"]) {
            if (path === "/jobs/batch" && headers[0]?.[1] === "application/x-ndjson") {
              continue
            }
            const answer = yield* Raw.request(port, "POST", path, headers, body)
            assert.strictEqual(answer.status, 415, JSON.stringify(headers))
            assert.strictEqual(answer.body.error.code, "unsupported_media_type")
          }
        }
        const answer = yield* Raw.request(port, "POST", "/jobs", [[
          "Content-Type",
          "Application/JSON; charset=\"UTF-8\""
        ]], body)
        assert.strictEqual(answer.status, 201)
      }))

    it.effect("a payload of 1 MiB is taken, a larger one is 413, announced or not", () =>
      Effect.gen(function*() {
        const { port } = yield* ServerAddress
        const mib = "x".repeat(1_048_576 - 2)
        assert.strictEqual((yield* post({ type: "t", payload: mib })).status, 201)
        const over = yield* post({ type: "t", payload: `${mib}y` })
        assert.strictEqual(over.status, 413)
        assert.strictEqual(over.body.error.field, "payload")
        // By its bytes, not by its letters.
        const wide = yield* post({ type: "t", payload: "é".repeat(524_288) })
        assert.deepStrictEqual([wide.status, wide.body.error.field], [413, "payload"])
        const large = yield* post({ type: "t", payload: "x".repeat(3_000_000) })
        assert.strictEqual(large.body.error.code, "too_large")
        const chunk = "x".repeat(100_000)
        const chunked = `POST /jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n` +
          `Transfer-Encoding: chunked\r\n\r\n` + `${chunk.length.toString(16)}\r\n${chunk}\r\n`.repeat(13) + `0\r\n\r\n`
        assert.strictEqual((yield* Raw.send(port, chunked)).status, 413)
      }))

    it.effect("random bodies never get a 5xx", () =>
      Effect.gen(function*() {
        const { send } = yield* client
        for (let seed = 1; seed <= 300; seed++) {
          const text = Garbage.body(seed)
          for (const path of ["/jobs", "/jobs/batch"]) {
            const answer = yield* send("POST", path, text)
            assert.isTrue(
              answer.status >= 200 && answer.status < 500,
              `${answer.status}, seed ${seed}: ${text.slice(0, 200)}`
            )
            assert.isTrue(answer.status < 300 || typeof answer.body.error.code === "string")
          }
        }
      }))
  })
}
