/** `POST /jobs` goes past the router; `/jobs/` is the same resource by way of it. Whatever one answers, so does the other. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { ServerAddress } from "../../../src/adapters/http/Server.ts"
import * as Garbage from "./Garbage.ts"
import * as Raw from "./Raw.ts"
import * as Subject from "./Subject.ts"

type Headers = ReadonlyArray<readonly [string, string]>

/** An answer without what differs from one request to the next: ids and instants. */
const shown = ({ status, text }: Raw.RawAnswer) => {
  const end = text.indexOf("\r\n\r\n")
  const headers = text.slice(0, end).split("\r\n").slice(1)
    .map((line) => [line.slice(0, line.indexOf(":")).toLowerCase(), line.slice(line.indexOf(":") + 1).trim()] as const)
    .filter(([name]) => name !== "date")
  const plain = (part: string) =>
    part.replaceAll(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, "ID").replaceAll(/_at_ms":[0-9]{13}/g, `_at_ms":AT`)
  return {
    status,
    headers: headers.map(([name, value]) => `${name}: ${plain(value)}`).sort(),
    body: plain(text.slice(end + 4))
  }
}

const { json } = Raw
const job = `{"type":"t","payload":{"n":[1,"\u{1f600}é",null]},"tags":["a","b"],"priority":3}`

const unique = `{"type":"t","unique":{}}`

const requests: ReadonlyArray<readonly [title: string, headers: Headers, body: string]> = [
  ["a job", [json], job],
  ["with a charset", [["Content-Type", "application/json; charset=utf-8"]], job],
  ["in another spelling", [["content-type", "Application/JSON ;charset=\"UTF8\""]], job],
  ["of another charset", [["Content-Type", "application/json; charset=latin1"]], job],
  ["of another type", [["Content-Type", "text/plain"]], job],
  ["of no type", [], job],
  ["NDJSON", [["Content-Type", "application/x-ndjson"]], job],
  ["compressed", [json, ["Content-Encoding", "gzip"]], job],
  ["not compressed, and saying so", [json, ["Content-Encoding", "identity"]], job],
  ["no body", [json], ""],
  ["an empty body", [json, ["Content-Length", "0"]], ""],
  ["in chunks", [json, ["Transfer-Encoding", "chunked"], ["Content-Length", ""]], ""],
  ["no JSON", [json], "{"],
  ["no object", [json], "[1]"],
  ["no type of job", [json], "{}"],
  ["an unknown field", [json], `{"type":"t","nope":1}`],
  ["a bad key", [json, ["Idempotency-Key", "a b"]], job],
  ["two keys", [json, ["Idempotency-Key", "a"], ["idempotency-key", "b"]], job],
  ["keys that differ", [json, ["Idempotency-Key", "a"]], `{"type":"t","idempotency_key":"b"}`],
  ["a foreign Host", [["Host", "evil.example"], json], job],
  ["the Host of a page", [["Host", "localhost"], json, ["Origin", "https://evil.example"]], job],
  ["too much", [json], `{"type":"t","payload":"${"x".repeat(1_048_576)}"}`],
  ["far too much", [json, ["Content-Length", "5000000"]], "{"],
  ["in the way of itself", [json], unique]
]

it.layer(Subject.layer(), { excludeTestServices: true })("POST /jobs, past the router and through it", (it) => {
  const compared = Effect.fnUntraced(function*(title: string, headers: Headers, body: string) {
    const { port } = yield* ServerAddress
    const fast = shown(yield* Raw.request(port, "POST", "/jobs", headers, body))
    const full = shown(yield* Raw.request(port, "POST", "/jobs/", headers, body))
    assert.deepStrictEqual(fast, full, title)
    return fast
  })

  it.effect("they answer alike, headers and all", () =>
    Effect.gen(function*() {
      const { port } = yield* ServerAddress
      assert.strictEqual((yield* Raw.request(port, "POST", "/jobs", [json], unique)).status, 201)
      const statuses = new Set<number>()
      for (const [title, headers, body] of requests) {
        statuses.add((yield* compared(title, headers, body)).status)
      }
      assert.deepStrictEqual([...statuses].sort(), [200, 201, 400, 403, 413, 415])
    }))

  it.effect("a key is one job on both, and a mismatch is one on both", () =>
    Effect.gen(function*() {
      const { port } = yield* ServerAddress
      const key = ["Idempotency-Key", "one"] as const
      const first = yield* Raw.request(port, "POST", "/jobs", [json, key], job)
      const again = yield* Raw.request(port, "POST", "/jobs/", [json, key], job)
      assert.deepStrictEqual([first.status, again.status, again.body.id], [201, 200, first.body.id])
      yield* compared("replayed", [json, key], job)
      yield* compared("reused", [json, key], `{"type":"u"}`)
    }))

  it.effect("random bodies are answered alike", () =>
    Effect.gen(function*() {
      const { port } = yield* ServerAddress
      let refused = 0
      for (let seed = 1; seed <= 300; seed++) {
        const body = Garbage.body(seed)
        // What is unique, or has a key, is there before either way is asked: then both find it.
        yield* Raw.request(port, "POST", "/jobs", [json], body)
        refused += (yield* compared(`seed ${seed}`, [json], body)).status < 400 ? 0 : 1
      }
      assert.isAbove(refused, 100)
      assert.isBelow(refused, 300)
    }), 180_000)
})
