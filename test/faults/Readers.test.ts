/** The fault catalogue, entry 97, as far as it goes without a dashboard: answers that nobody reads. */
import { assert, it } from "@effect/vitest"
import { Effect, type Scope } from "effect"
import { connect, type Socket } from "node:net"
import * as Processes from "../support/Processes.ts"
import { layer, Stage } from "./Stage.ts"

const clients = 4
/**
 * Answers show the payload, so a dozen of these fill what the two ends of a connection hold, and four what the server does.
 * More are offered than it runs at once, 128, so that only their bytes can be what stops it.
 */
const line = `${JSON.stringify({ type: "unread", payload: "x".repeat(1_000_000) })}\n`
const linesEach = 160
const storedEachMax = 30
/** What is stored, and what waits in the buffers of a connection. */
const sentEachMax = 80

interface Deaf {
  readonly socket: Socket
  /** Lines, those that wait in its connection included. */
  readonly sent: () => number
}

/** Sends lines for as long as somebody takes them, and never reads an answer. */
const deaf = (port: number): Effect.Effect<Deaf, never, Scope.Scope> =>
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
      return { socket, sent: () => linesEach - left }
    }),
    ({ socket }) => Effect.sync(() => socket.destroy())
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
          const readers = yield* Effect.forEach(Array.from({ length: clients }), () => deaf(port))
          const sent = () => readers.map(({ sent }) => sent())
          let last: readonly [stored: number, sent: ReadonlyArray<number>] = [0, []]
          yield* Processes.eventually(
            "nothing more is taken",
            Effect.gen(function*() {
              const now = [yield* stored, sent()] as const
              const still = now[0] > clients && String(now) === String(last)
              last = now
              return still
            }),
            "90 seconds",
            "2 seconds"
          )
          assert.isBelow(last[0], clients * storedEachMax)
          last[1].forEach((lines) => assert.isBelow(lines, sentEachMax))
          const atMs = performance.now()
          yield* submit(api, [{ type: "read" }])
          // Within the deadline of any submit.
          assert.isBelow(performance.now() - atMs, 4_000)
        }).pipe(Effect.scoped)
        // They hang up, and that is all.
        yield* submit(api, [{ type: "read" }])
        assert.isTrue(program.alive())
        assert.notMatch(program.output(), /met a defect/)
      }),
    180_000
  )
})
