/** The sieges of Redis and Kafka: both are hurt in turn while jobs flow, and nothing but time may be lost. */
import { type Duration, Effect, Fiber, Random } from "effect"
import * as Processes from "../support/Processes.ts"
import * as Arena from "./Arena.ts"
import { allClean, law, quantile, spread } from "./Findings.ts"

const only = <A>(what: string, service: A | null): Effect.Effect<A> =>
  service === null ? Effect.die(new Error(`this siege needs ${what}: run it with --scale`)) : Effect.succeed(service)

/** Posts jobs at a steady pace until it is interrupted; a third of them due some seconds later. */
const flow = (arena: Arena.Arena, server: Arena.Server, accepted: Array<string>) =>
  Effect.forkChild(Effect.forever(Effect.gen(function*() {
    const [first] = yield* arena.rows<{ now: number }>(`SELECT deadman.now_ms()::float8 AS now`)
    const payload = yield* Random.nextIntBetween(0, 1_000)
    const delay = yield* Random.nextIntBetween(500, 4_000)
    const bodies = [
      { type: "side-effect", payload: null },
      { type: "sleep", payload },
      { type: "noop", run_at_ms: (first?.now ?? 0) + delay, tags: ["delayed"] }
    ]
    accepted.push(...(yield* Arena.submitAll(server.api, bodies, 3)))
    yield* Effect.sleep("100 millis")
  })))

const lossless = (arena: Arena.Arena) =>
  Effect.map(
    arena.rows<{ id: string; losses: number }>(`SELECT id::text, losses FROM deadman.job WHERE losses <> 0`),
    (lossy) => law("no live worker's job was reclaimed", lossy.length === 0, JSON.stringify(lossy.slice(0, 3)))
  )

/** How late delayed jobs started, by the database's clock. */
const lateness = (arena: Arena.Arena) =>
  Effect.map(
    arena.rows<{ late: number }>(
      `SELECT (j.started_at_ms - j.run_at_ms)::float8 AS late FROM deadman.job j JOIN deadman.body b ON b.id = j.id
       WHERE 'delayed' = ANY (b.tags) AND j.started_at_ms IS NOT NULL`
    ),
    (rows) => rows.map(({ late }) => late)
  )

/** Redis flushed again and again, stopped, frozen and made read-only. */
export const redis = Effect.fn("ScaleSieges.redis")(function*(options: {
  readonly leaseMs: number
  readonly flushes: number
  readonly stopsMs: ReadonlyArray<number>
  readonly freezeMs: number
  readonly readOnlyMs: number
}) {
  const arena = yield* Arena.make({ leaseMs: options.leaseMs, threads: 16 })
  const service = yield* only("Redis", arena.redis)
  const server = yield* arena.server()
  const crew = [yield* arena.worker("calm1"), yield* arena.worker("calm2")]
  const accepted: Array<string> = []
  const wholeMs = options.flushes * 2_000 + options.stopsMs.reduce((a, b) => a + b, 0) + options.freezeMs +
    options.readOnlyMs
  accepted.push(...(yield* Arena.submitAll(server.api, [1, 2, 3].map(() => ({ type: "sleep", payload: wholeMs })))))
  const posting = yield* flow(arena, server, accepted)
  for (let n = 0; n < options.flushes; n++) {
    yield* service.flushAll
    yield* Effect.sleep("2 seconds")
  }
  for (const ms of options.stopsMs) {
    yield* service.stop
    yield* Effect.sleep(ms)
    yield* service.start
    yield* Effect.sleep(options.leaseMs * 2)
  }
  yield* service.freeze
  yield* Effect.sleep(options.freezeMs)
  yield* service.thaw
  yield* Effect.sleep(options.leaseMs * 2)
  yield* service.call("REPLICAOF", "127.0.0.1", "1")
  yield* Effect.sleep(options.readOnlyMs)
  yield* service.call("REPLICAOF", "NO", "ONE")
  yield* Effect.sleep(options.leaseMs * 2)
  yield* Fiber.interrupt(posting)
  yield* Arena.drained(arena, "4 minutes")
  const late = yield* lateness(arena)
  const latest = quantile(late, 1) ?? 0
  const ready = yield* server.api.send("GET", "/ready")
  return {
    findings: [
      ...(yield* Arena.judgeAll(arena, accepted)),
      yield* allClean(arena),
      yield* lossless(arena),
      // The scan of the store comes every two seconds, and a claim once a second.
      law("delayed jobs start within a poll period", latest <= 3_500, `latest ${latest} ms`),
      law(
        "all is well again without a restart",
        ready.status === 200 && ready.body.services.redis === "up" &&
          [server.program, ...crew].every((program) => program.alive()),
        JSON.stringify(ready.body)
      )
    ],
    figures: {
      ...options,
      jobs: accepted.length,
      late_ms: spread(late)
    }
  }
})

/** The broker stopped again and again, its data wiped, its offsets moved. */
export const kafka = Effect.fn("ScaleSieges.kafka")(function*(options: {
  readonly leaseMs: number
  readonly stopsMs: ReadonlyArray<number>
  /** How many jobs wait while the topic is wiped, and while its offsets are moved. */
  readonly waiting: { readonly wiped: number; readonly moved: number }
}) {
  const arena = yield* Arena.make({ leaseMs: options.leaseMs, threads: 16 })
  const service = yield* only("Kafka", arena.kafka)
  const server = yield* arena.server()
  const hire = (name: string) => arena.worker(name)
  const crew = [yield* hire("steady1"), yield* hire("steady2")]
  const accepted: Array<string> = []
  const posting = yield* flow(arena, server, accepted)
  yield* Effect.sleep("5 seconds")
  const again = "taking deliveries from Kafka works again"
  const times = (program: Processes.Program) => program.output().split(again).length
  const backMs: Array<number> = []
  for (const [index, ms] of options.stopsMs.entries()) {
    const before = crew.map(times)
    yield* index % 2 === 0 ? service.stop : service.kill
    yield* Effect.sleep(ms)
    yield* service.start
    const at = yield* Arena.nowMs
    yield* Processes.eventually(
      () => `both workers take deliveries again; one said\n${crew[0]!.output().slice(-1_500)}`,
      Effect.sync(() => crew.every((program, n) => times(program) > before[n]!)),
      "90 seconds",
      "100 millis"
    )
    backMs.push((yield* Arena.nowMs) - at)
    yield* Effect.sleep("3 seconds")
  }
  yield* Fiber.interrupt(posting)
  yield* Arena.drained(arena, "2 minutes")

  // Nobody takes anything while jobs wait and what the topic knows is changed under them.
  const rest = Effect.forEach(crew, (program) => Effect.andThen(program.signal("SIGTERM"), program.exit("30 seconds")))
  yield* rest
  const wait = Effect.fnUntraced(function*(waiting: number) {
    for (let at = 0; at < waiting; at += 1_000) {
      const some = Array.from({ length: Math.min(1_000, waiting - at) }, () => ({ type: "noop" }))
      const answer = yield* server.api.send("POST", "/jobs/batch", some)
      accepted.push(...answer.body.jobs.map(({ id }: { id: string }) => id))
    }
  })
  const recover = Effect.fnUntraced(function*(
    waiting: number,
    change: Effect.Effect<void, unknown>,
    within: Duration.Input
  ) {
    yield* wait(waiting)
    yield* change
    const at = yield* Arena.nowMs
    crew.splice(0, 2, yield* hire("next1"), yield* hire("next2"))
    yield* Arena.drained(arena, within)
    const ms = (yield* Arena.nowMs) - at
    yield* rest
    return ms
  })
  const wipedMs = yield* recover(options.waiting.wiped, service.wipe, "15 minutes")
  const moved = (to: string) =>
    recover(options.waiting.moved, service.setOffsets("deadman", "jobs.ready", to), "10 minutes")
  const toZeroMs = yield* moved("0")
  const beyondMs = yield* moved("1000000000")
  const twice = yield* arena.rows<{ id: string }>(
    `SELECT id::text FROM deadman.job WHERE deliveries <> 1 AND losses = 0`
  )
  const slow = backMs.filter((ms) => ms > 10_000)
  return {
    findings: [
      ...(yield* Arena.judgeAll(arena, accepted)),
      yield* allClean(arena),
      yield* lossless(arena),
      law("every job ran once", twice.length === 0, JSON.stringify(twice.slice(0, 3))),
      law("deliveries resume within 10 s of the broker's return", slow.length === 0, backMs.join(" ")),
      law("the server lives", server.program.alive(), "")
    ],
    figures: { ...options, jobs: accepted.length, back_ms: backMs, drained_ms: { wipedMs, toZeroMs, beyondMs } }
  }
})
