/** The command line beside a server of an older version. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { createServer, type Server } from "node:http"
import type { AddressInfo } from "node:net"
import * as ApiJobs from "../../support/ApiJobs.ts"
import * as Cli from "../../support/Cli.ts"

/** One that does not know `delay_ms`, and the bodies that it was sent. */
const older = Effect.gen(function*() {
  const bodies: Array<Record<string, unknown>> = []
  const server = yield* Effect.acquireRelease(
    Effect.callback<Server>((resume) => {
      const server = createServer((request, response) => {
        let text = ""
        request.on("data", (chunk) => (text += String(chunk)))
        request.on("end", () => {
          const body = JSON.parse(text) as Record<string, unknown>
          bodies.push(body)
          const known = !("delay_ms" in body)
          const error = { code: "unknown_field", field: "delay_ms", message: "delay_ms is not a field of a job" }
          response.writeHead(known ? 201 : 400, { "content-type": "application/json" })
          response.end(JSON.stringify(known ? { ...ApiJobs.job, run_at_ms: body["run_at_ms"] } : { error }))
        })
      })
      server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
    }),
    (server) =>
      Effect.sync(() => {
        server.closeAllConnections()
        server.close()
      })
  )
  return { bodies, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }
})

it.live("submit --in goes by this machine's clock where the server knows no delays", () =>
  Effect.gen(function*() {
    const { bodies, url } = yield* older
    const from = Date.now()
    const ran = yield* Cli.run(["submit", "mail", "--in", "1h", "--key", "k", "--url", url])
    assert.deepStrictEqual([ran.code, ran.out], [0, "j1\n"], ran.err)
    const [first, second, ...more] = bodies
    assert.deepInclude(first, { type: "mail", delay_ms: 3_600_000 })
    assert.deepStrictEqual(more, [])
    const { run_at_ms: runAtMs, ...rest } = second ?? {}
    assert.deepStrictEqual({ ...rest, delay_ms: 3_600_000 }, first)
    assert.isAtLeast(Number(runAtMs), from + 3_600_000)
    assert.isAtMost(Number(runAtMs), Date.now() + 3_600_000)
  }).pipe(Effect.scoped))
