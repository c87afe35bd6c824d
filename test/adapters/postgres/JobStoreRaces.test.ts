/**
 * Claims, and everything that meets them, at random and at once: several processes claim in order and by id, twice under
 * one lease, and are cut off in the middle of it; jobs end, fail, go back, are cancelled, expire, become suspects, and
 * their queues pause. Whatever happens, no claim of a job is given out twice, each brings what was asked for in the order
 * in which it is to start, nothing is left over, and the tally is right.
 */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import * as Database from "../../../src/adapters/postgres/Database.ts"
import * as JobStorePostgres from "../../../src/adapters/postgres/JobStorePostgres.ts"
import { type LeaseId, suspectLosses } from "../../../src/domain/Claim.ts"
import { type ClaimedJob, type NewJob, Queue } from "../../../src/domain/Job.ts"
import type { JobId } from "../../../src/domain/JobId.ts"
import type { Settlement } from "../../../src/domain/Outcome.ts"
import { type ClaimRequest, JobStore } from "../../../src/ports/JobStore.ts"
import { claimOf, settlement } from "../../contracts/JobStoreContractSteps.ts"
import * as Jobs from "../../support/Jobs.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as Rows from "../../support/Rows.ts"

const storeLayer = JobStorePostgres.layer({ wake: true, keyTtlMs: 60_000 })

const claimants = 5
const claimsEach = 150
const jobsMax = 1_500

/** What a seed draws. Who wins a race is not drawn: the same seed asks the same, and may be answered otherwise. */
const drawing = (seed: number) => {
  let state = seed >>> 0
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = state
    t = Math.imul(t ^ (t >>> 15), t | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
  const below = (n: number) => Math.floor(next() * n)
  return { below, chance: (p: number) => next() < p, of: <A>(all: ReadonlyArray<A>) => all[below(all.length)]! }
}

type Draw = ReturnType<typeof drawing>

/** Some of these wait for a row that another one has locked, and say so after a while. */
const patiently = Effect.retry({ times: 20 })

/** The store of another process. */
const another = Effect.gen(function*() {
  const url = yield* Postgres.Url
  const context = yield* Layer.build(Layer.fresh(Layer.provide(storeLayer, Database.layer({ url, storePool: 2 }))))
  return yield* Effect.provideContext(JobStore, context)
})

const siege = Effect.fnUntraced(function*(seed: number) {
  const draws = drawing(seed)
  const store = yield* JobStore
  const types = yield* Effect.forEach([1, 2, 3], () => Jobs.freshType)
  const queues = ["left", "right"].map((name) => Queue.make(`${name}-${seed}`))
  const jobs = new Map<JobId, NewJob>()
  /** Under which lease an epoch of a job was given out. */
  const given = new Map<string, LeaseId>()
  /** Leases of claims that nobody knows the end of. */
  const doubtful = new Set<LeaseId>()
  let over = 0

  const submitting = Effect.gen(function*() {
    const draw = drawing(draws.below(2 ** 30))
    const nowMs = yield* patiently(store.now)
    while (over < claimants && jobs.size < jobsMax) {
      const batch = yield* Effect.forEach(
        Array.from({ length: draw.of([1, 1, 3, 20, 70]) }),
        () =>
          Jobs.job({
            type: draw.of(types),
            queue: draw.of(queues),
            payload: JSON.stringify("x".repeat(draw.of([1, 1, 100, 2_000]))),
            priority: draw.of([0, 0, 0, -5, 9]),
            runAtMs: draw.chance(0.1) ? nowMs + draw.below(3_000) : null,
            startByMs: draw.chance(0.1) ? nowMs + draw.below(4_000) : null
          })
      )
      batch.forEach((job) => jobs.set(job.id, job))
      yield* patiently(store.submit(batch, { atomic: false }))
      yield* patiently(store.promote(100))
      yield* Effect.sleep(draw.below(12))
    }
  })

  const some = (draw: Draw) => draw.of([...jobs.keys()].slice(-200))

  const disturbing = Effect.gen(function*() {
    const draw = drawing(draws.below(2 ** 30))
    while (over < claimants) {
      yield* Effect.sleep(draw.below(8))
      if (jobs.size === 0) {
        continue
      }
      switch (draw.below(5)) {
        case 0:
          yield* store.cancel(some(draw))
          break
        case 1:
          yield* store.retry(some(draw))
          break
        case 2:
          yield* store.expire(50)
          break
        case 3:
          // As if it had lost its lease before, and been submitted earlier.
          yield* Rows.query(
            `UPDATE deadman.job SET losses = $2::int, run_at_ms = run_at_ms - 5000, rank = rank - 5000
             WHERE id = $1::uuid AND rank IS NOT NULL`,
            [some(draw), draw.below(4)]
          )
          break
        default:
          yield* Rows.query(`UPDATE deadman.route SET paused = $2::boolean WHERE queue = $1::text`, [
            draw.of(queues),
            draw.chance(0.4)
          ])
      }
    }
  }).pipe(Effect.retry({ times: 1_000 }))

  const places = (ids: ReadonlyArray<JobId>) =>
    Rows.query(
      `SELECT j.id, j.bytes, (j.run_at_ms - j.priority * r.step_ms)::float8 AS rank
       FROM deadman.job j JOIN deadman.route r ON r.id = j.route WHERE j.id = ANY ($1::uuid[])`,
      [Database.uuids(ids)]
    )

  const check = Effect.fnUntraced(function*(request: ClaimRequest, taken: ReadonlyArray<ClaimedJob>) {
    for (const job of taken) {
      const claim = `${job.id} ${job.epoch}`
      assert.include([undefined, request.lease], given.get(claim), `${claim} is given out twice`)
      given.set(claim, request.lease)
      assert.include(request.types, job.type)
      assert.include(request.queues ?? queues, job.queue)
    }
    assert.isAtMost(taken.length, request.limit)
    const suspects = taken.filter(({ leaseLosses }) => leaseLosses >= suspectLosses)
    assert.isTrue(suspects.length === 0 || (taken.length === 1 && request.freeSlots > 0), "a suspect is taken alone")
    assert.isTrue(taken.every(({ leaseLosses }) => leaseLosses < (request.lossesBelow ?? Infinity)))
    for (const { queue, room } of request.rooms ?? []) {
      assert.isAtMost(taken.filter((job) => job.queue === queue).length, room)
    }
    const rows = new Map((yield* places(taken.map(({ id }) => id))).map((row) => [row["id"] as JobId, row]))
    const rank = ({ id }: ClaimedJob) => Number(rows.get(id)?.["rank"])
    const ordered = taken.toSorted((a, b) => rank(a) - rank(b) || (a.id < b.id ? -1 : 1))
    assert.deepStrictEqual(taken.map(({ id }) => id), ordered.map(({ id }) => id), "in the order of their ranks")
    const bytes = taken.reduce((sum, { id }) => sum + Number(rows.get(id)?.["bytes"]), 0)
    assert.isTrue(taken.length === 1 || bytes <= request.bytes, "no more bytes than there is room for")
  })

  const steps: ReadonlyArray<Settlement["step"]> = [
    "complete",
    "complete",
    "complete",
    "fail",
    "die",
    "release",
    "again"
  ]

  const settling = Effect.fnUntraced(function*(
    process: JobStore["Service"],
    draw: Draw,
    lease: LeaseId,
    taken: ReadonlyArray<ClaimedJob>
  ) {
    const settlements = taken.map((job) => {
      const step = draw.of(steps)
      return settlement(claimOf(lease, job), step, {
        ...(step === "again" || step === "fail" ? { delayMs: draw.of([0, 0, 50]) } : {}),
        result: null
      })
    })
    for (let left = settlements; left.length > 0;) {
      const answers = yield* patiently(process.settle(left))
      left = left.filter((_, index) => answers[index]!._tag === "Undecided")
    }
    yield* patiently(process.endLeases([lease]))
  })

  const recalled = Effect.fnUntraced(function*(process: JobStore["Service"], lease: LeaseId) {
    const { jobs } = yield* patiently(process.recall(lease))
    for (const job of jobs) {
      const claim = `${job.id} ${job.epoch}`
      assert.include([undefined, lease], given.get(claim), `${claim} is given out twice`)
      given.set(claim, lease)
    }
    return jobs
  })

  /** One that waits for a locked row for too long fails: what it took, if anything, is asked for as after a cut. */
  const taking = <E>(
    process: JobStore["Service"],
    request: ClaimRequest,
    claims: Effect.Effect<ReadonlyArray<ClaimedJob>, E>
  ) =>
    Effect.matchEffect(claims, {
      onFailure: () => {
        doubtful.add(request.lease)
        return recalled(process, request.lease)
      },
      onSuccess: (taken) => Effect.as(check(request, taken), taken)
    })

  const claiming = Effect.fnUntraced(function*() {
    const draw = drawing(draws.below(2 ** 30))
    const process = yield* another
    for (let n = 0; n < claimsEach; n++) {
      const lease = yield* Jobs.freshLease
      const rooms = draw.chance(0.2) ? queues.map((queue) => ({ queue, room: draw.below(5) })) : []
      const request: ClaimRequest = {
        lease,
        leaseMs: 60_000,
        worker: "ada",
        types: draw.chance(0.3) ? [draw.of(types)] : types,
        ...(draw.chance(0.3) ? { queues: [draw.of(queues)] } : {}),
        limit: draw.of([1, 2, 5, 30, 64, 65, 300]),
        freeSlots: draw.of([0, 1, 10]),
        bytes: draw.of([10, 5_000, 1e7]),
        ...(draw.chance(0.2) ? { lossesBelow: 3 } : {}),
        ...(draw.chance(0.3) ? { glance: true } : {}),
        ...(draw.chance(0.1) ? { readyForMs: 20 } : {}),
        ...(rooms.length > 0 ? { rooms } : {})
      }
      const how = draw.below(10)
      if (how === 0) {
        // Cut off somewhere: before it was sent, at the server, or on the way back.
        doubtful.add(lease)
        const cutOff = Effect.timeout(process.claim(request), draw.of([0, 1, 1, 2, 3, 5]))
        yield* taking(process, request, cutOff)
        const found = yield* recalled(process, lease)
        if (draw.chance(0.5)) {
          yield* settling(process, draw, lease, found)
        } else {
          yield* patiently(process.abandon([lease]))
        }
      } else if (how === 1) {
        const twice = Effect.all([process.claim(request), process.claim(request)], { concurrency: 2 }).pipe(
          Effect.map(([left, right]) => {
            assert.isTrue(left.length === 0 || right.length === 0, "a claim that is sent twice takes jobs once")
            return [...left, ...right]
          })
        )
        yield* settling(process, draw, lease, yield* taking(process, request, twice))
      } else if (how === 2 && jobs.size > 0) {
        const ids = Array.from({ length: 1 + draw.below(40) }, () => some(draw))
        const byId = Effect.map(process.claimIds({ ...request, ids }), ({ claimed }) => claimed)
        yield* settling(process, draw, lease, yield* taking(process, request, byId))
      } else {
        const taken = yield* taking(process, request, process.claim(request))
        if (how === 3) {
          yield* patiently(process.abandon([lease]))
        } else {
          yield* settling(process, draw, lease, taken)
        }
      }
    }
    over += 1
  })

  yield* Effect.all([submitting, disturbing, ...Array.from({ length: claimants }, () => claiming())], {
    concurrency: "unbounded",
    discard: true
  })

  // Nothing is left over: what was cut off goes back, and one worker that takes whatever it gets ends all of it.
  yield* Rows.query(`UPDATE deadman.route SET paused = false`)
  const draw = drawing(draws.below(2 ** 30))
  for (let idle = 0; idle < 3;) {
    yield* patiently(store.abandon([...doubtful]))
    yield* patiently(store.promote(1_000))
    yield* patiently(store.expire(1_000))
    const lease = yield* Jobs.freshLease
    const request: ClaimRequest = {
      lease,
      leaseMs: 60_000,
      worker: "last",
      types,
      limit: draw.of([3, 64, 500]),
      freeSlots: 1,
      bytes: 1e7
    }
    const taken = yield* taking(store, request, store.claim(request))
    const ends = taken.map((job) => settlement(claimOf(lease, job), "complete", { result: null }))
    yield* patiently(store.settle(ends))
    yield* patiently(store.endLeases([lease]))
    const [waits] = yield* Rows.query(`SELECT count(*)::int AS n FROM deadman.job WHERE state NOT IN (3, 4)`)
    idle = waits?.["n"] === 0 ? idle + 1 : 0
  }
  const broken = yield* Rows.query(
    `SELECT id, state, epoch, deliveries FROM deadman.job
     WHERE rank IS NOT NULL OR wait_ms IS NOT NULL OR epoch <> deliveries OR (state = 3 AND epoch = 0)`
  )
  assert.deepStrictEqual(broken, [])
  const [stored] = yield* Rows.query(`SELECT count(*)::int AS n FROM deadman.job`)
  assert.strictEqual(stored?.["n"], jobs.size)
  assert.deepStrictEqual(yield* Rows.untallied, [])
  return given.size
})

const seeds = process.env["DEADMAN_TEST_SEEDS"]?.split(",").map(Number) ??
  [1, crypto.getRandomValues(new Uint32Array(1))[0]!]

for (const seed of seeds) {
  it.layer(Layer.provideMerge(storeLayer, Postgres.layer), { excludeTestServices: true, timeout: "3 minutes" })(
    "JobStorePostgres: claims at random",
    (it) => {
      it.effect(
        `each claim is given out once, in order, and nothing is left over (seed ${seed})`,
        () => Effect.map(siege(seed), (n) => assert.isAbove(n, 100)),
        180_000
      )
    }
  )
}
