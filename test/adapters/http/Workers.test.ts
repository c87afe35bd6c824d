/** What workers of other languages say over HTTP, and what they are told. */
import { assert, it } from "@effect/vitest"
import { Clock, Effect, Fiber } from "effect"
import { connect } from "node:net"
import { ServerAddress } from "../../../src/adapters/http/Server.ts"
import { Stopping } from "../../../src/programs/process/Stopping.ts"
import * as ApiClient from "../../support/ApiClient.ts"
import { eventually } from "../../support/Eventually.ts"
import * as Raw from "./Raw.ts"
import * as Subject from "./Subject.ts"

const client = Effect.map(ServerAddress, ({ port }) => ApiClient.make(port))
const fresh = (what: string) => `${what}-${crypto.randomUUID()}`

/** A worker with a type of its own. */
const staged = Effect.gen(function*() {
  const { send } = yield* client
  const type = fresh("t")
  const submit = (fields: object = {}) =>
    Effect.map(send("POST", "/jobs", { type, ...fields }), ({ body }) => String(body.id))
  const claim = (fields: object = {}) =>
    send("POST", "/workers/claims", { worker: "py-1", types: [type], limit: 10, wait_ms: 0, ...fields })
  const beat = (...leases: ReadonlyArray<string>) => send("POST", "/workers/heartbeats", { worker: "py-1", leases })
  const settle = (...outcomes: ReadonlyArray<object>) => send("POST", "/workers/outcomes", { outcomes })
  const job = (id: string) => Effect.map(send("GET", `/jobs/${id}`), ({ body }) => body)
  /** One job, submitted and claimed. */
  const taken = Effect.fnUntraced(function*(fields: object = {}, how: object = {}) {
    const id = yield* submit(fields)
    const { body, status } = yield* claim(how)
    assert.strictEqual(status, 200, JSON.stringify(body))
    assert.deepStrictEqual(body.claims.map((one: { job: { id: string } }) => one.job.id), [id])
    return { id, lease: String(body.lease), epoch: Number(body.claims[0].epoch), job: body.claims[0].job }
  })
  return { send, type, submit, claim, beat, settle, job, taken }
})

for (const [name, subject] of Subject.both) {
  it.layer(subject, { excludeTestServices: true, timeout: "2 minutes" })(`workers over HTTP, ${name}`, (it) => {
    it.effect("a claim brings all that a run needs, and an outcome ends it", () =>
      Effect.gen(function*() {
        const { beat, job, settle, taken, type } = yield* staged
        const payload = { to: ["ada", 1, null] }
        const { epoch, id, job: claimed, lease } = yield* taken(
          { payload, timeout_ms: 60_000, max_attempts: 3, idempotency_key: `key-${type}` },
          { lease_ms: 5_000 }
        )
        assert.deepInclude(claimed, {
          id,
          type,
          queue: "default",
          state: "running",
          payload,
          attempts: 0,
          max_attempts: 3,
          timeout_ms: 60_000,
          worker: "py-1",
          epoch: 1,
          deliveries: 1,
          lease_losses: 0,
          effect_key: `key-${type}`
        })
        assert.deepInclude(yield* job(id), { state: "running", worker: "py-1", epoch })
        assert.deepStrictEqual((yield* beat(lease)).body, { held: [lease], lost: [], revoked: [] })
        const settled = yield* settle({ id, epoch, lease, kind: "completed", result: { sent: 3 } })
        assert.deepStrictEqual(settled.body, { settled: [id], stale: [], undecided: [] })
        assert.deepInclude(yield* job(id), { state: "completed", attempts: 0, result: { sent: 3 } })
        // The lease ends with the last of its jobs.
        yield* eventually(
          "the lease is gone",
          Effect.map(beat(lease), ({ body }) => body.lost?.includes(lease) === true)
        )
      }))

    it.effect("a claim asked again under its lease answers what it took, and takes nothing further", () =>
      Effect.gen(function*() {
        const { claim, submit, taken } = yield* staged
        const lease = crypto.randomUUID()
        const { epoch, id } = yield* taken({}, { lease, lease_ms: 7_000 })
        yield* submit()
        for (const again of [lease, lease.toUpperCase()]) {
          const { body } = yield* claim({ lease: again, lease_ms: 9_000, wait_ms: 200 })
          assert.deepStrictEqual(
            [body.lease, body.lease_ms, body.claims.map((one: { job: object; epoch: number }) => one.epoch)],
            [lease, 7_000, [epoch]]
          )
          assert.strictEqual(body.claims[0].job.id, id)
        }
      }))

    it.effect("a repeated outcome is settled, whatever it carries; one under another claim is stale and shown", () =>
      Effect.gen(function*() {
        const { job, settle, taken } = yield* staged
        const { epoch, id, lease } = yield* taken()
        const first = { id, epoch, lease, kind: "completed", result: 1 }
        for (const outcome of [first, first, { ...first, kind: "failed", result: null, error: "late" }]) {
          assert.deepStrictEqual((yield* settle(outcome)).body.settled, [id])
        }
        assert.deepInclude(yield* job(id), { state: "completed", result: 1, attempts: 0 })
        const { body } = yield* settle({ ...first, lease: crypto.randomUUID() })
        assert.deepStrictEqual(body, { settled: [], stale: [id], undecided: [] })
        const shown = yield* job(id)
        assert.strictEqual(shown.stale_writes, 1)
        assert.deepInclude(shown.events.at(-1), { kind: "stale_write", outcome: "complete" })
      }))

    it.effect("failed waits by the job's own backoff, and the last failure is the end", () =>
      Effect.gen(function*() {
        const { claim, job, settle, taken } = yield* staged
        const { epoch, id, lease } = yield* taken({
          max_attempts: 2,
          backoff: { kind: "fixed", delay_ms: 0 }
        })
        yield* settle({ id, epoch, lease, kind: "failed", error: { name: "ValueError", message: "no such user" } })
        const failed = yield* job(id)
        assert.deepInclude(failed, { state: "failed", attempts: 1 })
        assert.deepInclude(failed.errors[0], {
          name: "ValueError",
          message: "no such user",
          worker: "py-1",
          attempt: 1
        })
        const { send } = yield* client
        yield* send("POST", `/jobs/${id}/retry`)
        const { body } = yield* claim({ wait_ms: 5_000 })
        const second = { id, epoch: body.claims[0].epoch, lease: body.lease }
        yield* settle({ ...second, kind: "failed" })
        const dead = yield* job(id)
        assert.deepInclude(dead, { state: "dead", reason: "attempts_exhausted", attempts: 2 })
        assert.deepInclude(dead.errors[1], { message: "The worker gave no reason." })
      }))

    it.effect("rejected is the end, released and again cost nothing", () =>
      Effect.gen(function*() {
        const { claim, job, settle, taken } = yield* staged
        const one = yield* taken()
        const of = ({ epoch, id, lease }: typeof one) => ({ id, epoch, lease })
        yield* settle({ ...of(one), kind: "rejected", error: "never" })
        assert.deepInclude(yield* job(one.id), { state: "dead", reason: "rejected", attempts: 1 })
        const two = yield* taken()
        yield* settle({ ...of(two), kind: "released" })
        const released = yield* job(two.id)
        assert.deepInclude(released, { state: "pending", attempts: 0, deliveries: 1 })
        assert.deepInclude(released.events.at(-1), { kind: "released", worker: "py-1" })
        const { body } = yield* claim()
        const again = { id: two.id, epoch: body.claims[0].epoch, lease: body.lease }
        yield* settle({ ...again, kind: "again", delay_ms: 600_000 })
        const later = yield* job(two.id)
        assert.deepInclude(later, { state: "pending", attempts: 0, deliveries: 2 })
        assert.isAbove(later.run_at_ms, later.started_at_ms + 500_000)
      }))

    it.effect("results and errors are made fit to be stored, as those of any handler", () =>
      Effect.gen(function*() {
        const { job, settle, taken } = yield* staged
        const one = yield* taken()
        const odd = `{"outcomes":[{"id":"${one.id}","epoch":${one.epoch},"lease":"${one.lease}","kind":"completed",` +
          `"result":{"nul":"a\\u0000b","half":"\\ud800","huge":1e999,"__proto__":{"x":1}}}]}`
        const { send } = yield* client
        const { body, status } = yield* send("POST", "/workers/outcomes", odd)
        assert.deepStrictEqual([status, body.settled], [200, [one.id]])
        const { result } = yield* job(one.id)
        assert.deepInclude(result, { nul: "a\ufffdb", half: "\ufffd", huge: null })
        const two = yield* taken()
        yield* settle({ ...two, job: undefined, kind: "completed", result: "x".repeat(400_000) })
        assert.isBelow(JSON.stringify((yield* job(two.id)).result).length, 262_200)
        const three = yield* taken()
        yield* settle({ ...three, job: undefined, kind: "rejected", error: { message: "y".repeat(50_000) } })
        assert.isBelow((yield* job(three.id)).errors[0].message.length, 2_001)
      }))

    it.effect("a cancel is told with the next heartbeat, and what the run reports then is stale", () =>
      Effect.gen(function*() {
        const { beat, job, send, settle, taken } = yield* staged
        const { epoch, id, lease } = yield* taken()
        yield* beat(lease)
        yield* send("DELETE", `/jobs/${id}`)
        yield* eventually(
          "it is told",
          Effect.map(
            beat(lease),
            ({ body }) => JSON.stringify(body.revoked) === JSON.stringify([{ id, epoch, reason: "cancelled" }])
          )
        )
        assert.deepStrictEqual((yield* settle({ id, epoch, lease, kind: "completed" })).body.stale, [id])
        assert.deepInclude(yield* job(id), { state: "dead", reason: "cancelled", stale_writes: 1 })
      }))

    it.effect("what is waited for is told at once, to all that wait, and none takes more than it asked for", () =>
      Effect.gen(function*() {
        const { claim, submit } = yield* staged
        const waiting = yield* Effect.forkChild(claim({ wait_ms: 10_000, limit: 1 }))
        const other = yield* Effect.forkChild(claim({ wait_ms: 10_000, limit: 1, worker: "py-2" }))
        // Two that wait: neither may be forgotten.
        yield* Effect.sleep("300 millis")
        const first = yield* submit()
        const second = yield* submit()
        const answers = [yield* Fiber.join(waiting), yield* Fiber.join(other)]
        assert.deepStrictEqual(
          answers.flatMap(({ body }) => body.claims.map((one: { job: { id: string } }) => one.job.id)).sort(),
          [first, second].sort()
        )
        const empty = yield* claim({ wait_ms: 300 })
        assert.deepStrictEqual([empty.status, empty.body.claims, empty.body.lease_ms], [200, [], 30_000])
        assert.isString(empty.body.lease)
      }))

    it.effect("who goes away while waiting costs nobody anything", () =>
      Effect.gen(function*() {
        const { port } = yield* ServerAddress
        const { claim, job, submit, type } = yield* staged
        const body = JSON.stringify({ worker: "gone", types: [type], limit: 5, wait_ms: 30_000 })
        const sockets = Array.from({ length: 20 }, () => {
          const socket = connect(port, "127.0.0.1").on("error", () => {})
          socket.write(
            `POST /workers/claims HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n` +
              `Content-Length: ${body.length}\r\n\r\n${body}`
          )
          return socket
        })
        yield* Effect.sleep("300 millis")
        sockets.forEach((socket) => socket.resetAndDestroy())
        const id = yield* submit()
        const { body: taken } = yield* claim({ wait_ms: 5_000 })
        assert.deepStrictEqual(taken.claims.map((one: { job: { id: string } }) => one.job.id), [id])
        assert.deepInclude(yield* job(id), { worker: "py-1", lease_losses: 0, attempts: 0 })
      }))

    it.effect("a claim whose answer cannot be delivered is handed back at once", () =>
      Effect.gen(function*() {
        const { port } = yield* ServerAddress
        const { job, submit, type } = yield* staged
        // More than what lies between two sockets, so that the answer is still being written when its reader goes.
        const ids = yield* Effect.forEach(Array.from({ length: 4 }), () => submit({ payload: "x".repeat(1_000_000) }))
        const body = JSON.stringify({ worker: "gone", types: [type], limit: 4, wait_ms: 0, lease: crypto.randomUUID() })
        const socket = connect(port, "127.0.0.1").on("error", () => {})
        socket.pause()
        socket.write(
          `POST /workers/claims HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n` +
            `Content-Length: ${body.length}\r\n\r\n${body}`
        )
        const all = (state: string) =>
          Effect.map(Effect.forEach(ids, job), (found) => found.every((one) => one.state === state))
        yield* eventually("they are taken", all("running"))
        yield* Effect.sleep("300 millis")
        socket.resetAndDestroy()
        yield* eventually("they are handed back", all("pending"), "3 seconds")
        for (const id of ids) {
          assert.deepInclude(yield* job(id), { attempts: 0, lease_losses: 0, events: [] })
        }
      }))

    it.effect("an attempt past its timeout is a failed one at a heartbeat, whatever its worker does", () =>
      Effect.gen(function*() {
        const { beat, job, settle, taken } = yield* staged
        const { epoch, id, lease } = yield* taken({ timeout_ms: 100, max_attempts: 1 })
        assert.deepStrictEqual((yield* beat(lease)).body.revoked, [])
        yield* eventually(
          "it is cut off",
          Effect.map(beat(lease), ({ body }) =>
            body.revoked?.some((one: { id: string }) => one.id === id) === true ||
            body.lost?.includes(lease) === true)
        )
        yield* eventually("it is dead", Effect.map(job(id), ({ state }) => state === "dead"))
        const dead = yield* job(id)
        assert.deepInclude(dead, { reason: "attempts_exhausted", attempts: 1 })
        assert.deepInclude(dead.errors[0], { name: "Timeout", worker: "py-1" })
        assert.deepStrictEqual((yield* settle({ id, epoch, lease, kind: "completed" })).body.settled, [id])
        assert.strictEqual((yield* job(id)).state, "dead")
      }))

    it.effect("workers are listed by the names they give themselves", () =>
      Effect.gen(function*() {
        const { claim, send, type } = yield* staged
        const worker = fresh("listed")
        yield* claim({ worker, limit: 3 })
        yield* eventually(
          "it is listed",
          Effect.map(send("GET", "/stats"), ({ body }) =>
            body.workers?.some((one: { name: string }) => one.name === worker) === true)
        )
        const { body } = yield* send("GET", "/stats")
        const listed = body.workers.find((one: { name: string }) =>
          one.name === worker
        )
        assert.deepInclude(listed, { role: "http", handlers: [type], slots: 3, running: 0 })
      }))

    it.effect("wrong input is a 400 that names the field", () =>
      Effect.gen(function*() {
        const { send } = yield* client
        const ask = { worker: "w", types: ["t"], limit: 1, wait_ms: 0 }
        const outcome = { id: crypto.randomUUID(), epoch: 1, lease: crypto.randomUUID(), kind: "completed" }
        const names = (count: number) => Array.from({ length: count }, (_, n) => `t-${n}`)
        const leases = (count: number) => Array.from({ length: count }, () => crypto.randomUUID())
        const wrong: ReadonlyArray<readonly [path: string, body: unknown, field: string | undefined]> = [
          ["claims", "{", undefined],
          ["claims", [], undefined],
          ["claims", { ...ask, extra: 1 }, "extra"],
          ["claims", { ...ask, worker: "" }, "worker"],
          ["claims", { ...ask, worker: 7 }, "worker"],
          ["claims", { ...ask, types: [] }, "types"],
          ["claims", { ...ask, types: ["a b"] }, "types"],
          ["claims", { ...ask, queues: [] }, "queues"],
          ["claims", { ...ask, limit: 0 }, "limit"],
          ["claims", { ...ask, limit: 1_001 }, "limit"],
          ["claims", { ...ask, wait_ms: 60_001 }, "wait_ms"],
          ["claims", { ...ask, wait_ms: -1 }, "wait_ms"],
          ["claims", { ...ask, types: names(101) }, "types"],
          ["claims", { ...ask, queues: names(101) }, "queues"],
          ["claims", { ...ask, lease: "mine" }, "lease"],
          ["claims", { ...ask, lease_ms: 499 }, "lease_ms"],
          ["claims", { ...ask, lease_ms: 3_600_001 }, "lease_ms"],
          ["heartbeats", { worker: "w" }, "leases"],
          ["heartbeats", { worker: "w", leases: leases(1_001) }, "leases"],
          ["heartbeats", { worker: "w", leases: ["x"] }, "leases[0]"],
          ["heartbeats", { worker: "w", leases: [], more: 1 }, "more"],
          ["outcomes", { outcomes: [] }, "outcomes"],
          ["outcomes", { outcomes: Array.from({ length: 1_001 }, () => outcome) }, "outcomes"],
          ["outcomes", { outcomes: [outcome, 3] }, "outcomes[1]"],
          ["outcomes", { outcomes: [{ ...outcome, kind: "done" }] }, "outcomes[0].kind"],
          ["outcomes", { outcomes: [{ ...outcome, epoch: 0 }] }, "outcomes[0].epoch"],
          ["outcomes", { outcomes: [{ ...outcome, lease: null }] }, "outcomes[0].lease"],
          ["outcomes", { outcomes: [{ ...outcome, note: 1 }] }, "outcomes[0].note"],
          ["outcomes", { outcomes: [{ ...outcome, error: "x" }] }, "outcomes[0].error"],
          ["outcomes", { outcomes: [{ ...outcome, kind: "again" }] }, "outcomes[0].delay_ms"],
          ["outcomes", { outcomes: [{ ...outcome, kind: "again", delay_ms: 86_400_001 }] }, "outcomes[0].delay_ms"],
          ["outcomes", { outcomes: [{ ...outcome, kind: "released", result: 1 }] }, "outcomes[0].result"],
          ["outcomes", { outcomes: [{ ...outcome, kind: "failed", delay_ms: 5 }] }, "outcomes[0].delay_ms"]
        ]
        for (const [path, body, field] of wrong) {
          const answer = yield* send("POST", `/workers/${path}`, body)
          assert.deepStrictEqual([answer.status, answer.body.error?.field], [400, field], JSON.stringify(body))
        }
        // At their bounds they are right.
        const right: ReadonlyArray<readonly [path: string, body: unknown]> = [
          ["claims", { ...ask, types: names(100), queues: names(100), limit: 1_000, lease_ms: 500 }],
          ["claims", { ...ask, lease_ms: 3_600_000 }],
          ["heartbeats", { worker: "w", leases: leases(1_000) }],
          ["outcomes", { outcomes: [{ ...outcome, kind: "again", delay_ms: 86_400_000 }] }],
          ["outcomes", { outcomes: leases(1_000).map((id) => Object.assign({}, outcome, { id })) }]
        ]
        for (const [path, body] of right) {
          const answer = yield* send("POST", `/workers/${path}`, body)
          assert.strictEqual(answer.status, 200, JSON.stringify(answer.body).slice(0, 300))
        }
        const { port } = yield* ServerAddress
        const text = yield* Raw.request(port, "POST", "/workers/claims", [["Content-Type", "text/plain"]], "{}")
        assert.strictEqual(text.status, 415)
        const large = yield* send("POST", "/workers/claims", { ...ask, types: ["x".repeat(70_000)] })
        assert.strictEqual(large.status, 413)
      }))

    it.effect("a process that stops ends its waits and hands out nothing, but hears heartbeats and outcomes", () =>
      Effect.gen(function*() {
        const { beat, claim, settle, taken } = yield* staged
        const { epoch, id, lease } = yield* taken()
        const waiting = yield* Effect.forkChild(claim({ wait_ms: 30_000 }))
        yield* Effect.sleep("300 millis")
        const before = yield* Clock.currentTimeMillis
        yield* (yield* Stopping).begin
        const ended = yield* Fiber.join(waiting)
        assert.isBelow((yield* Clock.currentTimeMillis) - before, 2_000)
        for (const refused of [ended, yield* claim()]) {
          assert.deepStrictEqual([refused.status, refused.body.error?.code], [503, "stopping"])
          assert.isString(refused.headers.get("retry-after"))
        }
        assert.deepStrictEqual((yield* beat(lease)).body.held, [lease])
        assert.deepStrictEqual((yield* settle({ id, epoch, lease, kind: "completed" })).body.settled, [id])
      }))
  })
}
