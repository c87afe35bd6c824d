/**
 * The laws of `LeaseRegister`, for any adapter.
 *
 * Every test draws fresh leases, so the tests share one layer without sharing
 * state. Where the register is the store's own record, `prepare` puts the rows
 * there that a claim would have written.
 */
import { assert, it } from "@effect/vitest"
import { Duration, Effect, type Layer } from "effect"
import { TestClock } from "effect/testing"
import type { LeaseId } from "../../src/domain/Claim.ts"
import { heartbeatMs } from "../../src/domain/Watch.ts"
import { LeaseRegister } from "../../src/ports/LeaseRegister.ts"
import { eventually } from "../support/Eventually.ts"
import * as Ids from "../support/Ids.ts"

export interface Options<R> {
  /** `test`: the adapter lives on the Effect clock, which is moved. `live`: its server keeps its own time. */
  readonly clock: "test" | "live"
  /** Puts the records there, where the register does not make its own entries. */
  readonly prepare?: (leases: ReadonlyArray<LeaseId>, leaseMs: number) => Effect.Effect<void, unknown, R>
  /** How long an entry may outlive its last renewal; absent where the store takes the record away. */
  readonly keptMs?: (leaseMs: number) => number
  /** Loses everything, as a restart from nothing does. */
  readonly forget?: Effect.Effect<void, unknown, R>
}

const leaseMs = 5_000

export const suite = <R, E>(
  adapter: string,
  layer: Layer.Layer<LeaseRegister | R, E>,
  options: Options<R>
) =>
  it.layer(layer, { timeout: "2 minutes", excludeTestServices: options.clock === "live" })(
    `LeaseRegister (${adapter})`,
    (it) => {
      const pass = (ms: number) =>
        options.clock === "test" ? TestClock.adjust(Duration.millis(ms)) : Effect.sleep(Duration.millis(ms))

      const held = Effect.fnUntraced(function*(count: number, length = leaseMs) {
        const register = yield* LeaseRegister
        const leases = Array.from({ length: count }, Ids.leaseId)
        yield* Effect.orDie(options.prepare?.(leases, length) ?? Effect.void)
        yield* register.hold(leases.map((lease) => ({ lease, leaseMs: length })))
        return leases
      })

      const tokenOf = (lease: LeaseId) =>
        Effect.map(
          Effect.flatMap(LeaseRegister, (register) => register.look([lease])),
          ({ tokens }) => tokens.get(lease)
        )

      it.effect("a held lease answers held, and each renewal moves its token", () =>
        Effect.gen(function*() {
          const register = yield* LeaseRegister
          const [lease] = yield* held(1)
          const seen = [yield* tokenOf(lease!)]
          for (let n = 0; n < 3; n++) {
            assert.deepStrictEqual(yield* register.renew([{ lease: lease!, leaseMs }]), ["held"])
            seen.push(yield* tokenOf(lease!))
          }
          assert.isFalse(seen.includes(undefined))
          assert.strictEqual(new Set(seen).size, 4)
        }))

      it.effect("looking moves nothing", () =>
        Effect.gen(function*() {
          const [lease] = yield* held(1)
          assert.strictEqual(yield* tokenOf(lease!), yield* tokenOf(lease!))
        }))

      it.effect("an unknown lease answers lost, and renewing makes nothing", () =>
        Effect.gen(function*() {
          const register = yield* LeaseRegister
          const lease = Ids.leaseId()
          assert.deepStrictEqual(yield* register.renew([{ lease, leaseMs }]), ["lost"])
          assert.deepStrictEqual(yield* register.renew([{ lease, leaseMs }]), ["lost"])
          assert.isUndefined(yield* tokenOf(lease))
        }))

      it.effect("one renewal answers for a whole batch, in its order", () =>
        Effect.gen(function*() {
          const register = yield* LeaseRegister
          const leases = yield* held(20)
          const asked = leases.flatMap((lease) => [lease, Ids.leaseId()])
          const answers = yield* register.renew(asked.map((lease) => ({ lease, leaseMs })))
          assert.deepStrictEqual(answers, asked.map((_, n) => n % 2 === 0 ? "held" : "lost"))
          assert.deepStrictEqual(yield* register.renew([]), [])
        }))

      it.effect("a mark under the watched token makes renewals lost, until the lease is held again", () =>
        Effect.gen(function*() {
          const register = yield* LeaseRegister
          const [lease, other] = yield* held(2)
          const token = yield* tokenOf(lease!)
          assert.isTrue(yield* register.markLapsed(lease!, token!))
          assert.deepStrictEqual(
            yield* register.renew([lease!, other!].map((lease) => ({ lease, leaseMs }))),
            ["lost", "held"]
          )
          yield* register.hold([{ lease: lease!, leaseMs }])
          assert.deepStrictEqual(yield* register.renew([{ lease: lease!, leaseMs }]), ["held"])
        }))

      it.effect("a mark may be made again under the same token, since its maker may die before the deed", () =>
        Effect.gen(function*() {
          const register = yield* LeaseRegister
          const [lease] = yield* held(1)
          const token = yield* tokenOf(lease!)
          assert.isTrue(yield* register.markLapsed(lease!, token!))
          assert.strictEqual(yield* tokenOf(lease!), token)
          assert.isTrue(yield* register.markLapsed(lease!, token!))
        }))

      it.effect("a renewal before the mark makes the mark fail", () =>
        Effect.gen(function*() {
          const register = yield* LeaseRegister
          const [lease] = yield* held(1)
          const token = yield* tokenOf(lease!)
          yield* register.renew([{ lease: lease!, leaseMs }])
          assert.isFalse(yield* register.markLapsed(lease!, token!))
          assert.deepStrictEqual(yield* register.renew([{ lease: lease!, leaseMs }]), ["held"])
          assert.isFalse(yield* register.markLapsed(Ids.leaseId(), token!))
        }))

      it.effect("a mark without a token is for a lease that is not known", () =>
        Effect.gen(function*() {
          const register = yield* LeaseRegister
          const [lease] = yield* held(1)
          const unknown = Ids.leaseId()
          assert.isFalse(yield* register.markLapsed(lease!, null))
          assert.isTrue(yield* register.markLapsed(unknown, null))
          assert.deepStrictEqual(
            yield* register.renew([lease!, unknown].map((lease) => ({ lease, leaseMs }))),
            ["held", "lost"]
          )
        }))

      it.effect("of a renewal and a mark that race, exactly one wins", () =>
        Effect.gen(function*() {
          const register = yield* LeaseRegister
          const leases = yield* held(30)
          const { tokens } = yield* register.look(leases)
          yield* Effect.forEach(
            leases,
            Effect.fnUntraced(function*(lease) {
              const [[renewal], marked] = yield* Effect.all([
                register.renew([{ lease, leaseMs }]),
                register.markLapsed(lease, tokens.get(lease)!)
              ], { concurrency: 2 })
              assert.strictEqual(renewal, marked ? "lost" : "held")
            }),
            { concurrency: 10 }
          )
        }))

      it.effect("a flag makes the next renewal answer check", () =>
        Effect.gen(function*() {
          const register = yield* LeaseRegister
          const [flagged, other] = yield* held(2)
          yield* register.flag([flagged!, Ids.leaseId()])
          assert.deepStrictEqual(
            yield* register.renew([flagged!, other!].map((lease) => ({ lease, leaseMs }))),
            ["check", "held"]
          )
        }))

      it.effect("a flag stays where the lease is held again, and takes no mark off", () =>
        Effect.gen(function*() {
          const register = yield* LeaseRegister
          const [flagged, marked] = yield* held(2)
          yield* register.flag([flagged!])
          yield* register.hold([{ lease: flagged!, leaseMs }])
          assert.deepStrictEqual(yield* register.renew([{ lease: flagged!, leaseMs }]), ["check"])
          const token = yield* tokenOf(marked!)
          assert.isTrue(yield* register.markLapsed(marked!, token!))
          yield* register.flag([marked!])
          assert.strictEqual(yield* tokenOf(marked!), token, "a flag is no sign of life")
          assert.deepStrictEqual(yield* register.renew([{ lease: marked!, leaseMs }]), ["lost"])
        }))

      it.effect("a look answers the known leases and no others, in one incarnation", () =>
        Effect.gen(function*() {
          const register = yield* LeaseRegister
          const leases = yield* held(3)
          const unknown = Ids.leaseId()
          const first = yield* register.look([...leases, unknown])
          assert.sameMembers(Array.from(first.tokens.keys()), leases)
          assert.isNotEmpty(first.incarnation)
          assert.strictEqual((yield* register.look([])).incarnation, first.incarnation)
        }))

      it.effect("releasing what is not held changes nothing and does not fail", () =>
        Effect.gen(function*() {
          const register = yield* LeaseRegister
          const [lease] = yield* held(1)
          yield* register.release([Ids.leaseId()])
          yield* register.release([])
          assert.deepStrictEqual(yield* register.renew([{ lease: lease!, leaseMs }]), ["held"])
        }))

      const { forget, keptMs } = options

      if (keptMs !== undefined) {
        it.effect("a lease that is silent for as long as a reaper watches it is still known, by its last token", () =>
          Effect.gen(function*() {
            const short = 1_000
            const [silent] = yield* held(1, short)
            const token = yield* tokenOf(silent!)
            yield* pass(short + 2 * heartbeatMs(short))
            assert.isDefined(token)
            assert.strictEqual(yield* tokenOf(silent!), token)
          }))

        it.effect("what is released, or not renewed for long, is unknown", () =>
          Effect.gen(function*() {
            const register = yield* LeaseRegister
            const short = 200
            const [released, silent, renewed] = yield* held(3, short)
            yield* register.release([released!])
            assert.isUndefined(yield* tokenOf(released!))
            assert.isDefined(yield* tokenOf(silent!))
            const renewals = Math.ceil(keptMs(short) / short) + 2
            for (let n = 0; n < renewals; n++) {
              yield* pass(short)
              assert.deepStrictEqual(yield* register.renew([{ lease: renewed!, leaseMs: short }]), ["held"])
            }
            yield* eventually(
              "the silent lease is unknown",
              Effect.map(tokenOf(silent!), (token) => token === undefined)
            )
            assert.deepStrictEqual(yield* register.renew([{ lease: silent!, leaseMs: short }]), ["lost"])
          }))
      }

      if (forget !== undefined) {
        it.effect("losing everything makes leases unknown, in another incarnation", () =>
          Effect.gen(function*() {
            const register = yield* LeaseRegister
            const [lease] = yield* held(1)
            const before = yield* register.look([lease!])
            yield* Effect.orDie(forget)
            const after = yield* register.look([lease!])
            assert.notStrictEqual(after.incarnation, before.incarnation)
            assert.strictEqual(after.tokens.size, 0)
            assert.isFalse(yield* register.markLapsed(lease!, before.tokens.get(lease!)!))
            assert.deepStrictEqual(yield* register.renew([{ lease: lease!, leaseMs }]), ["lost"])
            yield* register.hold([{ lease: lease!, leaseMs }])
            assert.deepStrictEqual(yield* register.renew([{ lease: lease!, leaseMs }]), ["held"])
          }))
      }
    }
  )
