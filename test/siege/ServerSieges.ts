/** Servers that are all sent the same at once, and that have nothing to do. */
import { Duration, Effect } from "effect"
import * as Processes from "../support/Processes.ts"
import * as Arena from "./Arena.ts"
import { law, quantile } from "./Findings.ts"

/** Identical POSTs with one Idempotency-Key over two servers at once: one job, no 5xx. */
export const keys = Effect.fn("ServerSieges.keys")(
  function*(options: { readonly rounds: number; readonly width: number }) {
    const arena = yield* Arena.make({ leaseMs: 5_000, threads: 1 })
    const servers = [yield* arena.server(), yield* arena.server()]
    let wrong = 0
    const statuses: Record<string, number> = {}
    const accepted: Array<string> = []
    for (let round = 0; round < options.rounds; round++) {
      const answers = yield* Effect.forEach(
        Array.from({ length: options.width }),
        (_, n) =>
          servers[n % 2]!.api.send("POST", "/jobs", { type: "noop", payload: { round } }, {
            "idempotency-key": `round-${round}`
          }),
        { concurrency: "unbounded" }
      )
      const ids = new Set(answers.map(({ body }) => body.id))
      for (const { status } of answers) {
        statuses[status] = (statuses[status] ?? 0) + 1
      }
      const created = answers.filter(({ status }) => status === 201).length
      if (ids.size !== 1 || created !== 1 || answers.some(({ status }) => status >= 500 || status === 0)) {
        wrong += 1
      }
      accepted.push(...(ids as Set<string>))
    }
    const [count] = yield* arena.rows<{ n: number }>(`SELECT count(*)::int AS n FROM deadman.job`)
    return {
      findings: [
        law("one job per key, created once, no 5xx", wrong === 0, `${wrong} of ${options.rounds} rounds wrong`),
        law("as many jobs as keys", count?.n === options.rounds, `${count?.n} jobs`)
      ],
      figures: { ...options, statuses }
    }
  }
)

/** Nothing to do: what it costs, and how soon a job starts. */
export const idle = Effect.fn("ServerSieges.idle")(
  function*(options: { readonly seconds: number; readonly jobs: number }) {
    const arena = yield* Arena.make({ leaseMs: 5_000, threads: 4 })
    const { api, program: server } = yield* arena.server()
    const worker = yield* arena.worker("idle")
    yield* Effect.sleep("5 seconds")
    const before = [yield* server.cpuMs, yield* worker.cpuMs]
    yield* Effect.sleep(Duration.seconds(options.seconds))
    const after = [yield* server.cpuMs, yield* worker.cpuMs]
    const perSecond = after.map((ms, n) => (ms - before[n]!) / options.seconds)
    const waits: Array<number> = []
    for (let n = 0; n < options.jobs; n++) {
      const answer = yield* api.send("POST", "/jobs", { type: "noop" })
      const job = () => Effect.map(api.send("GET", `/jobs/${answer.body.id}`), ({ body }) => body)
      yield* Processes.eventually(
        "it ran",
        Effect.map(job(), ({ state }) => state === "completed"),
        "10 seconds",
        "10 millis"
      )
      const done = yield* job()
      waits.push(done.started_at_ms - done.created_at_ms)
      yield* Effect.sleep("300 millis")
    }
    const p50 = quantile(waits, 0.5) ?? Infinity
    return {
      findings: [
        law(
          "an idle server and an idle worker use next to no CPU",
          perSecond.every((ms) => ms < 30),
          perSecond.join(" ")
        ),
        law("a job posted to an idle system starts within some milliseconds", p50 < 50, `p50 ${p50} ms`)
      ],
      figures: {
        ...options,
        cpu_ms_per_s: { server: perSecond[0], worker: perSecond[1] },
        pickup_ms: { p50, max: quantile(waits, 1) }
      }
    }
  }
)
