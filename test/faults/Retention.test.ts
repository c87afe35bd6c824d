/** The fault catalogue, entries 90, 94 and 98: what is gone after its time, and what logs may hold. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"

import * as Processes from "../support/Processes.ts"
import { bulk, layer, Stage } from "./Stage.ts"

const env = {
  DEADMAN_RETAIN_COMPLETED_MS: "60000",
  DEADMAN_RETAIN_DEAD_MS: "60000",
  DEADMAN_KEY_TTL_MS: "1000"
}

it.layer(layer(), { excludeTestServices: true, timeout: "2 minutes" })("fault catalogue, retention and logs", (it) => {
  it.effect(
    "90, 94: finished jobs, keys and cancelled ones are gone after their time, and what waits is not",
    () =>
      Effect.gen(function*() {
        const { ended, rows, server, submit, worker } = yield* Stage
        const first = yield* server(env)
        yield* worker("a", { ...env, DEADMAN_WORKER_THREADS: "16" })
        const keyed = Array.from({ length: 5_000 }, (_, n) => ({ type: "noop", idempotency_key: `flood-${n}` }))
        const made = yield* bulk(first.api, keyed)
        const hourMs = Date.now() + 3_600_000
        const kept = yield* submit(first.api, [{ type: "noop", run_at_ms: hourMs }])
        const later = yield* submit(
          first.api,
          Array.from({ length: 200 }, (_, n) => ({
            type: "noop",
            run_at_ms: hourMs + n,
            idempotency_key: `later-${n}`
          }))
        )
        yield* Effect.forEach(later, (id) => first.api.send("DELETE", `/jobs/${id}`), { concurrency: 16 })
        yield* ended(made)
        // A minute is the least that they are kept.
        yield* rows(`UPDATE deadman.job SET finished_at_ms = finished_at_ms - 60000 WHERE state IN (3, 4)`)
        // The one that prunes dies in the middle of it.
        yield* first.program.signal("SIGKILL")
        yield* server(env)
        yield* Processes.eventually(
          "nothing of them is left",
          Effect.map(
            rows<{ n: number }>(`SELECT (SELECT count(*) FROM deadman.key)::int
            + (SELECT count(*) FROM deadman.job WHERE state IN (3, 4))::int AS n`),
            ([left]) => left?.n === 0
          ),
          "90 seconds",
          "500 millis"
        )
        const [left] = yield* rows<{ n: number }>(`SELECT count(*)::int AS n FROM deadman.job WHERE id = '${kept[0]}'`)
        assert.strictEqual(left?.n, 1)
        const [bodies] = yield* rows<{ n: number }>(
          `SELECT count(*)::int AS n FROM deadman.body b WHERE NOT EXISTS (SELECT 1 FROM deadman.job j WHERE j.id = b.id)`
        )
        assert.strictEqual(bodies?.n, 0)
      }),
    180_000
  )

  it.effect("98: payloads are in no log and in no refusal, whatever becomes of them", () =>
    Effect.gen(function*() {
      const { ended, postgres, server, submit, url, worker } = yield* Stage
      const logs = { DEADMAN_LOG_LEVEL: "debug" }
      const { api, program } = yield* server(logs)
      const one = yield* worker("a", logs)
      const secret = "sk_live_hunter2"
      yield* ended(
        yield* submit(api, [
          { type: "returns", payload: { secret } },
          { type: "rejects", payload: { secret }, max_attempts: 1 },
          { type: "sleep", payload: secret }
        ])
      )
      const answers = [
        yield* api.send("POST", "/jobs", { type: "noop", payload: secret, max_attempts: -1 }),
        yield* api.send("POST", "/jobs", { type: "noop", payload: `${secret}\u0000` }),
        yield* api.send("POST", "/jobs", `{"type":"noop","payload":"${secret}`),
        yield* api.send("POST", "/jobs", { type: "noop", payload: secret.padEnd(2_000_000, "x") })
      ]
      yield* postgres.stopImmediate
      answers.push(yield* api.send("POST", "/jobs", { type: "noop", payload: secret }))
      yield* postgres.start
      assert.deepStrictEqual(answers.map(({ status }) => status), [400, 400, 400, 413, 503])
      const password = new URL(url).password
      const replies = answers.map(({ body }) => JSON.stringify(body))
      for (const said of [...replies, program.output(), one.output()]) {
        assert.notInclude(said, secret)
        assert.notInclude(said, password)
        assert.notMatch(said, /INSERT INTO|SELECT /)
      }
      // A worker's log has the stacks of its handlers.
      for (const said of [...replies, program.output()]) {
        assert.notMatch(said, /\bat .*\.js:\d/)
      }
    }), 180_000)
})
