/** Postgres that is stopped and frozen, and whose answers get lost. */
import { Duration, Effect, Fiber, Random, Redacted } from "effect"
import * as CuttingProxy from "../support/CuttingProxy.ts"
import * as Processes from "../support/Processes.ts"
import * as Arena from "./Arena.ts"
import { allClean, law, sleepers } from "./Findings.ts"

/** Postgres stopped, and frozen, under load, again and again. */
export const outage = Effect.fn("PostgresSieges.outage")(function*(options: {
  readonly rounds: number
  readonly awayMs: number
  readonly leaseMs: number
}) {
  const arena = yield* Arena.make({ leaseMs: options.leaseMs, threads: 8 })
  const { api, program: server } = yield* arena.server()
  const crew = [yield* arena.worker("steady1"), yield* arena.worker("steady2")]
  const accepted: Array<string> = []
  const wholeMs = options.rounds * 2 * (options.awayMs + options.leaseMs * 3 + 4_000)
  // Longer than an outage, so that each of them meets it; it is handed back each time, and ends after the last.
  const [longJob] = yield* Arena.submitAll(api, [{ type: "sleep", payload: options.awayMs + 10_000 }])
  accepted.push(String(longJob))
  const slowest = { answered: 0, refusedMs: 0, wrong: 0 }
  const posting = yield* Effect.forkChild(Effect.forever(Effect.gen(function*() {
    const before = yield* Arena.nowMs
    const payload = yield* Random.nextIntBetween(0, 200)
    const answer = yield* api.send("POST", "/jobs", { type: "sleep", payload })
    const took = (yield* Arena.nowMs) - before
    if (answer.status === 201) {
      accepted.push(String(answer.body.id))
      slowest.answered = Math.max(slowest.answered, took)
    } else if (answer.status === 503) {
      slowest.refusedMs = Math.max(slowest.refusedMs, took)
    } else {
      slowest.wrong += 1
    }
    yield* Effect.sleep("25 millis")
  })))
  const backMs: Array<number> = []
  for (let round = 0; round < options.rounds; round++) {
    for (const how of ["stop", "freeze"] as const) {
      yield* Effect.sleep("2 seconds")
      yield* how === "stop" ? arena.postgres.stopImmediate : arena.postgres.freeze
      yield* Effect.sleep(options.awayMs)
      yield* how === "stop" ? arena.postgres.start : arena.postgres.thaw
      const at = yield* Arena.nowMs
      yield* Processes.eventually(
        () => `a job runs again after ${how}; server said ${server.output().slice(-2_000)}`,
        Effect.gen(function*() {
          const answer = yield* api.send("POST", "/jobs", { type: "noop" })
          if (answer.status !== 201) {
            return false
          }
          accepted.push(String(answer.body.id))
          yield* Processes.eventually(
            "it completes",
            Effect.map(api.send("GET", `/jobs/${answer.body.id}`), ({ body }) => body.state === "completed"),
            "30 seconds"
          )
          return true
        }),
        "60 seconds"
      )
      backMs.push((yield* Arena.nowMs) - at)
      yield* Effect.sleep(options.leaseMs * 3)
    }
  }
  yield* Fiber.interrupt(posting)
  yield* Arena.drained(arena, Duration.millis(wholeMs + 60_000))
  const lossy = yield* arena.rows<{ id: string; losses: number; losses_counted: number }>(
    // A claim that took effect after its worker had given it up was never renewed, and is nobody's: it lapses.
    `SELECT j.id::text, j.losses, j.losses_counted FROM deadman.job j JOIN deadman.journal g ON g.id = j.id
     WHERE j.losses_counted > 0 OR EXISTS (
       SELECT 1 FROM jsonb_array_elements(g.events) e
       WHERE e ->> 'kind' = 'lease_lost' AND (e ->> 'last_seen_ms')::bigint > (e ->> 'claimed_at_ms')::bigint)`
  )
  const charged = lossy.filter(({ losses_counted }) => losses_counted > 0)
  return {
    findings: [
      ...(yield* Arena.judgeAll(arena, accepted)),
      yield* allClean(arena),
      law(
        "503 within seconds, and nothing else",
        slowest.wrong === 0 && slowest.refusedMs < 8_000,
        JSON.stringify(slowest)
      ),
      law(
        "no live worker's job was reclaimed",
        lossy.length === 0,
        `${lossy.length}: ${JSON.stringify(lossy.slice(0, 3))}`
      ),
      law("no loss was charged", charged.length === 0, `${charged.length}`),
      law("every process lives", [server, ...crew].every((program) => program.alive()), "")
    ],
    figures: { ...options, jobs: accepted.length, slowest, back_ms: backMs }
  }
})

/** Answers of the store are lost around claims and settles, with the worker frozen for three leases at times. */
export const lostAnswers = Effect.fn("PostgresSieges.lostAnswers")(function*(options: {
  readonly losses: number
  readonly freezes: number
  readonly leaseMs: number
}) {
  const arena = yield* Arena.make({ leaseMs: options.leaseMs, threads: 8 })
  const { api } = yield* arena.server()
  const url = new URL(Redacted.value(arena.postgres.url))
  const proxy = yield* CuttingProxy.make({ port: Number(url.port) })
  url.port = String(proxy.port)
  const lossy = yield* arena.worker("lossy", { DEADMAN_DATABASE_URL: url.href })
  const sound = yield* arena.worker("sound")
  const accepted: Array<string> = []
  const posting = yield* Effect.forkChild(Effect.forever(Effect.gen(function*() {
    const bodies = yield* sleepers(8, 60)
    accepted.push(...(yield* Arena.submitAll(api, bodies, 8)))
    yield* Effect.sleep("40 millis")
  })))
  const ranBy = (worker: string) =>
    Effect.map(
      arena.rows<{ n: number }>(`SELECT count(*)::int AS n FROM deadman.job WHERE worker LIKE '${worker}-%'`),
      ([row]) => row?.n ?? 0
    )
  // Answers are lost of a worker at work, not of one that starts.
  yield* Processes.eventually("the lossy worker works", Effect.map(ranBy("lossy"), (n) => n > 10), "60 seconds")
  const freezeEvery = Math.max(1, Math.floor(options.losses / Math.max(1, options.freezes)))
  for (let n = 1; n <= options.losses; n++) {
    const before = yield* ranBy("lossy")
    yield* proxy.loseAnswers(1)
    yield* Effect.sleep(Duration.millis(yield* Random.nextIntBetween(20, 120)))
    // It must be at work again before the next one is lost, or all that is hurt is its reconnecting.
    yield* Effect.ignore(
      Processes.eventually("it works again", Effect.map(ranBy("lossy"), (n) => n > before), "3 seconds")
    )
    if (n % freezeEvery === 0) {
      yield* lossy.signal("SIGSTOP")
      yield* Effect.sleep(options.leaseMs * 3)
      yield* lossy.signal("SIGCONT")
    }
  }
  yield* Processes.eventually("all are lost", Effect.map(proxy.lost, (lost) => lost >= options.losses), "60 seconds")
  yield* Fiber.interrupt(posting)
  yield* Arena.drained(arena, "60 seconds")
  const lost = yield* proxy.lost
  const ran = yield* ranBy("lossy")
  return {
    findings: [
      ...(yield* Arena.judgeAll(arena, accepted)),
      yield* allClean(arena),
      law("answers were lost", lost >= options.losses, `${lost}`),
      law("of a worker that went on working", ran > options.losses, `${ran} jobs were last run by it`),
      law("both workers live", lossy.alive() && sound.alive(), lossy.output().slice(-500))
    ],
    figures: { ...options, lost, jobs: accepted.length }
  }
})
