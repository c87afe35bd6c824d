/** The fault catalogue, chapter F, on the built programs over Postgres, Redis and Kafka. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import * as Topics from "../../deploy/services/Topics.ts"
import * as Processes from "../support/Processes.ts"
import * as TestServers from "../support/TestServers.ts"
import * as Scale from "./ScaleStage.ts"
import { sink, Stage } from "./Stage.ts"

const many = (count: number, body: object) => Array.from({ length: count }, () => body)

TestServers.describeWithKafka("fault catalogue, Kafka", () => {
  it.layer(Scale.layer(), { excludeTestServices: true, timeout: "2 minutes" })("over all three", (it) => {
    it.effect(
      "58: workers that start before any topic exists make them, and run what comes",
      () =>
        Effect.gen(function*() {
          const { kafka } = yield* Scale.Servers
          const { clean, ended, shared, submit, worker } = yield* Stage
          const early = yield* worker("early")
          const partitions = Topics.withAdmin(kafka.brokers, "look", (admin) =>
            admin.fetchTopicMetadata({ topics: ["jobs.ready", "jobs.dead"] }).then(({ topics }) =>
              topics.map(({ name, partitions }) =>
                `${name} ${partitions.length}`
              ).toSorted()
            ))
          yield* Processes.eventually(
            () =>
              `the topics are there; it said:\n${early.output().slice(-2_000)}`,
            Effect.map(partitions, (all) => all.join() === "jobs.dead 1,jobs.ready 6")
          )
          const { api } = yield* shared
          const ids = yield* submit(api, many(60, { type: "noop" }))
          yield* ended(ids)
          yield* clean(ids, 1)
          yield* Processes.eventually("all is committed", Scale.caughtUp)
          assert.isTrue(early.alive())
        }),
      180_000
    )

    it.effect(
      "49: what was answered by servers that are killed between commit and publish runs, once",
      () =>
        Effect.gen(function*() {
          const { clean, ended, server, worker } = yield* Stage
          yield* worker("a")
          let current = yield* server()
          const taken: Array<string> = []
          const posting = yield* Effect.forkChild(Effect.forEach(Array.from({ length: 8 }), () =>
            Effect.forever(Effect.gen(function*() {
              const { body, status } = yield* current.api.send("POST", "/jobs", { type: "side-effect", payload: null })
              if (status === 201) {
                taken.push(String(body.id))
              } else {
                yield* Effect.sleep("20 millis")
              }
            })), { concurrency: "unbounded" }))
          for (let n = 0; n < 4; n++) {
            yield* Effect.sleep("1 second")
            const next = yield* server()
            yield* current.program.signal("SIGKILL")
            current = next
          }
          yield* Processes.eventually(
            "enough is taken",
            Effect.sync(() =>
              taken.length > 200
            )
          )
          yield* Fiber.interrupt(posting)
          yield* ended(taken)
          yield* clean(taken, 1)
        }),
      180_000
    )

    it.effect(
      "50: what commits late is found all the same, though later ones are long done",
      () =>
        Effect.gen(function*() {
          const { clean, ended, jobs, rows, shared, submit, worker } = yield* Stage
          const { api } = yield* shared
          yield* worker("a")
          const [model] = yield* submit(api, [{ type: "noop", run_at_ms: Date.now() + 3_600_000 }])
          const late = Array.from({ length: 5 }, () => crypto.randomUUID())
          // Their time is when the statement begins, and nobody sees them before it ends; nobody publishes them either.
          const storing = yield* Effect.forkChild(rows(
            `WITH i AS (SELECT unnest(ARRAY[${late.map((id) => `'${id}'`).join()}]::uuid[]) AS id),
           b AS (INSERT INTO deadman.body (id, payload, created_at_ms, max_attempts)
                 SELECT i.id, b.payload, b.created_at_ms, b.max_attempts FROM i, deadman.body b WHERE b.id = '${model}'
                 RETURNING id),
           j AS (INSERT INTO deadman.job (id, run_at_ms, rank, route, bytes)
                 SELECT i.id, deadman.statement_ms(), deadman.statement_ms(), m.route, m.bytes
                 FROM i, deadman.job m WHERE m.id = '${model}' RETURNING route),
           t AS (INSERT INTO deadman.tally (route, state, n) SELECT route, 0, count(*) FROM j GROUP BY route)
           SELECT pg_sleep(3) FROM b LIMIT 1`
          ))
          const ids: Array<string> = []
          for (let n = 0; n < 10; n++) {
            ids.push(...(yield* submit(api, many(20, { type: "noop" }))))
            yield* Effect.sleep("200 millis")
          }
          yield* ended(ids)
          yield* Fiber.join(storing)
          const committedMs = Date.now()
          yield* ended(late)
          yield* clean([...ids, ...late], 1)
          assert.isBelow(Math.max(...(yield* jobs(late)).map(({ started }) => started)) - committedMs, 2_500)
          yield* api.send("DELETE", `/jobs/${model}`)
        }),
      180_000
    )

    it.effect("51: jobs that fail on some partitions start no others again", () =>
      Effect.gen(function*() {
        const { ended, jobs, shared, submit, worker } = yield* Stage
        const { api } = yield* shared
        const crew = [yield* worker("a", { DEADMAN_WORKER_THREADS: "12" })]
        const long = yield* submit(api, many(6, { type: "sleep", payload: 5_000 }))
        const failing = yield* submit(api, many(120, { type: "failK", payload: 2 }), {
          backoff: { kind: "fixed", delay_ms: 200 }
        })
        yield* ended([...long, ...failing])
        assert.isTrue((yield* jobs(long)).every(({ deliveries, state }) => state === 3 && deliveries === 1))
        assert.isTrue((yield* jobs(failing)).every(({ attempts, deliveries, state }) =>
          state === 3 && attempts === 2 && deliveries === 3
        ))
        for (const one of crew) {
          assert.notMatch(one.output(), /taking deliveries from Kafka failed/)
        }
      }), 180_000)

    it.effect(
      "52: a slow job in front of fast ones runs again after a kill, they do not, nor does anything at a start",
      () =>
        Effect.gen(function*() {
          const { ended, jobs, rows, running, shared, submit, worker } = yield* Stage
          const { api } = yield* shared
          const env = { DEADMAN_WORKER_THREADS: "10" }
          const first = yield* worker("a", env)
          const [slow] = yield* submit(api, [{ type: "sleep", payload: 60_000 }])
          const fast = yield* submit(api, many(9, { type: "noop" }))
          yield* running([slow!])
          yield* ended(fast)
          // Long enough for a commit.
          yield* Effect.sleep("1500 millis")
          yield* first.signal("SIGKILL")
          let heir = yield* worker("b", env)
          yield* Processes.eventually(
            "it runs again",
            Effect.map(jobs([slow!]), ([job]) => job?.deliveries === 2 && job.state === 1)
          )
          assert.isTrue((yield* jobs(fast)).every(({ deliveries }) => deliveries === 1))
          yield* api.send("DELETE", `/jobs/${slow}`)
          yield* Processes.eventually("all is committed", Scale.caughtUp)
          const delivered = Effect.map(
            rows<{ n: number }>(`SELECT sum(deliveries)::int AS n FROM deadman.job`),
            ([row]) => row?.n
          )
          const before = yield* delivered
          for (let n = 0; n < 4; n++) {
            yield* heir.signal("SIGTERM")
            assert.strictEqual(yield* heir.exit("10 seconds"), 0)
            heir = yield* worker(`again${n}`, env)
            yield* Processes.eventually(
              "it takes part",
              Effect.sync(() => heir.output().includes("Kafka"))
            )
            yield* Effect.sleep("1 second")
          }
          assert.strictEqual(yield* delivered, before)
        }),
      180_000
    )

    it.effect(
      "59: workers that join and are killed never run more than their slots, and leave no message behind",
      () =>
        Effect.gen(function*() {
          const { ended, jobs, shared, submit, worker } = yield* Stage
          const { api } = yield* shared
          const slow = yield* sink
          slow.mode = "slow"
          const env = { DEADMAN_WORKER_THREADS: "2" }
          let last = yield* worker("k0", env)
          const ids = yield* submit(api, many(50, { type: "http", payload: { url: slow.url } }))
          for (let n = 1; n <= 4; n++) {
            yield* Effect.sleep("2 seconds")
            const next = yield* worker(`k${n}`, env)
            yield* Effect.sleep("1 second")
            yield* last.signal("SIGKILL")
            last = next
          }
          yield* worker("k9", env)
          yield* ended(ids)
          assert.isTrue((yield* jobs(ids)).every(({ attempts, state }) => state === 3 && attempts === 0))
          // Each call takes a second, and a little more.
          const runs = slow.hits.map(({ at_ms, worker }) => ({ worker, started: at_ms, finished: at_ms + 950 }))
          for (const name of new Set(runs.map(({ worker }) => worker))) {
            assert.isAtMost(Scale.overlap(runs.filter(({ worker }) => worker === name)), 2, name)
          }
          yield* Processes.eventually("all is committed", Scale.caughtUp)
        }),
      180_000
    )

    it.effect(
      "61: however much is posted, a server keeps its connections to Kafka, and its memory",
      () =>
        Effect.gen(function*() {
          const { kafka } = yield* Scale.Servers
          const { ended, shared, submit, worker } = yield* Stage
          const { api, program } = yield* shared
          yield* worker("a", { DEADMAN_WORKER_THREADS: "40" })
          yield* ended(yield* submit(api, many(500, { type: "noop" })))
          const [open, held] = [
            yield* Scale.connections(program.pid, kafka.port),
            yield* Scale.residentBytes(program.pid)
          ]
          assert.isAbove(open, 0)
          yield* ended(yield* submit(api, many(3_000, { type: "noop" })))
          assert.strictEqual(yield* Scale.connections(program.pid, kafka.port), open)
          assert.isBelow((yield* Scale.residentBytes(program.pid)) - held, 100e6)
        }),
      180_000
    )

    it.effect(
      "53, 54: while Kafka is away a server that runs jobs is ready and says what is slower, and is well again",
      () =>
        Effect.gen(function*() {
          const { kafka } = yield* Scale.Servers
          const { ended, server, submit } = yield* Stage
          const one = yield* server({ DEADMAN_WORKER_THREADS: "4" })
          const ready = one.api.send("GET", "/ready")
          yield* Processes.eventually("it takes part", Effect.map(ready, ({ body }) => body.degraded.length === 0))
          yield* kafka.kill
          const ids = yield* submit(one.api, [...many(20, { type: "noop" }), { type: "always-fails", max_attempts: 1 }])
          yield* ended(ids)
          yield* Processes.eventually(
            "it says so",
            Effect.map(ready, ({ body }) => /hints/.test(body.degraded) && /dead letters/.test(body.degraded))
          )
          const { body, status } = yield* ready
          assert.deepStrictEqual([status, body.ready, body.reasons, body.services.kafka], [200, true, [], "away"])
          yield* kafka.start
          yield* Processes.eventually(
            () => `it is well again; it said\n${one.program.output().slice(-2_000)}`,
            Effect.map(ready, ({ body }) => body.degraded.length === 0 && body.services.kafka === "up")
          )
          yield* Processes.eventually(
            "the dead letter has gone out",
            Topics.withAdmin(kafka.brokers, "look", (admin) => admin.fetchTopicOffsets("jobs.dead")).pipe(
              Effect.map(([dead]) => Number(dead?.offset) > 0)
            )
          )
        }),
      180_000
    )
  })
})
