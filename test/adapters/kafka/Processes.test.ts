/** The built programs over a Kafka of their own: what they say, and workers that are killed. */
import { assert, it } from "@effect/vitest"
import { Clock, Effect, Redacted } from "effect"
import { freshDatabase } from "../../support/Database.ts"
import * as KafkaServer from "../../support/KafkaServer.ts"
import * as Processes from "../../support/Processes.ts"
import * as Servers from "../../support/Servers.ts"
import * as TestServers from "../../support/TestServers.ts"

const leaseMs = 1_000

TestServers.describeWithKafka("processes over Kafka", () => {
  it.live(
    "the jobs of a killed worker run elsewhere ahead of the backlog, and the programs say what carries them",
    () =>
      Effect.gen(function*() {
        const { brokers } = yield* KafkaServer.start()
        const env = {
          DEADMAN_DATABASE_URL: Redacted.value((yield* freshDatabase).url),
          DEADMAN_KAFKA_BROKERS: brokers,
          DEADMAN_LEASE_MS: String(leaseMs)
        }
        const { api, program: server } = yield* Servers.started(env)
        const { body: stats } = yield* api.send("GET", "/stats")
        assert.strictEqual(stats.profile, "scale")
        assert.include(JSON.stringify(stats.adapters), "Kafka")
        const start = (name: string) =>
          Processes.start("worker", { ...env, DEADMAN_WORKER_NAME: name, DEADMAN_WORKER_THREADS: "2" })
        const submit = (payload: number) =>
          Effect.map(api.send("POST", "/jobs", { type: "sleep", payload }), ({ body }) => String(body.id))
        const job = (id: string) => Effect.map(api.send("GET", `/jobs/${id}`), ({ body }) => body)
        const victim = yield* start("victim")
        const held = [yield* submit(60_000), yield* submit(60_000)]
        yield* Processes.eventually(
          "the victim runs them",
          Effect.map(Effect.forEach(held, job), (jobs) => jobs.every(({ state }) => state === "running"))
        )
        const backlog = yield* Effect.forEach(Array.from({ length: 40 }), () => submit(400), { concurrency: 8 })
        yield* start("heir")
        yield* Processes.eventually(
          "the heir works",
          Effect.map(Effect.forEach(backlog, job), (jobs) => jobs.some(({ state }) => state === "completed"))
        )
        const killedMs = yield* Clock.currentTimeMillis
        yield* victim.signal("SIGKILL")
        yield* Processes.eventually(
          "its jobs run elsewhere",
          Effect.map(Effect.forEach(held, job), (jobs) =>
            jobs.every(({ deliveries, state }) => Number(deliveries) === 2 && state === "running")),
          "60 seconds"
        )
        // A lease and 2 s, and a job of the backlog until a slot is free; twice, since the jobs follow each other.
        const again = yield* Effect.forEach(held, job)
        assert.isBelow(
          Math.max(...again.map((one) =>
            one.started_at_ms
          )) - killedMs,
          leaseMs + 2_000 + 800
        )
        assert.isTrue((yield* Effect.forEach(backlog, job)).some(({ state }) => state === "pending"))
        yield* Effect.forEach(held, (id) => api.send("DELETE", `/jobs/${id}`))
        yield* Processes.eventually(
          "all are done",
          Effect.map(Effect.forEach(backlog, job), (jobs) => jobs.every(({ state }) => state === "completed")),
          "60 seconds"
        )
        const runs = yield* Effect.forEach(backlog, job)
        assert.isTrue(runs.every(({ deliveries, lease_losses }) => Number(deliveries) <= 1 + Number(lease_losses)))
        yield* server.signal("SIGTERM")
        assert.strictEqual(yield* server.exit("6 seconds"), 0)
      }).pipe(Effect.scoped),
    180_000
  )
})
