/** The client against a server that plays a part: answers that get lost, come late, or are none. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, type Scope, Stream } from "effect"
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import { type Code, codes } from "../../../src/adapters/http/ApiError.ts"
import * as Client from "../../../src/adapters/http/Client.ts"
import type * as ClientError from "../../../src/adapters/http/ClientError.ts"
import { job } from "../../support/ApiJobs.ts"
import { freePort } from "../../support/Processes.ts"

interface Seen {
  readonly method: string
  readonly url: string
  readonly headers: IncomingMessage["headers"]
  readonly body: string
}

type Part = (response: ServerResponse, request: IncomingMessage) => void

const json = (status: number, body: unknown, headers: Readonly<Record<string, string>> = {}): Part => (response) =>
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body))

const refusal = (code: Code, headers: Readonly<Record<string, string>> = {}): Part =>
  json(codes[code], { error: { code, message: `says ${code}` } }, headers)

/** The connection is cut when all of the request is there. */
const lost: Part = (response) => void response.socket?.destroy()
const silent: Part = () => {}

/** Plays one part after the other, and the last one from then on. */
const playing = (parts: ReadonlyArray<Part>): Effect.Effect<
  { readonly url: string; readonly seen: ReadonlyArray<Seen> },
  never,
  Scope.Scope
> =>
  Effect.gen(function*() {
    const seen: Array<Seen> = []
    const server = createServer((request, response) => {
      let body = ""
      request.on("data", (chunk: Buffer) => (body += chunk.toString()))
      request.on("end", () => {
        const part = parts[Math.min(seen.length, parts.length - 1)]!
        seen.push({ method: request.method ?? "", url: request.url ?? "", headers: request.headers, body })
        part(response, request)
      })
    })
    const url = yield* Effect.acquireRelease(
      Effect.callback<string>((resume) => {
        server.listen(0, "127.0.0.1", () => {
          const address = server.address()
          resume(Effect.succeed(`http://127.0.0.1:${typeof address === "object" ? address?.port : 0}`))
        })
      }),
      () =>
        Effect.callback<void>((resume) => {
          server.closeAllConnections()
          server.close(() => resume(Effect.void))
        })
    )
    return { url, seen }
  })

const clientOf = (options: Client.Options) =>
  Effect.provide(Client.make({ deadlineMs: 5_000, tryMs: 1_000, tries: 3, ...options }), Client.http)

const against = Effect.fnUntraced(function*(...parts: ReadonlyArray<Part>) {
  const { seen, url } = yield* playing(parts)
  return { seen, url, client: yield* clientOf({ url, token: "secret-token" }) }
})

it.layer(Layer.empty, { excludeTestServices: true, timeout: "2 minutes" })("the client", (it) => {
  it.effect("repeats a submit whose answer was lost, under the key that it drew", () =>
    Effect.gen(function*() {
      const { client, seen } = yield* against(lost, json(200, job, { "idempotent-replayed": "true" }))
      const submitted = yield* client.submit({ type: "mail", payload: { to: "ada" } })
      assert.strictEqual(submitted.outcome, "created")
      assert.strictEqual(submitted.job.id, "j1")
      assert.strictEqual(seen.length, 2)
      assert.match(String(seen[0]?.headers["idempotency-key"]), /^[0-9a-f-]{36}$/)
      assert.strictEqual(seen[0]?.headers["idempotency-key"], seen[1]?.headers["idempotency-key"])
      assert.strictEqual(seen[1]?.headers.authorization, "Bearer secret-token")
      assert.deepStrictEqual(JSON.parse(seen[1]?.body ?? ""), { type: "mail", payload: { to: "ada" } })
    }))

  it.effect("sends a key that it is given, and says that it was known", () =>
    Effect.gen(function*() {
      const { client, seen } = yield* against(json(200, job, { "idempotent-replayed": "true" }))
      const { outcome } = yield* client.submit({ type: "mail", idempotency_key: "order-1" })
      assert.strictEqual(outcome, "replayed")
      assert.isUndefined(seen[0]?.headers["idempotency-key"])
      assert.strictEqual(JSON.parse(seen[0]?.body ?? "").idempotency_key, "order-1")
    }))

  it.effect("does not repeat an unkeyed submit whose answer was lost", () =>
    Effect.gen(function*() {
      const { client, seen } = yield* against(lost, json(201, job))
      const error = yield* Effect.flip(client.submit({ type: "mail" }, { keyed: false }))
      assert.strictEqual(error._tag, "ServerUnavailable")
      assert.strictEqual((error as ClientError.ServerUnavailable).done, "unknown")
      assert.strictEqual(seen.length, 1)
      assert.isUndefined(seen[0]?.headers["idempotency-key"])
    }))

  it.effect("draws one key per job of a batch, and the same ones for a repeat", () =>
    Effect.gen(function*() {
      const { client, seen } = yield* against(
        lost,
        json(201, { jobs: [job, job, job, job], outcomes: ["replayed", "replayed", "skipped", "created"] })
      )
      const jobs = yield* client.submitBatch([
        { type: "mail" },
        { type: "mail", idempotency_key: "mine" },
        { type: "mail", unique: {} },
        { type: "mail", idempotency_key: "other" }
      ])
      assert.deepStrictEqual(jobs.map(({ outcome }) => outcome), ["created", "replayed", "skipped", "created"])
      const [first, second] = seen.map(({ body }) =>
        JSON.parse(body).map((entry: { idempotency_key: string }) => entry.idempotency_key)
      )
      assert.deepStrictEqual(first, second)
      assert.match(first[0], /^[0-9a-f-]{36}$/)
      assert.strictEqual(first[1], "mine")
    }))

  it.effect("repeats a run of a schedule whose answer was lost, under the key that it drew or was given", () =>
    Effect.gen(function*() {
      for (const key of [undefined, "mine"]) {
        const { client, seen } = yield* against(lost, json(200, job, { "idempotent-replayed": "true" }))
        assert.strictEqual((yield* client.runSchedule("nightly", { key })).id, "j1")
        const keys = seen.map(({ headers }) => headers["idempotency-key"])
        assert.deepStrictEqual(keys, [keys[0], keys[0]])
        assert.match(String(keys[0]), key === undefined ? /^[0-9a-f-]{36}$/ : /^mine$/)
      }
    }))

  it.effect("repeats neither a resubmit nor a retry that may have been done", () =>
    Effect.gen(function*() {
      for (const act of ["resubmit", "retry"] as const) {
        const { client, seen } = yield* against(lost, json(201, job))
        const error = yield* Effect.flip(client[act]("j1"))
        assert.strictEqual(error._tag, "ServerUnavailable")
        assert.strictEqual(seen.length, 1, act)
      }
    }))

  it.effect("repeats whatever was certainly not done, and waits as long as it is asked to", () =>
    Effect.gen(function*() {
      const { client, seen } = yield* against(refusal("stopping", { "retry-after": "1" }), json(201, job))
      const began = performance.now()
      yield* client.resubmit("j1")
      assert.strictEqual(seen.length, 2)
      assert.isAtLeast(performance.now() - began, 990)
    }))

  it.effect("finds its own cancel where the first answer was lost, and no one else's end", () =>
    Effect.gen(function*() {
      const dead = { ...job, state: "dead", reason: "cancelled", finished_at_ms: 2 }
      const mine = yield* against(lost, refusal("wrong_state"), json(200, dead))
      assert.strictEqual((yield* mine.client.cancel("j1")).reason, "cancelled")
      assert.deepStrictEqual(mine.seen.map(({ method }) => method), ["DELETE", "DELETE", "GET"])
      const done = yield* against(refusal("wrong_state"), json(200, { ...job, state: "completed", finished_at_ms: 2 }))
      assert.strictEqual((yield* Effect.flip(done.client.cancel("j1")))._tag, "WrongState")
    }))

  it.effect("ends every call by its deadline, also where nothing is answered", () =>
    Effect.gen(function*() {
      const { url } = yield* playing([silent])
      const client = yield* clientOf({ url, deadlineMs: 700, tryMs: 300, tries: 50 })
      const began = performance.now()
      const error = yield* Effect.flip(client.get("j1"))
      assert.strictEqual(error._tag, "ServerUnavailable")
      assert.isBelow(performance.now() - began, 3_000)
    }))

  it.effect("says that nothing was done where no server is", () =>
    Effect.gen(function*() {
      const url = `http://127.0.0.1:${yield* freePort}`
      const error = yield* Effect.flip((yield* clientOf({ url, tries: 1 })).resubmit("j1"))
      assert.strictEqual(error._tag, "ServerUnavailable")
      assert.strictEqual((error as ClientError.ServerUnavailable).done, "nothing")
      assert.include(error.message, url)
      assert.include(error.message, "ECONNREFUSED")
      const refused = yield* Effect.flip((yield* clientOf({ url: "http://127.0.0.1:1", tries: 1 })).resubmit("j1"))
      assert.strictEqual((refused as ClientError.ServerUnavailable).done, "nothing", refused.message)
    }))

  it.effect("gives every code of the API one of its tags, and a code that it does not know the one of its status", () =>
    Effect.gen(function*() {
      const tags: Partial<Record<Code, ClientError.ClientError["_tag"]>> = {
        unauthorized: "Unauthorized",
        not_found: "NotFound",
        wrong_state: "WrongState",
        gone: "KeyReused",
        idempotency_key_reused: "KeyReused",
        internal: "UnexpectedAnswer",
        request_timeout: "ServerUnavailable",
        unavailable: "ServerUnavailable",
        overloaded: "ServerUnavailable",
        stopping: "ServerUnavailable",
        key_locked: "ServerUnavailable"
      }
      for (const code of Object.keys(codes) as ReadonlyArray<Code>) {
        const { url } = yield* playing([refusal(code)])
        const error = yield* Effect.flip((yield* clientOf({ url, tries: 1 })).get("j1"))
        assert.strictEqual(error._tag, tags[code] ?? "InvalidRequest", code)
        assert.include(error.message, `says ${code}`)
      }
      const state = { error: { code: "wrong_state", message: "no", state: "running" } }
      const wrong = yield* Effect.flip((yield* against(json(409, state))).client.retry("j1"))
      assert.strictEqual(wrong._tag === "WrongState" && wrong.state, "running")
      const newer = yield* playing([json(409, { error: { code: "of_tomorrow", message: "no" } })])
      assert.strictEqual((yield* Effect.flip((yield* clientOf(newer)).get("j1")))._tag, "WrongState")
    }))

  it.effect("tells what is no Deadman server, and sends no token after a redirect", () =>
    Effect.gen(function*() {
      const page: Part = (response) => response.writeHead(200, { "content-type": "text/html" }).end("<html>")
      const other = yield* against(page)
      assert.strictEqual((yield* Effect.flip(other.client.get("j1")))._tag, "UnexpectedAnswer")
      const target = yield* playing([json(200, job)])
      const away: Part = (response) => response.writeHead(307, { location: `${target.url}/jobs/j1` }).end()
      const { client } = yield* against(away)
      assert.strictEqual((yield* Effect.flip(client.get("j1")))._tag, "UnexpectedAnswer")
      assert.strictEqual(target.seen.length, 0)
    }))

  it.effect("refuses what is wrong before it is sent, and names the field", () =>
    Effect.gen(function*() {
      const { client, seen } = yield* against(json(201, job))
      const wrong = yield* Effect.flip(client.submit({ type: "mail", priority: 5_000 }))
      assert.strictEqual(wrong._tag, "InvalidRequest")
      assert.strictEqual((wrong as ClientError.InvalidRequest).field, "priority")
      const strange = { type: "mail", max_attemps: 3 } as Client.NewJob
      const unknown = yield* Effect.flip(client.submit(strange))
      assert.strictEqual((unknown as ClientError.InvalidRequest).field, "max_attemps")
      const nameless = client.call("always", (api) => api.queues.pauseQueue({ params: { name: undefined as never } }))
      for (
        const [field, asked] of Object.entries({
          state: client.list({ state: "done" as never }),
          limit: client.list({ limit: "ten" as never }),
          name: nameless
        })
      ) {
        const error = yield* Effect.flip(Effect.asVoid<unknown, ClientError.ClientError, never>(asked))
        assert.strictEqual(error._tag, "InvalidRequest")
        assert.strictEqual((error as ClientError.InvalidRequest).field, field)
        assert.match(error.message, new RegExp(`^${field}: Expected `))
      }
      assert.strictEqual(seen.length, 0)
      assert.strictEqual((yield* Effect.flip(clientOf({ url: "localhost:8080" })))._tag, "InvalidRequest")
    }))

  it.effect("walks all pages, and takes what an unready server has to say", () =>
    Effect.gen(function*() {
      const { client, seen } = yield* against(
        json(200, { jobs: [job], next_cursor: "c1" }),
        json(200, { jobs: [], next_cursor: "c2" }),
        json(200, { jobs: [job, job], next_cursor: null })
      )
      assert.strictEqual((yield* Stream.runCollect(client.walk({ type: "mail" }))).length, 3)
      assert.deepStrictEqual(seen.map(({ url }) => url), [
        "/jobs?type=mail",
        "/jobs?type=mail&cursor=c1",
        "/jobs?type=mail&cursor=c2"
      ])
      const unready = yield* playing([
        json(503, { ready: false, reasons: ["why"], degraded: [], loops: {}, services: {} })
      ])
      assert.deepStrictEqual((yield* (yield* clientOf(unready)).ready).reasons, ["why"])
    }))

  it.effect("waits for a job to end, for so long", () =>
    Effect.gen(function*() {
      const ended = yield* against(json(200, job), json(200, { ...job, state: "completed", finished_at_ms: 3 }))
      assert.strictEqual((yield* ended.client.waitFor("j1")).state, "completed")
      const open = yield* against(json(200, job))
      assert.strictEqual((yield* Effect.flip(open.client.waitFor("j1", { within: 200 })))._tag, "NotEnded")
    }))
})
