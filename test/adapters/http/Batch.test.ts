import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { connect } from "node:net"
import { ServerAddress } from "../../../src/adapters/http/Server.ts"
import * as ApiClient from "../../support/ApiClient.ts"
import { eventually } from "../../support/Eventually.ts"
import * as FaultyStore from "../../support/FaultyStore.ts"
import * as Subject from "./Subject.ts"

const client = Effect.map(ServerAddress, ({ port }) => ApiClient.make(port))

const batch = Effect.fnUntraced(function*(body: unknown, headers?: Record<string, string>) {
  return yield* (yield* client).send("POST", "/jobs/batch", body, headers)
})

const ndjson = { "content-type": "application/x-ndjson" }

interface Line {
  readonly line: number
  readonly status: number
  readonly job?: { readonly id: string; readonly payload: unknown }
  readonly error?: { readonly code: string; readonly field?: string }
}

const lines = Effect.fnUntraced(function*(text: string) {
  const answer = yield* batch(text, ndjson)
  assert.strictEqual(answer.status, 200)
  assert.strictEqual(answer.headers.get("content-type"), "application/x-ndjson")
  const body = typeof answer.body === "string" ? answer.body : JSON.stringify(answer.body)
  const all = body.trim().split("\n").filter((line) => line !== "").map((line): Line => JSON.parse(line))
  return all.sort((a, b) => a.line - b.line)
})

const countOf = Effect.fnUntraced(function*(type: string) {
  return (yield* (yield* client).send("GET", `/jobs?type=${type}&limit=500`)).body.jobs.length
})

for (const [store, layer] of Subject.both) {
  it.layer(layer, { excludeTestServices: true, timeout: "2 minutes" })(`HTTP batches over ${store}`, (it) => {
    it.effect("an array is stored as a whole and answered in its order", () =>
      Effect.gen(function*() {
        const answer = yield* batch(Array.from({ length: 1_000 }, (_, n) => ({ type: "array", payload: n })))
        assert.strictEqual(answer.status, 201)
        assert.deepStrictEqual(
          answer.body.jobs.map((job: { payload: number }) => job.payload),
          Array.from({ length: 1_000 }, (_, n) => n)
        )
        assert.strictEqual(new Set(answer.body.jobs.map((job: { id: string }) => job.id)).size, 1_000)
      }))

    it.effect("one wrong entry refuses the array by its place, and nothing is stored", () =>
      Effect.gen(function*() {
        const answer = yield* batch([{ type: "none" }, { type: "none", priority: "high" }, { type: "none" }])
        assert.strictEqual(answer.status, 400)
        assert.strictEqual(answer.body.error.field, "[1].priority")
        assert.strictEqual((yield* batch([{ type: "none" }, 3])).body.error.field, "[1]")
        assert.strictEqual((yield* batch([{ type: "none" }, { type: "none", x: 1 }])).body.error.field, "[1].x")
        const number = yield* batch(`[{"type":"none"},{"type":"none","payload":[1,1e999]}]`)
        assert.strictEqual(number.body.error.field, "[1].payload[1]")
        assert.strictEqual(yield* countOf("none"), 0)
      }))

    it.effect("an array with a key of another request is 422 as a whole", () =>
      Effect.gen(function*() {
        yield* batch([{ type: "key", idempotency_key: "batch-1" }])
        const answer = yield* batch([{ type: "other" }, { type: "key", payload: 2, idempotency_key: "batch-1" }])
        assert.strictEqual(answer.status, 422)
        assert.strictEqual(answer.body.error.field, "[1]")
        assert.strictEqual(yield* countOf("other"), 0)
      }))

    it.effect("a key that is twice in an array is one job", () =>
      Effect.gen(function*() {
        const entry = { type: "twice", idempotency_key: "batch-2" }
        const answer = yield* batch([entry, { type: "twice" }, entry])
        assert.strictEqual(answer.status, 201)
        assert.strictEqual(answer.body.jobs[0].id, answer.body.jobs[2].id)
        assert.deepStrictEqual(answer.body.outcomes, ["created", "created", "replayed"])
        const only = { type: "twice", payload: 1, unique: {} }
        const skipped = yield* batch([only, entry, only])
        assert.deepStrictEqual(skipped.body.outcomes, ["created", "replayed", "skipped"])
        assert.strictEqual((yield* batch([entry])).status, 200)
        assert.strictEqual(yield* countOf("twice"), 3)
      }))

    it.effect("an array has 1 to 10,000 entries and at most 16 MiB", () =>
      Effect.gen(function*() {
        for (const body of [[], {}, null, 1, Array.from({ length: 10_001 }, () => ({ type: "t" }))]) {
          assert.strictEqual((yield* batch(body)).body.error.code, "invalid_body")
        }
        const large = Array.from({ length: 20 }, () => ({ type: "t", payload: "x".repeat(1_000_000) }))
        assert.strictEqual((yield* batch(large)).status, 413)
        assert.strictEqual((yield* batch(large.slice(0, 10))).status, 201)
      }), 180_000)

    it.effect("NDJSON is answered per line, and lines after a failed one too", () =>
      Effect.gen(function*() {
        const answers = yield* lines([
          `{"type":"line","payload":1}`,
          `{"type":"line","priority":"x"}`,
          ``,
          `not json`,
          `{"type":"line","payload":2}\r`,
          `{"type":"line","payload":"${"x".repeat(1_200_000)}"}`,
          `{"type":"line","payload":3}`
        ].join("\n"))
        assert.deepStrictEqual(
          answers.map(({ error, job, line, status }) => [line, status, job?.payload ?? error?.code]),
          [
            [1, 201, 1],
            [2, 400, "invalid_field"],
            [4, 400, "invalid_json"],
            [5, 201, 2],
            [6, 413, "too_large"],
            [7, 201, 3]
          ]
        )
        assert.strictEqual(answers[1]?.error?.field, "priority")
        assert.strictEqual(yield* countOf("line"), 3)
      }))

    it.effect("thousands of lines become thousands of jobs", () =>
      Effect.gen(function*() {
        const answers = yield* lines(
          Array.from({ length: 3_000 }, (_, n) => `{"type":"many","payload":${n}}`).join("\n")
        )
        assert.strictEqual(answers.length, 3_000)
        assert.isTrue(answers.every(({ job, line, status }) => status === 201 && job?.payload === line - 1))
      }))

    it.effect("the status comes before the first line, and answers while lines still arrive", () =>
      Effect.gen(function*() {
        const { port } = yield* ServerAddress
        let text = ""
        const socket = yield* Effect.acquireRelease(
          Effect.sync(() =>
            connect(port, "127.0.0.1").on("data", (chunk) => {
              text += chunk.toString()
            })
          ),
          (socket) => Effect.sync(() => socket.destroy())
        )
        const chunk = (line: string) => socket.write(`${line.length.toString(16)}\r\n${line}\r\n`)
        socket.write(
          "POST /jobs/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n" +
            "Transfer-Encoding: chunked\r\n\r\n"
        )
        yield* eventually("the status", Effect.sync(() => text.startsWith("HTTP/1.1 200 OK")))
        chunk(`{"type":"t"}\n`)
        yield* eventually("the first answer", Effect.sync(() => text.includes(`{"line":1,"status":201`)))
        chunk(`{"type":"t"}\n`)
        yield* eventually("the second answer", Effect.sync(() => text.includes(`{"line":2,"status":201`)))
      }).pipe(Effect.scoped))
  })
}

it.layer(Subject.layerFaulty(), { excludeTestServices: true })("HTTP batches, the store away", (it) => {
  it.effect("an array is 503 within seconds; each line of NDJSON is", () =>
    Effect.gen(function*() {
      const faults = yield* FaultyStore.Faults
      faults.fault = "hanging"
      const [array, answers] = yield* Effect.all([batch([{ type: "t" }]), lines(`{"type":"t"}\n{"type":"u"}`)], {
        concurrency: 2
      })
      faults.fault = "none"
      assert.strictEqual(array.status, 503)
      assert.strictEqual(array.headers.get("retry-after"), "1")
      assert.deepStrictEqual(answers.map(({ error }) => error?.code), ["unavailable", "unavailable"])
    }), 180_000)
})
