/** The fault catalogue, entry 74: a server without disk. It answers and reads, and refuses whatever would be written. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Processes from "../support/Processes.ts"
import { layer, sink, Stage } from "./Stage.ts"

/** Each that is written to: what fails first on a full disk is anybody's guess. */
const tables = ["body", "effect", "job", "journal", "key", "lease", "session", "tally"]

/** In the words and with the code of a server that cannot make a file longer. */
const noSpace = `CREATE OR REPLACE FUNCTION public.no_space() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    RAISE EXCEPTION 'could not extend file "base/5/16384": No space left on device' USING ERRCODE = 'disk_full';
  END $$`

it.layer(layer(), { excludeTestServices: true, timeout: "2 minutes" })("fault catalogue, a full disk", (it) => {
  it.effect(
    "74: without disk for three leases submits are 503, and nothing is lost, failed or charged",
    () =>
      Effect.gen(function*() {
        const { capacity, clean, ended, jobs, rows, running, shared, submit, worker } = yield* Stage
        const { api, program } = yield* shared
        const one = yield* worker("a", { DEADMAN_WORKER_THREADS: "8" })
        yield* rows(noSpace)
        // Some end while nothing can be written, some would go on for longer than that, and some become due.
        const held = yield* sink
        held.mode = "hang"
        const call = { type: "http", payload: { url: held.url } }
        const long = { type: "sleep", payload: 8_000 }
        const ids = yield* submit(api, [call, call, long, long], { max_attempts: 1 })
        yield* running(ids)
        const dueMs = Date.now() + 5_000
        const effects = yield* submit(api, [1, 2].map((n) => ({ type: "side-effect", payload: n, max_attempts: 1 })), {
          run_at_ms: dueMs
        })
        yield* Effect.forEach(tables, (table) =>
          rows(
            `CREATE TRIGGER no_space BEFORE INSERT OR UPDATE ON deadman.${table} FOR EACH ROW
             EXECUTE FUNCTION public.no_space()`
          ))
        held.mode = "answer"
        held.letGo()
        const refused = [
          yield* api.send("POST", "/jobs", { type: "noop" }),
          yield* api.send("POST", "/jobs", { type: "noop" }, { "idempotency-key": "full" }),
          yield* api.send("POST", "/jobs/batch", [{ type: "noop" }, { type: "noop" }]),
          yield* api.send("DELETE", `/jobs/${ids[0]}`)
        ]
        assert.deepStrictEqual(
          refused.map(({ body, headers, status }) => `${status} ${body.error.code} ${headers.get("retry-after")}`),
          refused.map(() => "503 unavailable 1")
        )
        assert.strictEqual((yield* api.send("GET", `/jobs/${ids[0]}`)).status, 200)
        assert.strictEqual((yield* api.send("GET", "/health")).status, 200)
        yield* Processes.eventually(
          "the leases are over",
          Effect.sync(() => one.output().includes("a lease could not be renewed for its whole length"))
        )
        for (const each of [program, one]) {
          yield* Processes.eventually(
            "it says why",
            Effect.sync(() => each.output().includes("No space left on device"))
          )
        }
        yield* Processes.eventually("the effects are due", Effect.sync(() => Date.now() > dueMs + 500))
        assert.isTrue((yield* jobs([...ids, ...effects])).every(({ state }) => state < 2))
        yield* Effect.forEach(tables, (table) => rows(`DROP TRIGGER no_space ON deadman.${table}`))
        yield* Processes.eventually(
          "it takes jobs again",
          Effect.map(
            api.send("POST", "/jobs", { type: "noop" }, { "idempotency-key": "full" }),
            ({ status }) => status === 201
          )
        )
        yield* ended([...ids, ...effects])
        yield* clean([...ids, ...effects])
        assert.lengthOf(yield* rows(`SELECT 1 FROM deadman.job WHERE losses_counted > 0`), 0)
        assert.isTrue(program.alive() && one.alive())
        yield* capacity(api, 8)
      }),
    180_000
  )
})
