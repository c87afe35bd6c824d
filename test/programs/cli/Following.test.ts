/** `deadman tail` against a store that changes under its looks: whatever is drawn, each change is told once, in its order. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Following from "../../../src/programs/cli/Following.ts"
import * as Steps from "../../../src/programs/cli/Steps.ts"
import * as ApiJobs from "../../support/ApiJobs.ts"

type Mutable<A> = { -readonly [K in keyof A]: A[K] }

interface Job extends Mutable<Omit<Steps.TimedJob, "errors" | "events">> {
  errors: Array<Steps.TimedJob["errors"][number]>
  events: Array<Steps.TimedJob["events"][number]>
}

const seeded = (seed: number) => {
  let state = seed
  return (below: number) => {
    state = (state * 48_271) % 2_147_483_647
    return state % below
  }
}

const idOf = (n: number) => String(n).padStart(10, "0")

/** Jobs that change by the edges that there are, and what happened to each. */
const world = () => {
  const jobs = new Map<string, Job>()
  const story = new Map<string, Array<string>>()
  let clock = 1_000
  let made = 0

  const happened = (job: Job) => void story.get(job.id)!.push(`${job.state} ${clock}`)

  const add = (n = ++made) => {
    clock += 1
    const job: Job = {
      ...ApiJobs.job,
      id: idOf(n),
      type: "t",
      state: "pending",
      max_attempts: 3,
      run_at_ms: clock,
      created_at_ms: clock,
      errors: [],
      events: []
    }
    jobs.set(job.id, job)
    story.set(job.id, [])
    happened(job)
    return job
  }

  const end = (job: Job, state: "completed" | "dead", reason: string | null) => {
    Object.assign(job, { state, reason, finished_at_ms: clock })
  }

  const act = (job: Job, draw: number) => {
    clock += 1
    const worker = `w${draw}`
    const event = (kind: string) => ({
      kind,
      epoch: job.epoch,
      worker: job.worker,
      at_ms: clock,
      ...(kind === "lease_lost" ? { claimed_at_ms: job.started_at_ms ?? 0 } : {})
    })
    if (job.state === "running") {
      const error = {
        attempt: job.attempts + 1,
        epoch: job.epoch,
        worker: job.worker ?? "",
        claimed_at_ms: job.started_at_ms ?? 0,
        at_ms: clock,
        name: "Error",
        message: "no"
      }
      switch (draw % 6) {
        case 0:
        case 1:
          end(job, "completed", null)
          break
        case 2:
          job.errors.push(error)
          job.attempts += 1
          if (job.attempts === job.max_attempts) end(job, "dead", "attempts_exhausted")
          else job.state = "failed"
          break
        case 3:
          job.events.push(event("lease_lost"))
          job.lease_losses += 1
          if (job.lease_losses === 4) end(job, "dead", "crash_loop")
          else job.state = "pending"
          break
        case 4:
          job.events.push(event("released"))
          job.state = "pending"
          break
        default:
          job.events.push(event("cancel_requested"))
          end(job, "dead", "cancelled")
      }
    } else if (job.state === "failed" && draw % 5 === 0) {
      job.events.push(event("retried"))
      job.state = "pending"
    } else if (job.epoch === 0 && draw % 29 === 0) {
      end(job, "dead", "expired")
    } else {
      Object.assign(job, { state: "running", epoch: job.epoch + 1, worker, started_at_ms: clock })
    }
    happened(job)
  }

  const unfinished = () => [...jobs.values()].filter((job) => !Steps.isEnded(job))
  const asks: Following.Asks<Job, never> = {
    list: ({ cursor, limit, state }) =>
      Effect.sync(() => {
        const found = [...jobs.values()]
          .filter((job) => (cursor === undefined || job.id < cursor) && (state === undefined || job.state === state))
          .sort((a, b) => a.id < b.id ? 1 : -1)
        const page = found.slice(0, limit)
        return structuredClone({ jobs: page, next_cursor: found.length > limit ? page.at(-1)!.id : null })
      }),
    getAll: (ids) => Effect.sync(() => structuredClone(ids.flatMap((id) => jobs.get(id) ?? []))),
    now: Effect.sync(() => clock)
  }
  return { jobs, story, add, act, unfinished, asks }
}

const small: Following.Limits = {
  page: 10,
  newPages: 3,
  knownPages: 2,
  overlapLooks: 3,
  overlapPages: 4,
  followed: 5_000,
  remembered: 2_000,
  lateEvery: 3,
  shortPages: 1
}

const told = (steps: ReadonlyArray<Steps.Step<Job>>, into: Map<string, Array<string>>) => {
  for (const { job, saidMs } of steps) {
    into.set(job.id, [...into.get(job.id) ?? [], `${job.state} ${saidMs ?? "?"}`])
  }
}

it.effect.each([1, 7, 42, 1_234, 99_991, 777_777])("misses no change, seed %i", (seed) =>
  Effect.gen(function*() {
    const draw = seeded(seed)
    const { act, add, asks, jobs, story, unfinished } = world()
    for (let n = 0; n < 150; n++) {
      add()
    }
    for (let n = 0; n < 300; n++) {
      const open = unfinished()
      act(open[draw(open.length)]!, draw(1_000))
    }
    const { look } = Following.make(asks, small)
    // Until the walks have been round: what waits from before is known from then on.
    for (let n = 0; n < 30; n++) {
      const { steps } = yield* look
      assert.deepStrictEqual(steps, [])
    }
    const before = new Map([...story].map(([id, all]) => [id, all.length]))
    const seen = new Map<string, Array<string>>()
    for (let n = 0; n < 60; n++) {
      for (let made = draw(60); made > 0; made--) {
        add()
      }
      for (let done = draw(120); done > 0; done--) {
        const open = unfinished()
        if (open.length > 0) act(open[draw(open.length)]!, draw(1_000))
      }
      told((yield* look).steps, seen)
    }
    for (let n = 0; n < 200; n++) {
      told((yield* look).steps, seen)
    }
    const happened = new Map(
      [...story].map(([id, all]) => [id, all.slice(before.get(id) ?? 0)] as const).filter(([, all]) => all.length > 0)
    )
    // When a claim was made that was handed back, the job does not keep.
    const alike = (all: ReadonlyArray<string>, like: ReadonlyArray<string>) =>
      all.map((one, at) => like[at]?.endsWith("?") ? one.replace(/[0-9]+$/, "?") : one)
    assert.isAbove(jobs.size, 1_000)
    for (const [id, all] of happened) {
      assert.deepStrictEqual(seen.get(id), alike(all, seen.get(id) ?? []), id)
    }
    assert.deepStrictEqual([...seen.keys()].filter((id) => !happened.has(id)), [])
    const known = [...seen.values()].flat().filter((one) => !one.endsWith("?"))
    assert.isAbove(known.length, 5_000)
  }))

it.effect("a job of a long transaction, which is behind many newer ones, is found", () =>
  Effect.gen(function*() {
    const { add, asks } = world()
    add(1)
    for (let n = 0; n < 400; n++) {
      add(1_000 + n)
    }
    const { look } = Following.make(asks, small)
    for (let n = 0; n < 60; n++) {
      yield* look
    }
    add(5)
    const seen = new Map<string, Array<string>>()
    for (let n = 0; n < 200 && seen.size === 0; n++) {
      told((yield* look).steps, seen)
    }
    assert.deepStrictEqual([...seen.keys()], [idOf(5)])
  }))

/** A job whose clock is behind, or whose transaction took long: it is there, and ended, behind many newer ones. */
const late = Effect.fnUntraced(function*(behind: number, looksAgo: number) {
  const { act, add, asks, jobs } = world()
  for (let n = 0; n < 400; n++) {
    add(1_000 + n * 10)
  }
  for (const job of jobs.values()) {
    while (!Steps.isEnded(job)) act(job, 1)
  }
  const { look } = Following.make(asks, small)
  for (let n = 0; n < 60; n++) {
    yield* look
  }
  const place = 100_000
  for (let n = 0; n < behind; n++) {
    if (n % Math.ceil(behind / looksAgo) === 0) {
      yield* look
    }
    add(place + 1 + n)
  }
  yield* look
  const job = add(place)
  while (!Steps.isEnded(job)) act(job, 1)
  const seen = new Map<string, Array<string>>()
  for (let n = 0; n < 100; n++) {
    told((yield* look).steps, seen)
  }
  return seen.get(job.id)
})

it.effect("a job that came late and has ended is found behind a page of newer ones, once", () =>
  Effect.gen(function*() {
    const states = (all: ReadonlyArray<string> | undefined) => all?.map((one) => one.split(" ")[0])
    assert.deepStrictEqual(states(yield* late(30, 2)), ["pending", "running", "completed"])
    assert.deepStrictEqual(states(yield* late(3, 1)), ["pending", "running", "completed"])
    // Bounded: not behind any number, nor from any time ago.
    assert.isUndefined(yield* late(58, 2))
    assert.isUndefined(yield* late(30, 15))
  }))

it.effect("a look costs so many requests at most, and says where it does not follow all", () =>
  Effect.gen(function*() {
    const { add, asks } = world()
    let requests = 0
    const count = <A>(effect: Effect.Effect<A>) => Effect.tap(effect, () => Effect.sync(() => void (requests += 1)))
    const { look } = Following.make({
      list: (query) => count(asks.list(query)),
      getAll: (ids) => count(asks.getAll(ids)),
      now: asks.now
    }, { ...small, followed: 500 })
    const notes: Array<string> = []
    for (let n = 0; n < 80; n++) {
      for (let made = 0; made < 20; made++) {
        add()
      }
      requests = 0
      notes.push(...(yield* look).notes)
      assert.isAtMost(
        requests,
        small.newPages + small.overlapPages + small.knownPages + Math.max(small.knownPages, 3)
      )
    }
    assert.strictEqual(notes.length, 1)
    assert.include(notes[0], "not all of them are followed")
  }))
