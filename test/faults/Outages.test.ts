/** The fault catalogue, entries 69 and 76: crashes under load, and a first boot of everything at once. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import * as Processes from "../support/Processes.ts"
import { layer, Stage } from "./Stage.ts"

it.layer(layer(), { excludeTestServices: true, timeout: "2 minutes" })("fault catalogue, outages", (it) => {
  it.effect(
    "76: everything at once on an empty database comes up, and nobody migrates twice",
    () =>
      Effect.gen(function*() {
        const { ready, rows, starting, url, worker } = yield* Stage
        yield* rows(`CREATE DATABASE first_boot`)
        const empty = new URL(url)
        empty.pathname = "/first_boot"
        const env = { DEADMAN_DATABASE_URL: empty.href }
        const [servers, workers] = yield* Effect.all([
          Effect.all([starting(env), starting(env)], { concurrency: "unbounded" }),
          Effect.all([worker("a", env), worker("b", env), worker("c", env)], { concurrency: "unbounded" })
        ], { concurrency: "unbounded" })
        yield* Effect.forEach(servers, (one) => ready(one))
        const { api } = servers[0]!
        const { body } = yield* api.send("POST", "/jobs", { type: "noop" })
        yield* Processes.eventually(
          "it ran",
          Effect.map(api.send("GET", `/jobs/${body.id}`), (found) => found.body.state === "completed")
        )
        for (const one of [...servers.map(({ program }) => program), ...workers]) {
          assert.isTrue(one.alive(), one.output())
          assert.notMatch(one.output(), /duplicate|deadlock|already exists/)
        }
      }),
    180_000
  )

  it.effect(
    "69: after crashes of Postgres under load nothing is lost and every slot is there",
    () =>
      Effect.gen(function*() {
        const { capacity, clean, ended, postgres, rows, shared, worker } = yield* Stage
        const { api, program } = yield* shared
        const crew = [yield* worker("a"), yield* worker("b")]
        const taken: Array<string> = []
        const statuses = new Set<number>()
        const posting = yield* Effect.forkChild(Effect.forever(Effect.gen(function*() {
          const { body, status } = yield* api.send("POST", "/jobs", { type: "side-effect", payload: taken.length })
          statuses.add(status)
          if (status === 201) {
            taken.push(String(body.id))
          }
          yield* Effect.sleep("20 millis")
        })))
        for (const pause of ["1 second", "3 seconds", "500 millis"] as const) {
          yield* postgres.stopImmediate
          yield* Effect.sleep(pause)
          yield* postgres.start
          yield* Effect.sleep("2 seconds")
        }
        yield* Fiber.interrupt(posting)
        statuses.delete(201)
        statuses.delete(503)
        assert.deepStrictEqual(Array.from(statuses), [])
        yield* Processes.eventually("the judge is back", Effect.map(rows(`SELECT 1`), () => true))
        yield* ended(taken)
        yield* clean(taken)
        // A submit whose answer was lost may have been stored all the same, so only the answered ones are counted.
        const fired = new Set(
          (yield* rows<{ id: string }>(`SELECT job::text AS id FROM deadman.effect`)).map(({ id }) => id)
        )
        assert.deepStrictEqual(taken.filter((id) => !fired.has(id)), [])
        assert.isTrue([program, ...crew].every((one) => one.alive()))
        yield* capacity(api, 8)
      }),
    180_000
  )

  it.effect(
    "69: a restart of Postgres while jobs are being taken back costs nothing, and each is taken back once",
    () =>
      Effect.gen(function*() {
        const { clean, ended, jobs, manned, postgres, rows, running, shared, submit, worker } = yield* Stage
        const { api, program } = yield* shared
        const first = yield* worker("first", { DEADMAN_WORKER_THREADS: "12" })
        yield* manned
        const ids: Array<string> = []
        for (let lease = 0; lease < 4; lease++) {
          const some = yield* submit(api, Array.from({ length: 3 }, () => ({ type: "lingers", payload: 60_000 })))
          yield* running(some)
          ids.push(...some)
        }
        yield* rows(
          `CREATE FUNCTION public.dawdle() RETURNS trigger LANGUAGE plpgsql AS $$
           BEGIN PERFORM pg_sleep(0.4); RETURN OLD; END $$`
        )
        yield* rows(
          `CREATE TRIGGER dawdle BEFORE DELETE ON deadman.lease FOR EACH ROW EXECUTE FUNCTION public.dawdle()`
        )
        yield* first.signal("SIGKILL")
        yield* Processes.eventually(
          "they are being taken back",
          Effect.map(
            rows(`SELECT 1 FROM pg_stat_activity WHERE application_name = 'deadman-server' AND wait_event = 'PgSleep'`),
            ({ length }) => length > 0
          ),
          "30 seconds",
          "5 millis"
        )
        yield* postgres.restart
        yield* Processes.eventually(
          "the judge is back",
          Effect.map(rows(`DROP TRIGGER dawdle ON deadman.lease`), () => true)
        )
        yield* worker("heir")
        yield* ended(ids)
        yield* clean(ids, 2)
        assert.isTrue((yield* jobs(ids)).every(({ losses }) => losses === 1))
        assert.lengthOf(yield* rows(`SELECT 1 FROM deadman.job WHERE losses_counted > 0`), 0)
        assert.isTrue(program.alive())
      }),
    180_000
  )
})
