import { assert, it } from "@effect/vitest"
import { Effect, Metric } from "effect"
import { connect, type Socket } from "node:net"
import * as MetricsServer from "../../../src/adapters/http/MetricsServer.ts"
import { ServerAddress } from "../../../src/adapters/http/Server.ts"
import * as ApiClient from "../../support/ApiClient.ts"
import { eventually } from "../../support/Eventually.ts"
import * as Subject from "./Subject.ts"

const unreadMs = 1_000
/** More answers than the buffers of both sides take. */
const requests = 300
const slowReads = 50
const betweenReads = "50 millis"

/** A connection that asks for this, and reads nothing. */
const send = (text: string) =>
  Effect.flatMap(ServerAddress, ({ port }) =>
    Effect.acquireRelease(
      Effect.sync(() => {
        const socket = connect(port, "127.0.0.1").pause().on("error", () => {})
        socket.write(text)
        return socket
      }),
      (socket) => Effect.sync(() => socket.destroy())
    ))

/** Reads on to the end: what was answered, after what was read before. */
const answersOf = Effect.fnUntraced(function*(socket: Socket, chunks: Array<Buffer>) {
  const ended = Effect.callback<void>((resume) => {
    socket.once("end", () => resume(Effect.void))
    socket.once("close", () => resume(Effect.void))
    socket.removeAllListeners("readable").on("data", (chunk: Buffer) => chunks.push(chunk)).resume()
  })
  yield* Effect.timeout(ended, "20 seconds")
  return Buffer.concat(chunks).toString("latin1").split("HTTP/1.1 200 OK").slice(1)
})

/** A connection that asks for all of these answers at once. */
const ask = (path: string) => {
  const head = `GET ${path} HTTP/1.1\r\nHost: localhost\r\n`
  return send(`${`${head}\r\n`.repeat(requests - 1)}${head}Connection: close\r\n\r\n`)
}

const readsNothing = Effect.fn(function*(path: string) {
  const socket = yield* ask(path)
  yield* eventually(
    "the connection is closed",
    Effect.sync(() => {
      // A paused socket hears of its end only where it writes.
      socket.write("\r\n")
      return socket.destroyed
    }),
    "10 seconds"
  )
})

it.layer(Subject.layer({ unreadMs }), { excludeTestServices: true })("Unread answers", (it) => {
  it.effect("a client that reads nothing of its answers is let go", () => readsNothing("/openapi.json"))

  it.effect("who reads slowly gets everything, and who waits for an answer may wait", () =>
    Effect.gen(function*() {
      const { port } = yield* ServerAddress
      const [answer] = yield* Effect.all([
        ApiClient.make(port).send("POST", "/workers/claims", {
          worker: "w",
          lease: "0190b0c0-0000-7000-8000-000000000000",
          types: ["none"],
          wait_ms: 2.5 * unreadMs
        }),
        Effect.gen(function*() {
          const socket = yield* ask("/openapi.json")
          const chunks: Array<Buffer> = []
          socket.on("readable", () => {})
          for (let reads = 0; reads < slowReads; reads++) {
            yield* Effect.sleep(betweenReads)
            chunks.push(socket.read() ?? Buffer.alloc(0))
          }
          assert.isFalse(socket.readableEnded, "more is left than was read in the time")
          assert.lengthOf(yield* answersOf(socket, chunks), requests)
        })
      ], { concurrency: 2 })
      assert.strictEqual(answer.status, 200)
    }))

  it.effect("who was slow to read, and then waits for an answer, may wait as long as anybody", () =>
    Effect.gen(function*() {
      const body = JSON.stringify({
        worker: "w",
        lease: "0190b0c0-0000-7000-8000-000000000001",
        types: ["none"],
        wait_ms: 2.5 * unreadMs
      })
      const socket = yield* send(
        `${"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(requests)}` +
          "POST /workers/claims HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
          `Connection: close\r\nContent-Length: ${body.length}\r\n\r\n${body}`
      )
      yield* Effect.sleep(unreadMs / 2)
      assert.strictEqual((yield* answersOf(socket, [])).length, requests + 1)
    }))
})

it.layer(MetricsServer.layer({ host: "127.0.0.1", port: 0, token: null, unreadMs }), { excludeTestServices: true })(
  "Unread metrics",
  (it) => {
    it.effect("a client that reads nothing of them is let go", () =>
      Effect.gen(function*() {
        yield* Metric.update(Metric.gauge("long", { description: "x".repeat(100_000) }), 1)
        yield* readsNothing("/metrics")
      }))
  }
)
