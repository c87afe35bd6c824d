/**
 * The run itself: servers and workers start, jobs are submitted at a pace, faults happen as planned, the survivors drain.
 *
 * Nothing here judges. What was done is written down with its times, and what was answered with its ids.
 */
import { Clock, Deferred, Effect, Fiber, type Scope } from "effect"
import * as Crew from "./Crew.ts"
import type { Deed } from "./Evidence.ts"
import { type Child, type Counts, Ground, GroundFailed, type Submitted, Witness } from "./Ground.ts"
import { type Fault, jobs as plannedJobs, keyOf, type Plan, type PlannedJob } from "./Plan.ts"

export interface Status {
  readonly phase: "start" | "siege" | "drain"
  readonly total: number
  readonly submitted: number
  readonly running: number
  readonly done: number
  readonly kills: number
  readonly faults: number
  /** Until the run ends, if it goes as planned; then until it gives up. */
  readonly leftMs: number
}

export interface Outcome {
  readonly startMs: number
  readonly endMs: number
  readonly drained: boolean
  readonly accepted: ReadonlyMap<number, string>
  readonly deeds: ReadonlyArray<Deed>
  /** Processes that ended although nobody had ended them. */
  readonly deserters: ReadonlyArray<string>
  /** The highest load for each core that was seen. */
  readonly loadMax: number
}

const startLimit = "90 seconds"
const tick = "100 millis"
const look = "1 second"
/** A batch is all or nothing, so it stays small. */
const batchMax = 200
/** Failures of `flaky` are over soon, and never for good. */
const attemptsMax = 200
const backoff = { kind: "fixed", delay_ms: 400 } as const
/** How many of its connections a fault of the network hits. */
const networkShare = 0.6
/** What was frozen has so long to say what it has to say before anybody hurts it again. */
const restMs = 4_000
const lateMs = 3_000

const until = <E, R>(what: string, check: Effect.Effect<boolean, E, R>) =>
  Effect.gen(function*() {
    while (!(yield* Effect.catch(check, () => Effect.succeed(false)))) {
      yield* Effect.sleep(tick)
    }
  }).pipe(
    Effect.timeoutOrElse({
      duration: startLimit,
      orElse: () => Effect.fail(new GroundFailed({ message: `${what} is not there after ${startLimit}` }))
    })
  )

const asSubmitted = ({ order }: Plan, job: PlannedJob): Submitted => ({
  type: job.type,
  payload: job.payload,
  idempotency_key: keyOf(order, job.n),
  max_attempts: attemptsMax,
  backoff
})

/** Submits what is due, again and again until it is answered: the keys make that safe. */
const submitting = Effect.fnUntraced(function*(plan: Plan, startMs: number, accepted: Map<number, string>) {
  const ground = yield* Ground
  const planned = plannedJobs(plan)
  let next = planned.next()
  let server = 0
  while (next.done !== true) {
    const now = (yield* Clock.currentTimeMillis) - startMs
    let open: Array<PlannedJob> = []
    while (next.done !== true && next.value.atMs <= now && open.length < batchMax) {
      open.push(next.value)
      next = planned.next()
    }
    while (open.length > 0) {
      server = (server + 1) % ground.servers
      const ids = yield* ground.submit(server, open.map((job) => asSubmitted(plan, job)))
      open = open.filter((job, index) => {
        const id = ids[index]
        if (id === undefined || id === null) {
          return true
        }
        accepted.set(job.n, id)
        return false
      })
      if (open.length > 0) {
        yield* Effect.sleep("200 millis")
      }
    }
    yield* Effect.sleep(tick)
  }
})

interface Stage {
  readonly plan: Plan
  readonly crew: Crew.Crew
  readonly servers: Array<Child>
  readonly hireServer: (n: number) => Effect.Effect<Child, GroundFailed>
}

type Hurt = { readonly worker?: Child; readonly skipped?: string; readonly atMs?: number }

const hurt = Effect.fnUntraced(function*(
  stage: Stage,
  fault: Fault
): Effect.fn.Return<Hurt, GroundFailed, Ground> {
  const { crew, servers } = stage
  const ground = yield* Ground
  const nobody = { skipped: "nobody could be hurt" }
  const [name, what] = fault.kind.split("-")
  switch (fault.kind) {
    case "kill": {
      const place = yield* crew.choose(fault.draw)
      if (place === null) return nobody
      const worker = place.child
      const atMs = yield* Clock.currentTimeMillis
      yield* worker.signal("SIGKILL")
      yield* crew.replace(place)
      return { worker, atMs }
    }
    case "freeze": {
      const place = yield* crew.choose(fault.draw)
      if (place === null) return nobody
      const worker = place.child
      const atMs = yield* Clock.currentTimeMillis
      yield* worker.signal("SIGSTOP")
      yield* Effect.sleep(fault.lengthMs)
      yield* worker.signal("SIGCONT")
      yield* crew.rest(place, restMs)
      return { worker, atMs }
    }
    case "clock": {
      const place = yield* crew.choose(fault.draw)
      if (place === null) return nobody
      yield* place.child.signal("SIGUSR2")
      yield* crew.rest(place, 0)
      return { worker: place.child }
    }
    case "server-kill": {
      const index = Math.floor(fault.draw * servers.length)
      const server = servers[index]
      if (server === undefined) return nobody
      yield* server.signal("SIGKILL")
      yield* server.exited
      yield* Effect.sleep(fault.lengthMs)
      servers[index] = yield* stage.hireServer(index)
      yield* until("a restarted server", ground.answers(index))
      return { worker: server }
    }
    case "cut":
      return (yield* ground.network.cut(networkShare)) > 0 ? {} : { skipped: "there was no connection" }
    case "half-open": {
      if ((yield* ground.network.halfOpen(networkShare)) === 0) return { skipped: "there was no connection" }
      yield* Effect.sleep(fault.lengthMs)
      yield* ground.network.mend
      return {}
    }
    default: {
      const service = ground.services[name as "postgres" | "redis" | "kafka"]
      if (service === undefined) return { skipped: "there is no such service" }
      if (what === "freeze") {
        yield* service.freeze
        yield* Effect.sleep(fault.lengthMs)
        yield* service.thaw
      } else if (what === "restart") {
        yield* service.crash
        yield* Effect.sleep(fault.lengthMs)
        yield* service.start
      } else {
        yield* service.lose
      }
      return {}
    }
  }
})

const perform = Effect.fnUntraced(function*(stage: Stage, fault: Fault, deeds: Array<Deed>) {
  const startMs = yield* Clock.currentTimeMillis
  const { atMs, skipped, worker } = yield* hurt(stage, fault)
  deeds.push({
    n: fault.n,
    kind: fault.kind,
    atMs: atMs ?? startMs,
    endMs: yield* Clock.currentTimeMillis,
    worker: worker?.name ?? null,
    pid: worker?.pid ?? null,
    skipped: skipped ?? null
  })
})

const faulting = Effect.fnUntraced(function*(stage: Stage, startMs: number, deeds: Array<Deed>) {
  const under: Array<Fiber.Fiber<void, GroundFailed>> = []
  const free = new Map<string, Deferred.Deferred<void>>()
  for (const fault of stage.plan.faults) {
    yield* Effect.sleep(Math.max(0, startMs + fault.atMs - (yield* Clock.currentTimeMillis)))
    const target = /^(postgres|redis|kafka|server)-/.exec(fault.kind)?.[1]
    const before = target === undefined ? undefined : free.get(target)
    const done = yield* Deferred.make<void>()
    if (target !== undefined) {
      free.set(target, done)
    }
    under.push(
      yield* Effect.forkChild(
        Effect.andThen(before === undefined ? Effect.void : Deferred.await(before), perform(stage, fault, deeds)).pipe(
          Effect.ensuring(Deferred.succeed(done, undefined))
        )
      )
    )
  }
  yield* Fiber.joinAll(under)
})

const end = (children: ReadonlyArray<Child>) =>
  Effect.forEach(children, (child) =>
    Effect.andThen(child.signal("SIGTERM"), child.exited).pipe(
      Effect.timeoutOrElse({ duration: "20 seconds", orElse: () => child.signal("SIGKILL") })
    ), { concurrency: "unbounded", discard: true })

export const run = Effect.fnUntraced(function*(
  plan: Plan,
  show: (status: Status) => Effect.Effect<void>
): Effect.fn.Return<Outcome, GroundFailed, Ground | Witness | Scope.Scope> {
  const { order } = plan
  const ground = yield* Ground
  const witness = yield* Witness
  const status: Status = {
    phase: "start",
    total: order.jobs,
    submitted: 0,
    running: 0,
    done: 0,
    kills: 0,
    faults: 0,
    leftMs: plan.spanMs
  }
  yield* show(status)

  const hireServer = (n: number) => ground.hire("server", n)
  const servers: Array<Child> = []
  for (let n = 0; n < ground.servers; n++) {
    servers.push(yield* hireServer(n))
    // One after the other: the first brings the schema.
    yield* until("a server", ground.answers(n))
  }
  yield* witness.install
  const crew = yield* Crew.make(order.workers)
  yield* until("a worker", Effect.sync(crew.ready))

  const startMs = yield* Clock.currentTimeMillis
  const giveUpMs = startMs + order.timeoutMs
  const accepted = new Map<number, string>()
  const deeds: Array<Deed> = []
  const deserters: Array<string> = []
  let counts: Counts = { submitted: 0, outstanding: 0, running: 0, completed: 0 }
  let phase: Status["phase"] = "siege"
  let loadMax = 0
  const watching = Effect.gen(function*() {
    while (true) {
      yield* Effect.sleep(look)
      loadMax = Math.max(loadMax, yield* ground.load)
      deserters.push(...(yield* crew.deserters))
      counts = yield* Effect.orElseSucceed(witness.counts, () => counts)
      const now = yield* Clock.currentTimeMillis
      yield* show({
        ...status,
        phase,
        submitted: accepted.size,
        running: counts.running,
        done: counts.submitted - counts.outstanding,
        kills: deeds.filter(({ kind, skipped }) => kind === "kill" && skipped === null).length,
        faults: deeds.length,
        leftMs: Math.max(0, phase === "siege" ? startMs + plan.spanMs - now : giveUpMs - now)
      })
    }
  })
  const siege = Effect.gen(function*() {
    yield* Effect.all([
      submitting(plan, startMs, accepted),
      faulting({ plan, crew, servers, hireServer }, startMs, deeds)
    ], { concurrency: 2, discard: true })
    phase = "drain"
    yield* ground.network.mend
    yield* Effect.gen(function*() {
      let left = true
      while (left) {
        yield* Effect.sleep("500 millis")
        const now = yield* Effect.option(witness.counts)
        left = now._tag === "None" || now.value.outstanding > 0
      }
    })
  })
  const drained = yield* siege.pipe(
    Effect.as(true),
    Effect.raceFirst(watching),
    Effect.timeoutOrElse({ duration: order.timeoutMs, orElse: () => Effect.succeed(false) })
  )
  // What was frozen last still has something to say, and so have those who hold a lease that has ended.
  yield* Effect.sleep(order.leaseMs + lateMs)
  const endMs = yield* Clock.currentTimeMillis
  yield* Effect.forEach(crew.all(), (child) => child.signal("SIGCONT"), { discard: true })
  yield* end(crew.all())
  yield* end(servers)
  return { startMs, endMs, drained, accepted, deeds: deeds.sort((a, b) => a.atMs - b.atMs), deserters, loadMax }
})
