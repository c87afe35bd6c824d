/** What a register in Redis does while its server is away, hangs, refuses, forgets or goes back in time. */
import { assert, it } from "@effect/vitest"
import { Clock, Effect, Exit, Layer, Option, Redacted, type Scope } from "effect"
import * as LeaseRegisterRedis from "../../../src/adapters/redis/LeaseRegisterRedis.ts"
import * as Client from "../../../src/adapters/redis/Redis.ts"
import type { LeaseId } from "../../../src/domain/Claim.ts"
import { LeaseRegister } from "../../../src/ports/LeaseRegister.ts"
import * as CuttingProxy from "../../support/CuttingProxy.ts"
import { eventually } from "../../support/Eventually.ts"
import * as Ids from "../../support/Ids.ts"
import * as Redis from "../../support/Redis.ts"
import * as TestServers from "../../support/TestServers.ts"

const leaseMs = 5_000

/** Refused for want of a connection, not after a deadline: the reason tells, also where a busy machine took its time. */
const knewAtOnce = (exit: Exit.Exit<unknown, unknown>): boolean =>
  Exit.isFailure(exit) && String(exit.cause).includes("no connection")

const hold = (lease: LeaseId) => Effect.flatMap(LeaseRegister, (register) => register.hold([{ lease, leaseMs }]))
const renew = (lease: LeaseId) =>
  Effect.flatMap(LeaseRegister, (register) => Effect.map(register.renew([{ lease, leaseMs }]), ([answer]) => answer))
const look = (...leases: ReadonlyArray<LeaseId>) => Effect.flatMap(LeaseRegister, (register) => register.look(leases))
const mark = (lease: LeaseId, token: string | null) =>
  Effect.flatMap(LeaseRegister, (register) => register.markLapsed(lease, token))

const held = Effect.gen(function*() {
  const lease = Ids.leaseId()
  yield* hold(lease)
  return lease
})

const works = (lease: LeaseId) =>
  eventually(
    "it works by itself again",
    Effect.as(Effect.option(hold(lease)), lease).pipe(
      Effect.andThen(Effect.exit(renew(lease))),
      Effect.map((exit) => Exit.isSuccess(exit) && exit.value === "held")
    )
  )

/** Another process on the same server. */
const another = <A, E, R>(
  effect: Effect.Effect<A, E, R>,
  url?: string
): Effect.Effect<A, E, Exclude<R, LeaseRegister> | Redis.Server> =>
  Effect.flatMap(Redis.Server, (server) =>
    Effect.provide(
      effect,
      Layer.fresh(LeaseRegisterRedis.layer.pipe(
        Layer.provide(Client.layer({ url: Redacted.make(url ?? server.url) })),
        Layer.orDie
      ))
    ))

const suite = (
  name: string,
  body: (
    test: <E>(
      what: string,
      effect: Effect.Effect<void, E, LeaseRegister | Redis.Server | Client.Redis | Scope.Scope>
    ) => void
  ) => void
) =>
  it.layer(Redis.onServer.pipe(Layer.provideMerge(Redis.server())), {
    excludeTestServices: true,
    timeout: "2 minutes"
  })(
    name,
    (it) => body((what, effect) => it.effect(what, () => Effect.scoped(effect)))
  )

TestServers.describeWithRedis("a register in Redis, under faults", () => {
  suite("away, hanging, refusing", (test) => {
    test(
      "away: callers know at once, and it works again by itself",
      Effect.gen(function*() {
        const server = yield* Redis.Server
        const { isUp } = yield* Client.Redis
        const lease = yield* held
        assert.isTrue(yield* isUp)
        yield* server.kill
        yield* Effect.exit(renew(lease))
        yield* Effect.sleep("300 millis")
        for (const call of [renew(lease), look(lease), mark(lease, null), hold(lease)]) {
          assert.isTrue(knewAtOnce(yield* Effect.exit(call)))
        }
        assert.isFalse(yield* isUp)
        yield* server.start
        yield* works(lease)
        assert.isTrue(yield* isUp)
      })
    )

    test(
      "hanging: the first callers wait for their deadline, the others know at once, and nothing piles up",
      Effect.gen(function*() {
        const server = yield* Redis.Server
        const lease = yield* held
        yield* server.freeze
        const first = yield* Effect.exit(look(lease))
        assert.isTrue(Exit.isFailure(first) && /no answer within 400 ms/.test(String(first.cause)))
        yield* Effect.sleep("1200 millis")
        const calls = yield* Effect.forEach(Array.from({ length: 500 }), () => Effect.exit(renew(lease)), {
          concurrency: "unbounded"
        })
        assert.isTrue(calls.every(knewAtOnce))
        yield* server.thaw
        yield* works(lease)
        // What waited in the frozen server's buffers was asked before the connection was given up.
        const stats = String(yield* server.call("INFO", "commandstats"))
        assert.isBelow(Number(/cmdstat_evalsha:calls=(\d+)/.exec(stats)?.[1]), 100)
      })
    )

    test(
      "hanging and gone: what was asked before is not asked again when it is back",
      Effect.gen(function*() {
        const server = yield* Redis.Server
        const lease = yield* held
        yield* server.call("SAVE")
        const before = yield* look(lease)
        yield* server.freeze
        yield* Effect.exit(renew(lease))
        yield* server.kill
        yield* Effect.sleep("500 millis")
        yield* server.start
        const answers = Effect.option(look(lease))
        yield* eventually("it answers", Effect.map(answers, Option.isSome))
        const after = Option.getOrThrow(yield* answers)
        assert.strictEqual(after.tokens.get(lease), before.tokens.get(lease))
        yield* works(lease)
      })
    )

    test(
      "hanging: no more is under way than the bound",
      Effect.gen(function*() {
        const server = yield* Redis.Server
        const lease = yield* held
        yield* server.freeze
        const calls = yield* Effect.forEach(Array.from({ length: 1_000 }), () => Effect.exit(renew(lease)), {
          concurrency: "unbounded"
        })
        assert.isAbove(
          calls.filter((exit) => Exit.isFailure(exit) && String(exit.cause).includes("under way")).length,
          700
        )
        yield* server.thaw
        yield* works(lease)
      })
    )

    test(
      "read-only: every call fails, looks included, and it works again by itself",
      Effect.gen(function*() {
        const server = yield* Redis.Server
        const lease = yield* held
        const before = yield* look(lease)
        const connections = Effect.map(
          server.call("CLIENT", "LIST"),
          (list) =>
            String(list).split("\n").filter((line) => !line.includes("cmd=client")).flatMap((line) =>
              /^id=(\d+)/.exec(line)?.[1] ?? []
            )
        )
        const first = yield* connections
        assert.lengthOf(first, 1)
        yield* server.call("REPLICAOF", "127.0.0.1", "1")
        yield* eventually("renewals fail", Effect.map(Effect.exit(renew(lease)), Exit.isFailure))
        // The address may lead to another server by now: the connection is made again.
        yield* eventually("it connects again", Effect.map(connections, (ids) => !ids.some((id) => first.includes(id))))
        assert.isTrue(Exit.isFailure(yield* Effect.exit(look(lease))))
        assert.isTrue(Exit.isFailure(yield* Effect.exit(mark(lease, before.tokens.get(lease)!))))
        yield* server.call("REPLICAOF", "NO", "ONE")
        yield* works(lease)
        assert.notStrictEqual((yield* look(lease)).incarnation, before.incarnation)
      })
    )

    test(
      "without memory: what must be written fails, looks included, and it works again by itself",
      Effect.gen(function*() {
        const server = yield* Redis.Server
        const { isUp } = yield* Client.Redis
        const lease = yield* held
        yield* server.configSet("maxmemory-policy", "noeviction")
        yield* server.configSet("maxmemory", "1000000")
        const error = yield* Effect.flip(renew(lease))
        assert.include(String(error.cause), "OOM")
        assert.strictEqual((yield* Effect.flip(look(lease)))._tag, "LeaseRegisterUnavailable")
        assert.isFalse(yield* isUp)
        yield* server.configSet("maxmemory", "0")
        yield* works(lease)
      })
    )
  })

  suite("connections that are cut", (test) => {
    test(
      "cut all the time: a renewal that had its effect is never answered lost",
      Effect.gen(function*() {
        const server = yield* Redis.Server
        const lease = yield* held
        yield* Effect.forkScoped(Effect.forever(
          Effect.andThen(Effect.ignore(server.call("CLIENT", "KILL", "TYPE", "normal")), Effect.sleep("50 millis"))
        ))
        let answered = 0
        while (answered < 300) {
          const exit = yield* Effect.exit(renew(lease))
          if (Exit.isSuccess(exit)) {
            answered += 1
            assert.strictEqual(exit.value, "held")
          }
          yield* Effect.sleep("5 millis")
        }
      })
    )

    test(
      "a renewal whose answer was lost is asked again, and answers the same",
      Effect.gen(function*() {
        const server = yield* Redis.Server
        const proxy = yield* CuttingProxy.make({ port: server.port })
        yield* another(
          Effect.gen(function*() {
            const register = yield* LeaseRegister
            const lease = yield* held
            for (let n = 0; n < 3; n++) {
              assert.strictEqual(yield* renew(lease), "held")
            }
            yield* register.flag([lease])
            yield* proxy.loseAnswers(1)
            assert.strictEqual(yield* renew(lease), "check")
            assert.strictEqual(yield* proxy.lost, 1)
            assert.strictEqual(yield* renew(lease), "held")
          }),
          `redis://127.0.0.1:${proxy.port}`
        )
      })
    )
  })

  suite("marks", (test) => {
    test(
      "a hold whose sender was not told of the mark does not take it off",
      Effect.gen(function*() {
        const lease = yield* held
        const token = (yield* look(lease)).tokens.get(lease)!
        assert.isTrue(yield* another(mark(lease, token)))
        // Sent before the mark was made, and long under way.
        yield* hold(lease)
        assert.strictEqual(yield* renew(lease), "lost")
        // The same mark, by whoever makes it once more: who was told of it was told of this one too.
        assert.isTrue(yield* another(mark(lease, token)))
        // Told now: it has been to the record, and the record stands.
        yield* hold(lease)
        assert.strictEqual(yield* renew(lease), "held")
      })
    )

    test(
      "a flag outlives a mark, and lengthens nothing",
      Effect.gen(function*() {
        const server = yield* Redis.Server
        const register = yield* LeaseRegister
        const lease = yield* held
        yield* register.flag([lease])
        assert.isAtMost(Number(yield* server.call("PTTL", `deadman:lease:${lease}`)), 4 * leaseMs)
        assert.isTrue(yield* mark(lease, (yield* look(lease)).tokens.get(lease)!))
        // Whatever was under way when it was made comes in a minute, or never.
        assert.isAbove(Number(yield* server.call("PTTL", `deadman:lease:${lease}`)), 50_000)
        assert.strictEqual(yield* renew(lease), "lost")
        yield* hold(lease)
        assert.strictEqual(yield* renew(lease), "check")
      })
    )

    test(
      "each lease of a batch has its own length and its own mark",
      Effect.gen(function*() {
        const server = yield* Redis.Server
        const register = yield* LeaseRegister
        const leases = [3_000, 60_000, 5_000].map((leaseMs) => ({ lease: Ids.leaseId(), leaseMs }))
        const isKept = Effect.forEach(
          leases,
          ({ lease, leaseMs }) =>
            Effect.map(server.call("PTTL", `deadman:lease:${lease}`), (leftMs) => {
              assert.isAtMost(Number(leftMs), 4 * leaseMs)
              assert.isAbove(Number(leftMs), 2 * leaseMs)
            })
        )
        yield* register.hold(leases)
        yield* isKept
        yield* register.renew(leases)
        yield* isKept
        const { tokens } = yield* register.look(leases.map(({ lease }) => lease))
        for (const { lease } of leases.slice(1)) {
          assert.isTrue(yield* mark(lease, tokens.get(lease)!))
        }
        assert.deepStrictEqual(yield* register.renew(leases), ["held", "lost", "lost"])
        yield* register.hold(leases)
        assert.deepStrictEqual(yield* register.renew(leases), ["held", "held", "held"])
      })
    )

    test(
      "of many leases each is answered for in its place",
      Effect.gen(function*() {
        const register = yield* LeaseRegister
        const leases = Array.from({ length: 450 }, () => ({ lease: Ids.leaseId(), leaseMs }))
        const flagged = [10, 250, 449]
        yield* register.hold(leases.toSpliced(300, 1))
        yield* register.flag(flagged.map((n) => leases[n]!.lease))
        const { tokens } = yield* register.look(leases.map(({ lease }) => lease))
        assert.deepStrictEqual(leases.flatMap(({ lease }, n) => tokens.has(lease) ? [] : [n]), [300])
        assert.deepStrictEqual(
          yield* register.renew(leases),
          leases.map((_, n) => n === 300 ? "lost" : flagged.includes(n) ? "check" : "held")
        )
        yield* register.release(leases.map(({ lease }) => lease))
        assert.strictEqual((yield* register.look(leases.map(({ lease }) => lease))).tokens.size, 0)
      })
    )

    test(
      "the mark of a lease that is not known is kept, and is no token",
      Effect.gen(function*() {
        const lease = Ids.leaseId()
        assert.isTrue(yield* mark(lease, null))
        assert.strictEqual((yield* look(lease)).tokens.size, 0)
        assert.isTrue(yield* another(mark(lease, null)))
        yield* hold(lease)
        assert.strictEqual(yield* renew(lease), "lost")
        yield* hold(lease)
        assert.strictEqual(yield* renew(lease), "held")
        assert.isFalse(yield* mark(lease, null))
      })
    )

    test(
      "an entry in a format of the future is not touched, and its lease not known",
      Effect.gen(function*() {
        const server = yield* Redis.Server
        const lease = Ids.leaseId()
        yield* server.call("SET", `deadman:lease:${lease}`, "2 something else", "PX", "60000")
        assert.strictEqual(yield* renew(lease), "lost")
        assert.strictEqual((yield* look(lease)).tokens.size, 0)
        assert.isFalse(yield* mark(lease, null))
        yield* (yield* LeaseRegister).flag([lease])
        yield* hold(lease)
        assert.strictEqual(yield* server.call("GET", `deadman:lease:${lease}`), "2 something else")
      })
    )

    test(
      "releasing what expires at that moment does not fail, and everything expires",
      Effect.gen(function*() {
        const server = yield* Redis.Server
        const register = yield* LeaseRegister
        const [lease, marked] = [yield* held, Ids.leaseId()]
        yield* mark(marked, null)
        yield* look(lease)
        const keys = (yield* server.call("KEYS", "*")) as ReadonlyArray<string>
        assert.includeMembers([...keys], [`deadman:lease:${lease}`, `deadman:lease:${marked}`, "deadman:generation"])
        for (const key of keys) {
          assert.isAbove(Number(yield* server.call("PTTL", key)), 0, key)
          assert.isTrue(key.startsWith("deadman:"))
        }
        yield* server.call("PEXPIRE", `deadman:lease:${lease}`, "1")
        yield* register.release([lease])
        yield* register.release([lease])
        assert.strictEqual(yield* renew(lease), "lost")
      })
    )
  })

  suite("losses", (test) => {
    test(
      "a generation that is gone, alone or with everything, is another incarnation",
      Effect.gen(function*() {
        const server = yield* Redis.Server
        const lease = yield* held
        const first = yield* look(lease)
        assert.strictEqual((yield* look(lease)).incarnation, first.incarnation)
        assert.strictEqual((yield* another(look(lease))).incarnation, first.incarnation)
        yield* server.call("DEL", "deadman:generation")
        const second = yield* look(lease)
        assert.notStrictEqual(second.incarnation, first.incarnation)
        assert.strictEqual(second.tokens.get(lease), first.tokens.get(lease))
      })
    )

    test(
      "a restart from an older file is another incarnation, and its tokens come never again",
      Effect.gen(function*() {
        const server = yield* Redis.Server
        const lease = yield* held
        const first = yield* look(lease)
        yield* server.call("SAVE")
        const seen = new Set([first.tokens.get(lease)])
        for (let n = 0; n < 5; n++) {
          yield* renew(lease)
          seen.add((yield* look(lease)).tokens.get(lease))
        }
        yield* server.kill
        yield* server.start
        yield* eventually("it answers", Effect.map(Effect.exit(look(lease)), Exit.isSuccess))
        const second = yield* look(lease)
        assert.strictEqual(second.tokens.get(lease), first.tokens.get(lease))
        assert.notStrictEqual(second.incarnation, first.incarnation)
        for (let n = 0; n < 5; n++) {
          yield* renew(lease)
          const token = (yield* look(lease)).tokens.get(lease)
          assert.isFalse(seen.has(token))
        }
      })
    )
  })

  suite("going back", (test) => {
    test(
      "an older state under the same run_id is another incarnation",
      Effect.gen(function*() {
        const server = yield* Redis.Server
        const lease = yield* held
        yield* look(lease)
        yield* server.call("SAVE")
        yield* renew(lease)
        const before = yield* look(lease)
        const runId = yield* server.runId
        yield* server.call("DEBUG", "RELOAD", "NOSAVE")
        const after = yield* look(lease)
        assert.deepStrictEqual(yield* server.runId, runId)
        assert.notStrictEqual(after.incarnation, before.incarnation)
      })
    )
  })

  suite("losing all the time", (test) => {
    test(
      "a register that keeps losing its entries answers no looks, so that the rows are watched instead",
      Effect.gen(function*() {
        const server = yield* Redis.Server
        const lease = yield* held
        yield* look(lease)
        for (let n = 0; n < 2; n++) {
          yield* server.flushAll
          yield* look(lease)
        }
        yield* server.flushAll
        const error = yield* Effect.flip(look(lease))
        assert.include(String(error.cause), "lost its entries")
        assert.strictEqual((yield* Effect.flip(look(lease)))._tag, "LeaseRegisterUnavailable")
        yield* works(lease)
      })
    )

    test(
      "losses that are half a minute old are forgotten",
      Effect.gen(function*() {
        const server = yield* Redis.Server
        const clock = yield* Clock.Clock
        const later = { ms: 0 }
        const monotonicTimeNanosUnsafe = () => clock.monotonicTimeNanosUnsafe() + BigInt(later.ms) * 1_000_000n
        const moved: Clock.Clock = Object.assign(Object.create(clock), {
          monotonicTimeNanosUnsafe,
          monotonicTimeNanos: Effect.sync(monotonicTimeNanosUnsafe)
        })
        yield* another(Effect.gen(function*() {
          const lease = yield* held
          yield* look(lease)
          for (let n = 0; n < 2; n++) {
            yield* server.flushAll
            yield* look(lease)
          }
          later.ms += 30_000
          yield* server.flushAll
          const { incarnation } = yield* look(lease)
          assert.strictEqual((yield* look(lease)).incarnation, incarnation)
        })).pipe(Effect.provideService(Clock.Clock, moved))
      })
    )
  })
})
