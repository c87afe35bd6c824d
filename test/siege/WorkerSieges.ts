/** Workers that are killed, frozen, and told to stop. */
import { Duration, Effect, Fiber, Random } from "effect"
import * as Backoff from "../../src/domain/Backoff.ts"
import * as Processes from "../support/Processes.ts"
import * as Arena from "./Arena.ts"
import { allClean, law, sleepers, spread } from "./Findings.ts"

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
const watchRescue = Effect.fn("WorkerSieges.watchRescue")(function*(
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

/** Workers killed with SIGKILL in the middle of their jobs, and replaced. */
export const kills = Effect.fn("WorkerSieges.kills")(function*(options: {
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
      lost_ms: spread(rescues.map(({ lostMs }) => lostMs)),
      runs_ms: spread(rescues.map(({ runsMs }) => runsMs))
    }
  }
})

/** A worker frozen in mid-job for three leases: its late outcome is refused and shown, and it lives on. */
export const zombie = Effect.fn("WorkerSieges.zombie")(function*(options: { readonly leaseMs: number }) {
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

/** SIGTERM with short and long jobs running. */
export const sigterm = Effect.fn("WorkerSieges.sigterm")(function*(options: { readonly drainMs: number }) {
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
