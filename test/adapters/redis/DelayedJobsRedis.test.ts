import { assert, it } from "@effect/vitest"
import { Effect, Exit, Layer } from "effect"
import * as DelayedJobsRedis from "../../../src/adapters/redis/DelayedJobsRedis.ts"
import { DelayedJobs } from "../../../src/ports/DelayedJobs.ts"
import * as DelayedJobsContract from "../../contracts/DelayedJobsContract.ts"
import { eventually } from "../../support/Eventually.ts"
import * as Ids from "../../support/Ids.ts"
import * as Redis from "../../support/Redis.ts"
import * as TestServers from "../../support/TestServers.ts"

TestServers.describeWithRedis("DelayedJobsRedis", () => {
  DelayedJobsContract.suite("redis", Redis.shared)

  it.layer(Redis.onServer.pipe(Layer.provideMerge(Redis.server())), {
    excludeTestServices: true,
    timeout: "2 minutes"
  })(
    "on a server of its own",
    (it) => {
      const t0 = 4_000_000_000_000
      const small = DelayedJobsRedis.layerWith({ entriesMax: 1_000 })

      const filled = Effect.gen(function*() {
        const index = yield* DelayedJobs
        const id = Ids.jobId()
        yield* index.schedule([{ id, runAtMs: t0 }])
        yield* index.filled(t0 + 1_000)
        assert.deepStrictEqual(yield* index.due(t0, 10), { ids: [id], nextMs: null, wantsFill: false })
      })

      it.effect("wants to be filled when everything is lost, or only its own", () =>
        Effect.gen(function*() {
          const server = yield* Redis.Server
          const index = yield* DelayedJobs
          for (const loss of [server.flushAll, Effect.asVoid(server.call("DEL", "deadman:due"))]) {
            yield* filled
            yield* loss
            assert.deepStrictEqual(yield* index.due(t0, 10), { ids: [], nextMs: null, wantsFill: true })
          }
        }))

      it.effect("wants to be filled after a restart from an older file", () =>
        Effect.gen(function*() {
          const server = yield* Redis.Server
          const index = yield* DelayedJobs
          yield* server.flushAll
          yield* filled
          yield* server.call("SAVE")
          yield* server.kill
          yield* server.start
          yield* eventually("it answers", Effect.map(Effect.exit(index.due(t0, 10)), Exit.isSuccess))
          const due = yield* index.due(t0, 10)
          assert.lengthOf(due.ids, 1)
          assert.isTrue(due.wantsFill)
          yield* index.filled(t0 + 1_000)
          const marks = yield* server.call("ZRANGEBYSCORE", "deadman:due", "-inf", "0")
          assert.lengthOf(marks as ReadonlyArray<string>, 1, "it was filled under this run, and no other")
        }))

      it.effect("whatever is done to it, it expires where nobody looks at it any more, and only then", () =>
        Effect.gen(function*() {
          const server = yield* Redis.Server
          const index = yield* DelayedJobs
          const schedule = index.schedule([{ id: Ids.jobId(), runAtMs: t0 }])
          for (const act of [schedule, index.filled(t0), index.due(t0, 10)]) {
            yield* server.flushAll
            if (act !== schedule) {
              yield* schedule
              yield* server.call("PEXPIRE", "deadman:due", "60000")
            }
            yield* act
            const leftMs = Number(yield* server.call("PTTL", "deadman:due"))
            assert.isTrue(leftMs > 600_000 && leftMs <= 1_200_000, `it has ${leftMs} ms left`)
          }
        }))

      it.effect("of many jobs none is missed, and none stays", () =>
        Effect.gen(function*() {
          const server = yield* Redis.Server
          const index = yield* DelayedJobs
          yield* server.flushAll
          const jobs = Array.from({ length: 1_100 }, (_, n) => ({ id: Ids.jobId(), runAtMs: t0 + n }))
          yield* index.schedule(jobs)
          const ids = jobs.map(({ id }) => id)
          assert.deepStrictEqual((yield* index.due(t0 + 1_100, 2_000)).ids, ids)
          yield* index.forget(ids)
          assert.deepStrictEqual((yield* index.due(t0 + 1_100, 2_000)).ids, [])
        }))

      it.effect("keeps the earliest of too many, in one key that expires", () =>
        Effect.gen(function*() {
          const server = yield* Redis.Server
          const index = yield* DelayedJobs
          yield* server.flushAll
          yield* index.filled(t0)
          const jobs = Array.from({ length: 1_600 }, (_, n) => ({ id: Ids.jobId(), runAtMs: t0 + 1_600 - n }))
          yield* index.schedule(jobs)
          // What says that it was filled is one of them.
          assert.strictEqual(yield* server.call("ZCARD", "deadman:due"), 1_000)
          assert.isAbove(Number(yield* server.call("PTTL", "deadman:due")), 600_000)
          const { ids, wantsFill } = yield* index.due(t0 - 1, 10)
          assert.deepStrictEqual([ids, wantsFill], [[], false])
          assert.deepStrictEqual((yield* index.due(t0 + 1, 10)).ids, [jobs.at(-1)!.id])
          assert.deepStrictEqual(yield* server.call("KEYS", "*"), ["deadman:due"])
        }).pipe(Effect.provide(small)))
    }
  )
})
