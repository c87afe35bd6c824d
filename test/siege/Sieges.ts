/**
 * The sieges: each does something terrible for a while and then judges.
 *
 * Sizes are parameters: `node test/siege/run.ts <name>` runs the long form, the
 * test suite a short one.
 */
import { Duration, Effect, Fiber, Random, Redacted } from "effect"
import * as Backoff from "../../src/domain/Backoff.ts"
import * as CuttingProxy from "../support/CuttingProxy.ts"
import * as Processes from "../support/Processes.ts"
import * as Arena from "./Arena.ts"

export interface Report {
  readonly findings: ReadonlyArray<Arena.Finding>
  readonly figures: Readonly<Record<string, unknown>>
}

export const quantile = (values: ReadonlyArray<number>, q: number): number | null => {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))] ?? null
}

export const law = (name: string, held: boolean, detail: string): Arena.Finding => ({ law: name, held, detail })

/** Jobs that did not end as they should have: completed, with no attempt charged. */
export const allClean = (arena: Arena.Arena) =>
  Effect.map(
    arena.rows<{ id: string; state: number; attempts: number }>(
      `SELECT id::text, state, attempts FROM deadman.job WHERE state <> 3 OR attempts <> 0`
    ),
    (off) => law("every job completed, attempts untouched", off.length === 0, JSON.stringify(off.slice(0, 3)))
  )

interface Held {
  readonly id: string
  readonly epoch: number
}

const heldBy = (arena: Arena.Arena, worker: string) =>
  arena.rows<Held>(`SELECT id::text, epoch FROM deadman.job WHERE state = 1 AND worker LIKE '${worker}-%'`)

/** From the kill: until the lease was taken, and until the job ran again. */
interface Rescue {
  readonly lostMs: number
  readonly runsMs: number
  /** What a job that keeps losing its lease may have to wait besides. */
  readonly delayMs: number
}

/** Follows jobs until each was claimed again, or had ended after all, and notes how long that took. */
const watchRescue = Effect.fn("Sieges.watchRescue")(function*(
  arena: Arena.Arena,
  held: ReadonlyArray<Held>,
  sinceMs: number,
  into: Array<Rescue>
) {
  let open = new Map(held.map(({ epoch, id }) => [id, epoch]))
  while (open.size > 0) {
    yield* Effect.sleep("100 millis")
    const list = Array.from(open.keys(), (id) => `'${id}'`).join(",")
    const rows = yield* arena.rows<{ id: string; epoch: number; state: number; started: number }>(
      `SELECT id::text, epoch, state, coalesce(started_at_ms, 0)::float8 AS started FROM deadman.job WHERE id IN (${list})`
    )
    open = new Map(open)
    for (const row of rows) {
      if (row.epoch > (open.get(row.id) ?? 0)) {
        // A later claim than the next one only makes this an overestimate.
        const [lost] = yield* arena.rows<{ at: number }>(
          `SELECT (e ->> 'at_ms')::float8 AS at FROM deadman.journal g, jsonb_array_elements(g.events) e
           WHERE g.id = '${row.id}' AND e ->> 'kind' = 'lease_lost' AND (e ->> 'epoch')::int = ${open.get(row.id)}`
        )
        // Each epoch before was a loss, and the delay after the first one is within the promise.
        const delayMs = Backoff.lossCeilingMs(open.get(row.id) ?? 1) - Backoff.lossBaseMs
        into.push({ lostMs: (lost?.at ?? 0) - sinceMs, runsMs: row.started - sinceMs, delayMs })
        open.delete(row.id)
      } else if (row.state >= 3) {
        open.delete(row.id)
      }
    }
  }
})

const sleepers = (jobs: number, sleepMaxMs: number) =>
  Effect.forEach(Array.from({ length: jobs }), (_, n) =>
    n % 4 === 3
      ? Effect.succeed<object>({ type: "side-effect", payload: { n } })
      : Effect.map(Random.nextIntBetween(0, sleepMaxMs), (payload): object => ({ type: "sleep", payload })))

/** 1. Workers killed with SIGKILL in the middle of their jobs, and replaced. */
export const kills = Effect.fn("Sieges.kills")(function*(options: {
  readonly jobs: number
  readonly kills: number
  readonly every: Duration.Input
  readonly workers: number
  readonly threads: number
  readonly leaseMs: number
  readonly sleepMaxMs: number
}) {
  const arena = yield* Arena.make(options)
  const { api } = yield* arena.server()
  let born = 0
  const hire = Effect.suspend(() => {
    born += 1
    const name = `siege${born}`
    return Effect.map(arena.worker(name), (program) => ({ name, program }))
  })
  const crew = yield* Effect.forEach(Array.from({ length: options.workers }), () => hire)
  // At a pace that lets the kills span the run and leaves slots free: a rescue is promised only while there are some.
  const bodies = yield* sleepers(options.jobs, options.sleepMaxMs)
  const everyMs = 200
  const chunk = Math.ceil(options.jobs * everyMs / (options.kills * Duration.toMillis(options.every)))
  const submitting = yield* Effect.forkChild(Effect.gen(function*() {
    const ids: Array<string> = []
    for (let at = 0; at < bodies.length; at += chunk) {
      ids.push(...(yield* Arena.submitAll(api, bodies.slice(at, at + chunk))))
      yield* Effect.sleep(everyMs)
    }
    return ids
  }))
  const rescues: Array<Rescue> = []
  const watches: Array<Fiber.Fiber<void, unknown>> = []
  let victims = 0
  for (let n = 0; n < options.kills; n++) {
    yield* Effect.sleep(options.every)
    const index = yield* Random.nextIntBetween(0, crew.length)
    const victim = crew[index % crew.length]!
    const held = yield* heldBy(arena, victim.name)
    const at = yield* Arena.nowMs
    yield* victim.program.signal("SIGKILL")
    crew[index % crew.length] = yield* hire
    victims += held.length
    watches.push(yield* Effect.forkChild(watchRescue(arena, held, at, rescues)))
  }
  const accepted = yield* Fiber.join(submitting)
  yield* Arena.drained(arena, "4 minutes")
  yield* Fiber.joinAll(watches)
  const late = rescues.filter(({ delayMs, runsMs }) => runsMs > options.leaseMs + 2_000 + delayMs)
  const spread = (of: (rescue: Rescue) => number) => {
    const values = rescues.map(of)
    return { p50: quantile(values, 0.5), p99: quantile(values, 0.99), max: quantile(values, 1) }
  }
  const [shown] = yield* arena.rows<{ redelivered: number; losses: number }>(
    `SELECT count(*) FILTER (WHERE deliveries > 1)::int AS redelivered, sum(losses)::int AS losses FROM deadman.job`
  )
  return {
    findings: [
      ...(yield* Arena.judgeAll(arena, accepted)),
      yield* allClean(arena),
      law(
        "a killed worker's job runs elsewhere within lease + 2 s",
        late.length === 0,
        `${late.length} of ${rescues.length} late`
      ),
      law("jobs were held when their worker was killed", victims > 0 && rescues.length > 0, `${victims} held`)
    ],
    figures: {
      ...options,
      victims,
      ...shown,
      later_than_lease_and_2_s: rescues.filter(({ runsMs }) => runsMs > options.leaseMs + 2_000).length,
      lost_ms: spread(({ lostMs }) => lostMs),
      runs_ms: spread(({ runsMs }) => runsMs)
    }
  }
})

/** 2. A worker frozen in mid-job for three leases: its late outcome is refused and shown, and it lives on. */
export const zombie = Effect.fn("Sieges.zombie")(function*(options: { readonly leaseMs: number }) {
  const arena = yield* Arena.make({ ...options, threads: 2 })
  const { api } = yield* arena.server()
  const first = yield* arena.worker("zombie")
  const [id] = yield* Arena.submitAll(api, [{ type: "sleep", payload: options.leaseMs / 2 }])
  const job = () => Effect.map(api.send("GET", `/jobs/${id}`), ({ body }) => body)
  yield* Processes.eventually("the job runs", Effect.map(job(), ({ state }) => state === "running"))
  yield* first.signal("SIGSTOP")
  const second = yield* arena.worker("rescuer")
  const frozenAt = yield* Arena.nowMs
  yield* Processes.eventually("another finished it", Effect.map(job(), ({ state }) => state === "completed"))
  yield* Effect.sleep(Math.max(0, frozenAt + 3 * options.leaseMs - (yield* Arena.nowMs)))
  yield* first.signal("SIGCONT")
  const refused = yield* Processes.eventually(
    "the zombie's write is refused and shown",
    Effect.map(job(), ({ stale_writes }) => stale_writes > 0),
    "20 seconds"
  ).pipe(Effect.as(true), Effect.catch(() => Effect.succeed(false)))
  const after = yield* job()
  yield* second.signal("SIGTERM")
  const exit = yield* second.exit("20 seconds")
  const [next] = yield* Arena.submitAll(api, [{ type: "noop" }])
  const tookNew = yield* Processes.eventually(
    "the zombie takes new work",
    Effect.map(api.send("GET", `/jobs/${next}`), ({ body }) => body.state === "completed"),
    "20 seconds"
  ).pipe(Effect.as(true), Effect.catch(() => Effect.succeed(false)))
  return {
    findings: [
      ...(yield* Arena.judgeAll(arena, [String(id), String(next)])),
      law("the late outcome is refused and shown as a stale write", refused, JSON.stringify(after.events)),
      law(
        "the job keeps the rescuer's outcome",
        after.state === "completed" && after.epoch === 2,
        `epoch ${after.epoch}`
      ),
      law("losses and deliveries are shown", after.lease_losses === 1 && after.deliveries === 2, JSON.stringify(after)),
      law("the zombie lives on and takes new work", first.alive() && tookNew, ""),
      law("the rescuer exits 0", exit === 0, `exit ${exit}`)
    ],
    figures: { ...options, events: after.events }
  }
})

/** 3. Identical POSTs with one Idempotency-Key over two servers at once: one job, no 5xx. */
export const keys = Effect.fn("Sieges.keys")(function*(options: { readonly rounds: number; readonly width: number }) {
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
})

/** 4. SIGTERM with short and long jobs running. */
export const sigterm = Effect.fn("Sieges.sigterm")(function*(options: { readonly drainMs: number }) {
  const env = { DEADMAN_DRAIN_MS: String(options.drainMs) }
  const arena = yield* Arena.make({ leaseMs: 5_000, threads: 8, env })
  const { api, program: server } = yield* arena.server()
  const worker = yield* arena.worker("leaver")
  const long = { type: "sleep", payload: options.drainMs * 20 }
  const short = { type: "sleep", payload: Math.floor(options.drainMs / 2) }
  const ids = yield* Arena.submitAll(api, [short, short, short, long])
  yield* Processes.eventually("all run", Effect.map(Arena.states(arena), ({ running }) => running === 4))
  const at = yield* Arena.nowMs
  yield* worker.signal("SIGTERM")
  const exit = yield* worker.exit(Duration.millis(options.drainMs + 6_000))
  const took = (yield* Arena.nowMs) - at
  const jobs = yield* Effect.forEach(ids, (id) => Effect.map(api.send("GET", `/jobs/${id}`), ({ body }) => body))
  const last = jobs[3]
  yield* server.signal("SIGTERM")
  const serverExit = yield* server.exit("20 seconds")
  return {
    findings: [
      law("the worker exits 0 within its drain and a little", exit === 0, `exit ${exit} after ${took} ms`),
      law("short jobs finish", jobs.slice(0, 3).every(({ state }) => state === "completed"), ""),
      law(
        "the long one is handed back, not charged",
        last.state === "pending" && last.attempts === 0 && last.lease_losses === 0,
        JSON.stringify(last)
      ),
      law("the server exits 0", serverExit === 0, `exit ${serverExit}`)
    ],
    figures: { ...options, took_ms: took }
  }
})

/** 5. Postgres stopped, and frozen, under load, again and again. */
export const outage = Effect.fn("Sieges.outage")(function*(options: {
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

/** 6. Nothing to do: what it costs, and how soon a job starts. */
export const idle = Effect.fn("Sieges.idle")(function*(options: { readonly seconds: number; readonly jobs: number }) {
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
})

/** 7. Answers of the store are lost around claims and settles, with the worker frozen for three leases at times. */
export const lostAnswers = Effect.fn("Sieges.lostAnswers")(function*(options: {
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
