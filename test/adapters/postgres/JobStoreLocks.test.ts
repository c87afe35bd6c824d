/** What other sessions do to the store's rows: hold keys, lock jobs, send twice, freeze half-way. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import * as Database from "../../../src/adapters/postgres/Database.ts"
import * as JobStorePostgres from "../../../src/adapters/postgres/JobStorePostgres.ts"
import * as ClaimSql from "../../../src/adapters/postgres/store/ClaimSql.ts"
import type { LeaseId } from "../../../src/domain/Claim.ts"
import type { NewJob } from "../../../src/domain/Job.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import {
  claimOf,
  counting,
  idsOf,
  repeated,
  request,
  settlement,
  submittedAll,
  tokenOf,
  written
} from "../../contracts/JobStoreContractSteps.ts"
import * as AnotherProcess from "../../support/AnotherProcess.ts"
import * as Backends from "../../support/Backends.ts"
import { timed } from "../../support/Clock.ts"
import { eventually } from "../../support/Eventually.ts"
import { during } from "../../support/ForeignSession.ts"
import * as Jobs from "../../support/Jobs.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as Rows from "../../support/Rows.ts"

const storeLayer = JobStorePostgres.layer({ wake: false, keyTtlMs: 60_000 })

/**
 * A statement that meets a renewal under way: whoever renews commits by itself, well within the time in which the other
 * one waits for its row, however long this process stands still.
 */
const besideRenewal = <A, E, R>(lease: LeaseId, use: Effect.Effect<A, E, R>) =>
  Effect.gen(function*() {
    const database = yield* Database.Database
    const renewing = yield* Effect.forkChild(database.query(
      "handler",
      `WITH r AS MATERIALIZED (UPDATE deadman.lease SET token = token + 1 WHERE id = $1::uuid RETURNING id)
       SELECT pg_sleep(0.1) FROM r`,
      [lease]
    ))
    yield* eventually(
      "it renews, or has renewed",
      Effect.map(
        Backends.counted(`wait_event = 'PgSleep'`),
        (sleeping) => sleeping > 0 || renewing.pollUnsafe() !== undefined
      )
    )
    const value = yield* use
    yield* Fiber.join(renewing)
    return value
  })

const keyedJobs = Effect.fnUntraced(function*(keys: ReadonlyArray<string>) {
  const type = yield* Jobs.freshType
  return yield* Effect.forEach(keys, (key) => Jobs.job({ type, key: { key, fingerprint: "same" } }))
})

const freshKeys = (count: number) => Effect.forEach(Array.from({ length: count }), () => Jobs.freshKey)

const { submit } = AnotherProcess

const anotherProcess = AnotherProcess.make(storeLayer)

/** Jobs that run under one lease. */
const running = Effect.fnUntraced(function*(count: number) {
  const store = yield* JobStore
  const [job, ...rest] = yield* submittedAll(count)
  const asked = yield* request(job!)
  const taken = yield* store.claim(asked)
  assert.strictEqual(taken.length, rest.length + 1)
  return { lease: asked.lease, claims: taken.map((one) => claimOf(asked.lease, one)) }
})

/** These leases, as a reaper has seen them. */
const lapsedOf = (leases: ReadonlyArray<LeaseId>) =>
  Effect.forEach(leases, (lease) => Effect.map(tokenOf(lease), (token) => ({ lease, token })))

const lockJob = `SELECT id FROM deadman.job WHERE id = $1::uuid FOR UPDATE`

it.layer(Layer.provideMerge(storeLayer, Postgres.layer), { excludeTestServices: true })(
  "JobStorePostgres: locks",
  (it) => {
    it.effect("two processes with the same keys in opposite order make one job a key and never wait for each other", () =>
      Effect.gen(function*() {
        const [left, right] = [yield* anotherProcess, yield* anotherProcess]
        for (let round = 0; round < 20; round++) {
          const keys = yield* freshKeys(200)
          const ahead = yield* keyedJobs(keys)
          const behind = yield* keyedJobs(keys.toReversed())
          const [first, second] = yield* Effect.all([
            left.submit(ahead),
            right.submit(behind)
          ], { concurrency: 2 })
          for (const [index, answer] of first.entries()) {
            const other = second[keys.length - 1 - index]!
            assert.sameMembers([answer._tag, other._tag], ["Created", "Replayed"])
            assert.strictEqual("id" in answer && answer.id, "id" in other && other.id)
          }
        }
        assert.deepStrictEqual([left.failures, right.failures], [[], []])
      }))

    it.effect("a key that a foreign transaction holds fails alone, and the next flush does not wait for it", () =>
      Effect.gen(function*() {
        const keys = yield* freshKeys(64)
        const held = keys[17]!
        yield* during(
          `INSERT INTO deadman.key (key, job, fingerprint) VALUES ($1::text, gen_random_uuid(), 'foreign')`,
          [held],
          Effect.gen(function*() {
            const [bare, other] = [yield* anotherProcess, yield* anotherProcess]
            const [unkeyed, [keyed, ms]] = yield* Effect.all([
              Effect.flatMap(Jobs.jobs(64), bare.submit),
              timed(Effect.flatMap(keyedJobs(keys), other.submit))
            ], { concurrency: 2 })
            assert.deepStrictEqual(new Set(unkeyed.map(({ _tag }) => _tag)), new Set(["Created"]))
            assert.deepStrictEqual(bare.failures, [], "jobs without a key do not wait")
            assert.deepStrictEqual(
              keyed.map(({ _tag }) => _tag),
              keys.map((key) => key === held ? "KeyLocked" : "Created")
            )
            // The whole waits for the lock, and six halves of it a tenth as long each; the rest is a busy machine.
            assert.strictEqual(other.failures.length, 7)
            assert.isBelow(ms, 3_000)
            const others = yield* freshKeys(10)
            const again = yield* other.submit(yield* keyedJobs([...others, held]))
            assert.deepStrictEqual(again.map(({ _tag }) => _tag), [...others.map(() => "Created"), "KeyLocked"])
            assert.strictEqual(other.failures.length, 8, "the key that was held is asked for apart")
          })
        )
        const [answer] = yield* submit(yield* keyedJobs([held]))
        // The foreign one named no job that exists, so its key is over.
        assert.strictEqual(answer?._tag, "Created")
      }))

    it.effect("a payload that Postgres refuses fails alone, and takes an atomic batch with it", () =>
      Effect.gen(function*() {
        const store = yield* JobStore
        const good = yield* Jobs.jobs(9)
        const bad = yield* Jobs.job({ payload: `{"a":"\\u0000"}` })
        const expected = (
          other: string
        ) => [...good.slice(0, 4).map(() => other), "Refused", ...good.slice(4).map(() => other)]
        const batch = [...good.slice(0, 4), bad, ...good.slice(4)]
        const atomic = yield* store.submit(batch, { atomic: true })
        assert.deepStrictEqual(atomic.answers.map(({ _tag }) => _tag), expected("Aborted"))
        const [none] = yield* Rows.query(`SELECT count(*)::int AS n FROM deadman.body WHERE id = ANY ($1::uuid[])`, [
          Database.uuids(batch.map(({ id }) => id))
        ])
        assert.strictEqual(none?.["n"], 0)
        assert.deepStrictEqual((yield* submit(batch)).map(({ _tag }) => _tag), expected("Created"))
      }))

    it.effect("an outcome whose text Postgres refuses is written without it, and no other of its batch is", () =>
      Effect.gen(function*() {
        const store = yield* JobStore
        const jobs = yield* submittedAll(5)
        const asked = yield* request(jobs[0]!)
        const claims = (yield* store.claim(asked)).map((job) => claimOf(asked.lease, job))
        const results = ["1", "\"\\u0000\"", "2", "\"\\u0000\"", "3"]
        assert.deepStrictEqual(
          yield* store.settle(claims.map((claim, n) => settlement(claim, "complete", { result: results[n]! }))),
          claims.map(() => written)
        )
        const found = yield* store.get(claims.map(({ id }) => id))
        assert.deepStrictEqual(
          claims.map(({ id }) => {
            const job = found.find((one) => one.id === id)
            return [job?.state, job?.result, job?.errors[0]?.name]
          }),
          results.map((result) =>
            result.length > 1 ? ["completed", null, "Unstorable"] : ["completed", Number(result), undefined]
          )
        )
      }))

    it.effect("a flush that is sent twice at once stores its jobs once, and both are told the same", () =>
      Effect.gen(function*() {
        const type = yield* Jobs.freshType
        for (let round = 0; round < 10; round++) {
          const batch = [...(yield* Jobs.jobs(50, { type })), ...(yield* keyedJobs(yield* freshKeys(50)))]
          const [first, second] = yield* Effect.all([submit(batch), submit(batch)], { concurrency: 2 })
          assert.deepStrictEqual(first, second)
          assert.deepStrictEqual(new Set(first.map(({ _tag }) => _tag)), new Set(["Created"]))
        }
      }))

    it.effect("a job that somebody locks is undecided, and the others of the batch are settled", () =>
      Effect.gen(function*() {
        const store = yield* JobStore
        const { claims } = yield* running(20)
        // Both forms of the statement: plain completions, and one with a result.
        const batch = claims.map((claim, index) =>
          settlement(claim, "complete", { result: index % 2 === 0 ? null : `{"n":1}` })
        )
        const [plain, withResult] = [4, 7]
        const [answers, ms] = yield* during(
          `SELECT id FROM deadman.job WHERE id IN ($1::uuid, $2::uuid) FOR UPDATE`,
          [claims[plain]!.id, claims[withResult]!.id],
          timed(store.settle(batch))
        )
        assert.deepStrictEqual(
          answers,
          claims.map((_, index) => index === plain || index === withResult ? { _tag: "Undecided" } : written)
        )
        assert.isBelow(ms, 5_000)
        assert.deepStrictEqual(yield* store.settle([batch[plain]!, batch[withResult]!]), [written, written])
        assert.deepStrictEqual(yield* store.settle(batch), claims.map(() => repeated))
      }))

    it.effect("a claim that arrives twice takes jobs once, whether together or late", () =>
      Effect.gen(function*() {
        const store = yield* JobStore
        const jobs = yield* submittedAll(60)
        const asked = yield* request(jobs[0]!, { limit: 20 })
        // The twin takes other rows, since the first has its own locked, and must let go of them.
        const both = yield* Effect.all([store.claim(asked), store.claim(asked)], { concurrency: 2 })
        const taken = both.flat()
        assert.strictEqual(taken.length, 20)
        assert.deepStrictEqual(yield* store.claim(asked), [])
        assert.deepStrictEqual(
          (yield* store.recall(asked.lease)).jobs.map(({ id }) => id).toSorted(),
          idsOf(taken).toSorted()
        )
        const [left] = yield* Rows.query(
          `SELECT count(*)::int AS n FROM deadman.job WHERE rank IS NOT NULL AND id = ANY ($1::uuid[])`,
          [Database.uuids(jobs.map(({ id }) => id))]
        )
        assert.strictEqual(left?.["n"], 40)
      }))

    it.effect("a reaper that froze between its look and its deed takes nothing from a lease that was renewed since", () =>
      Effect.gen(function*() {
        const store = yield* JobStore
        const { claims, lease } = yield* running(5)
        const token = yield* tokenOf(lease)
        const [verified] = yield* store.verify([lease])
        assert.strictEqual(verified?._tag, "Stands")
        assert.deepStrictEqual(yield* store.reclaim([{ lease, token }], counting), [{ _tag: "Moved", lease }])
        assert.deepStrictEqual(
          yield* store.settle(claims.map((claim) => settlement(claim, "complete"))),
          claims.map(() => written)
        )
      }))

    it.effect("a reclaim that waits for a renewal under way sees its token", () =>
      Effect.gen(function*() {
        const store = yield* JobStore
        const { claims, lease } = yield* running(3)
        const token = yield* tokenOf(lease)
        const answers = yield* besideRenewal(lease, store.reclaim([{ lease, token }], counting))
        assert.deepStrictEqual(answers, [{ _tag: "Moved", lease }])
        assert.deepStrictEqual(yield* store.settle([settlement(claims[0]!, "complete")]), [written])
      }))

    it.effect("a lapse with a locked job leaves its lease alone, and holds back no other", () =>
      Effect.gen(function*() {
        const store = yield* JobStore
        const [stuck, free] = [yield* running(3), yield* running(3)]
        const lapsed = yield* lapsedOf([stuck.lease, free.lease])
        const answers = yield* during(lockJob, [stuck.claims[1]!.id], store.reclaim(lapsed, counting))
        assert.deepStrictEqual(answers.map(({ _tag }) => _tag), ["Locked", "Reclaimed"])
        assert.deepStrictEqual(
          (yield* store.recall(stuck.lease)).jobs.map(({ id }) => id).toSorted(),
          stuck.claims.map(({ id }) => id).toSorted()
        )
        assert.deepStrictEqual(yield* store.settle([settlement(stuck.claims[0]!, "complete")]), [written])
      }))

    it.effect("a session that has jobs of many lapses locked holds up no other lapse, not even by a wait", () =>
      Effect.gen(function*() {
        const store = yield* JobStore
        const stuck = yield* Effect.forEach(Array.from({ length: 30 }), () => running(2))
        const free = yield* running(3)
        const lapsed = yield* lapsedOf([...stuck, free].map(({ lease }) => lease))
        const [answers, ms] = yield* during(
          `SELECT id FROM deadman.job WHERE id = ANY ($1::uuid[]) FOR UPDATE`,
          [Database.uuids(stuck.map(({ claims }) => claims[1]!.id))],
          timed(store.reclaim(lapsed, counting))
        )
        assert.deepStrictEqual(answers.map(({ _tag }) => _tag), [...stuck.map(() => "Locked"), "Reclaimed"])
        // A wait for each of them would be thirty times a quarter of a second.
        assert.isBelow(ms, 4_000)
        for (const { claims, lease } of stuck) {
          assert.strictEqual((yield* store.recall(lease)).jobs.length, claims.length)
        }
      }))

    it.effect("a lapse under which a job is being settled goes without it, or stays as a whole", () =>
      Effect.gen(function*() {
        const store = yield* JobStore
        for (let round = 0; round < 20; round++) {
          const { claims, lease } = yield* running(5)
          const [lapsed] = yield* lapsedOf([lease])
          const [settled, answers] = yield* Effect.all([
            store.settle([settlement(claims[round % 5]!, "complete")]),
            store.reclaim([lapsed!], counting)
          ], { concurrency: 2 })
          const [answer] = answers
          const [fate] = settled
          const again = answer?._tag === "Locked" ? (yield* store.reclaim([lapsed!], counting))[0] : answer
          assert.strictEqual(again?._tag, "Reclaimed")
          assert.strictEqual(again?._tag === "Reclaimed" && again.jobs.length, fate?._tag === "Settled" ? 4 : 5)
        }
      }))

    it.effect("lapses that take too long hold up no other, wherever they stand, and fail where they are alone", () =>
      Effect.gen(function*() {
        const store = yield* JobStore
        const slow = [yield* running(2), yield* running(2)].map(({ lease }) => lease)
        yield* Rows.query(
          `CREATE FUNCTION public.too_long() RETURNS trigger LANGUAGE plpgsql AS $$
           BEGIN
             RAISE EXCEPTION 'canceling statement due to statement timeout' USING ERRCODE = 'query_canceled';
           END $$`
        )
        yield* Rows.query(
          `CREATE TRIGGER too_long BEFORE UPDATE ON deadman.job FOR EACH ROW
           WHEN (OLD.lease IN ('${slow[0]}', '${slow[1]}')) EXECUTE FUNCTION public.too_long()`
        )
        for (let place = 0; place < 3; place++) {
          const leases = [(yield* running(2)).lease, (yield* running(2)).lease]
          leases.splice(place, 0, ...slow)
          const answers = yield* store.reclaim(yield* lapsedOf(leases), counting)
          assert.deepStrictEqual(
            answers.map(({ _tag, lease }) => [_tag, lease]),
            leases.map((lease) => [slow.includes(lease) ? "Locked" : "Reclaimed", lease])
          )
        }
        // Nor those of the statements behind theirs.
        const twenty = yield* Effect.forEach(Array.from({ length: 20 }), () => running(1))
        yield* Rows.query(
          `CREATE TRIGGER all_too_long BEFORE UPDATE ON deadman.job FOR EACH ROW
           WHEN (OLD.lease IN (${twenty.map(({ lease }) => `'${lease}'`).join()})) EXECUTE FUNCTION public.too_long()`
        )
        const { lease: behind } = yield* running(1)
        const part = yield* store.reclaim(
          yield* lapsedOf([...twenty.map(({ lease }) => lease), behind]),
          counting
        )
        assert.deepStrictEqual(part.map(({ _tag }) => _tag), [...twenty.map(() => "Locked"), "Reclaimed"])
        yield* Rows.query(`DROP TRIGGER all_too_long ON deadman.job`)
        const alone = yield* lapsedOf(slow)
        assert.strictEqual((yield* Effect.flip(store.reclaim(alone, counting))).operation, "reclaim")
        yield* Rows.query(`DROP TRIGGER too_long ON deadman.job`)
        const freed = yield* store.reclaim(alone, counting)
        assert.deepStrictEqual(freed.map(({ _tag }) => _tag), ["Reclaimed", "Reclaimed"])
      }))

    it.effect("one lapse that takes more than a second is taken all the same, if need be beside one that never can be", () =>
      Effect.gen(function*() {
        const store = yield* JobStore
        const { lease } = yield* running(2)
        const { lease: other } = yield* running(2)
        const { lease: never } = yield* running(2)
        yield* Rows.query(
          `CREATE FUNCTION public.slowly() RETURNS trigger LANGUAGE plpgsql AS $$
           BEGIN
             IF OLD.lease = '${never}' THEN
               RAISE EXCEPTION 'canceling statement due to statement timeout' USING ERRCODE = 'query_canceled';
             END IF;
             PERFORM pg_sleep(0.7);
             RETURN NEW;
           END $$`
        )
        yield* Rows.query(
          `CREATE TRIGGER slowly BEFORE UPDATE ON deadman.job FOR EACH ROW
           WHEN (OLD.lease IN ('${lease}', '${other}', '${never}')) EXECUTE FUNCTION public.slowly()`
        )
        const [answer] = yield* store.reclaim(yield* lapsedOf([lease]), counting)
        assert.strictEqual(answer?._tag === "Reclaimed" && answer.jobs.length, 2)
        const both = yield* lapsedOf([never, other])
        const tags: Array<string> = []
        for (let times = 0; times < 2; times++) {
          const answers = yield* Effect.orElseSucceed(store.reclaim(both, counting), () => [])
          tags.push(...answers.map(({ _tag }) => _tag))
        }
        yield* Rows.query(`DROP TRIGGER slowly ON deadman.job`)
        assert.include(tags, "Reclaimed")
      }))

    it.effect("a hand-back that meets a lock changes nothing, and works when it is asked for again", () =>
      Effect.gen(function*() {
        const store = yield* JobStore
        const { claims, lease } = yield* running(3)
        const other = yield* running(1)
        const error = yield* during(lockJob, [claims[2]!.id], Effect.flip(store.abandon([lease, other.lease])))
        assert.strictEqual(error.operation, "abandon")
        assert.deepStrictEqual((yield* store.recall(other.lease)).jobs, [], "it holds up no other")
        assert.strictEqual((yield* store.recall(lease)).jobs.length, 3)
        yield* store.abandon([lease])
        assert.deepStrictEqual((yield* store.recall(lease)).jobs, [])
        const rows = yield* Rows.query(
          `SELECT state::int, losses::int, rank IS NOT NULL AS ready FROM deadman.job WHERE id = ANY ($1::uuid[])`,
          [Database.uuids(claims.map(({ id }) => id))]
        )
        assert.deepStrictEqual(rows, claims.map(() => ({ state: 0, losses: 0, ready: true })))
      }))

    it.effect("a hand-back that waits for a recall under way takes nothing from it", () =>
      Effect.gen(function*() {
        const store = yield* JobStore
        const { claims, lease } = yield* running(3)
        const token = yield* tokenOf(lease)
        yield* besideRenewal(lease, store.handBack(lease, token))
        assert.deepStrictEqual(yield* store.settle([settlement(claims[0]!, "complete")]), [written])
      }))

    it.effect("a claim by a name that a frozen process holds for a moment is tried again", () =>
      Effect.gen(function*() {
        const store = yield* JobStore
        const jobs = yield* submittedAll(2)
        const asked = { ...(yield* request(jobs[0]!)), limitsByName: true }
        const claim = yield* during(
          ClaimSql.nameLock,
          [asked.worker],
          // Longer than one try waits for a lock.
          Effect.tap(Effect.forkChild(store.claim(asked), { startImmediately: true }), () => Effect.sleep("400 millis"))
        )
        assert.sameMembers([...idsOf(yield* Fiber.join(claim))], [...idsOf(jobs)])
      }))

    it.effect("what somebody's open transaction holds is left for later by each chore, and holds up nothing else", () =>
      Effect.gen(function*() {
        const store = yield* JobStore
        const laterMs = (yield* store.now) + 60_000
        const ready = yield* submittedAll(2)
        const due = yield* submittedAll(4, { runAtMs: laterMs })
        const late = yield* submittedAll(2, { startByMs: laterMs })
        const unique = { fields: null, window_ms: 1, states: ["pending"], on_conflict: "skip" } as const
        const done = yield* Effect.forEach(["1", "2"], (payload) =>
          Effect.gen(function*() {
            const [job] = yield* submittedAll(1, { payload, unique })
            const asked = yield* request(job!)
            const [claimed] = yield* store.claim(asked)
            yield* store.settle([settlement(claimOf(asked.lease, claimed!), "complete")])
            return job!
          }))
        // A minute later: one that waits is not made ready by its submit, however long that takes.
        yield* Rows.query(
          `UPDATE deadman.job SET wait_ms = wait_ms - 61000, expire_ms = expire_ms - 61000 WHERE id = ANY ($1::uuid[])`,
          [Database.uuids(idsOf([...due, ...late]))]
        )
        const statesOf = (jobs: ReadonlyArray<NewJob>) =>
          Effect.map(store.get(idsOf(jobs)), (found) => jobs.map(({ id }) => found.find((one) => one.id === id)?.state))
        const held = [ready[0]!, due[0]!, due[2]!, late[0]!, done[0]!]
        yield* during(
          `WITH j AS MATERIALIZED (SELECT id FROM deadman.job WHERE id = ANY ($1::uuid[]) ORDER BY id FOR NO KEY UPDATE),
           q AS MATERIALIZED (SELECT key FROM deadman.uniqueness WHERE job = $2::uuid FOR UPDATE)
           SELECT (SELECT count(*) FROM j) + (SELECT count(*) FROM q) AS n`,
          [Database.uuids(idsOf(held)), done[1]!.id],
          Effect.gen(function*() {
            const { claimed } = yield* store.claimIds({ ...(yield* request(ready[0]!)), ids: idsOf(ready) })
            assert.deepStrictEqual(idsOf(claimed), [ready[1]!.id])
            assert.deepStrictEqual(idsOf((yield* store.promoteIds(idsOf(due.slice(2)))).jobs), [due[3]!.id])
            const { jobs } = yield* store.promote(1_000)
            assert.deepStrictEqual(idsOf(jobs.filter(({ type }) => type === due[0]!.type)), [due[1]!.id])
            yield* store.expire(1_000)
            assert.deepStrictEqual(yield* statesOf(late), ["pending", "dead"])
            while ((yield* store.prune({ completedMs: 0, deadMs: 3_600_000, limit: 1_000 })).more) {
              // The rest of the walk.
            }
            assert.deepStrictEqual(yield* statesOf(done), ["completed", undefined])
          })
        )
      }))

    it.effect("what the statements told the tally is what there is", () =>
      Effect.gen(function*() {
        assert.deepStrictEqual(yield* Rows.untallied, [])
      }))
  }
)
