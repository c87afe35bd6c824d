/** The fault catalogue, entry 97, as far as it goes without a dashboard: answers that nobody reads. */
import { assert, it } from "@effect/vitest"
import { Effect, type Scope } from "effect"
import { connect, type Socket } from "node:net"
import * as Processes from "../support/Processes.ts"
import { layer, Stage } from "./Stage.ts"

const clients = 4
/**
 * Answers show the payload, so a dozen of these fill what the two ends of a connection hold, and four what the server does.
 * It runs more lines at once than anybody sends here.
 */
const line = `${JSON.stringify({ type: "unread", payload: "x".repeat(1_000_000) })}\n`
const linesEach = 60

/** Sends lines for as long as somebody takes them, and never reads an answer. */
const deaf = (port: number): Effect.Effect<Socket, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const socket = connect({ host: "127.0.0.1", port })
      socket.pause()
      socket.on("error", () => {})
      socket.write(
        "POST /jobs/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n" +
          "Transfer-Encoding: chunked\r\n\r\n"
      )
      let left = linesEach
      const chunk = `${Buffer.byteLength(line).toString(16)}\r\n${line}\r\n`
      const send = () => {
        while (left > 0) {
          left -= 1
          if (!socket.write(chunk)) {
            socket.once("drain", send)
            return
          }
        }
      }
      send()
      return socket
    }),
    (socket) => Effect.sync(() => socket.destroy())
  )

it.layer(layer(), { excludeTestServices: true, timeout: "2 minutes" })("fault catalogue, readers", (it) => {
  it.effect(
    "97: of lines whose answers nobody reads only so many are taken, and nobody else notices",
    () =>
      Effect.gen(function*() {
        const { rows, server, submit } = yield* Stage
        const { api, port, program } = yield* server()
        yield* submit(api, [{ type: "read" }])
        const stored = Effect.map(
          rows<{ n: number }>(
            `SELECT count(*)::int AS n FROM deadman.job j JOIN deadman.route r ON r.id = j.route WHERE r.type = 'unread'`
          ),
          ([found]) => found?.n ?? 0
        )
        yield* Effect.gen(function*() {
          yield* Effect.forEach(Array.from({ length: clients }), () => deaf(port))
          let last = 0
          yield* Processes.eventually(
            "nothing more is taken",
            Effect.gen(function*() {
              const now = yield* stored
              const still = now > clients && now === last
              last = now
              return still
            }),
            "90 seconds",
            "2 seconds"
          )
          assert.isBelow(last, clients * linesEach / 2)
          const atMs = performance.now()
          yield* submit(api, [{ type: "read" }])
          assert.isBelow(performance.now() - atMs, 1_000)
        }).pipe(Effect.scoped)
        // They hang up, and that is all.
        yield* submit(api, [{ type: "read" }])
        assert.isTrue(program.alive())
        assert.notMatch(program.output(), /met a defect/)
      }),
    180_000
  )
})
