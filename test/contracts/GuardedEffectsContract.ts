/**
 * The laws of `GuardedEffects`, for any adapter.
 *
 * `claim` gives a claim that is current, of a job of its own; `end` settles it,
 * and `lose` gives its job to nobody, as a reclaim does.
 */
import { assert, it } from "@effect/vitest"
import { Effect, type Layer } from "effect"
import { type Claim, Epoch } from "../../src/domain/Claim.ts"
import { GuardedEffects } from "../../src/ports/GuardedEffects.ts"
import * as Ids from "../support/Ids.ts"

export interface Options<R> {
  readonly claim: Effect.Effect<Claim, unknown, R>
  readonly end: (claim: Claim) => Effect.Effect<void, unknown, R>
  readonly lose: (claim: Claim) => Effect.Effect<void, unknown, R>
}

export const suite = <R, E>(
  adapter: string,
  layer: Layer.Layer<GuardedEffects | R, E>,
  options: Options<R>
) =>
  it.layer(layer, { timeout: "2 minutes", excludeTestServices: true })(`GuardedEffects (${adapter})`, (it) => {
    const claim = Effect.orDie(options.claim)
    const freshKey = () => `effect-${Ids.leaseId()}`

    it.effect("the effect is recorded under a current claim", () =>
      Effect.gen(function*() {
        const effects = yield* GuardedEffects
        assert.strictEqual(yield* effects.once(yield* claim, freshKey(), "ada"), "fired")
      }))

    it.effect("under one key it is recorded once, whoever asks, however often", () =>
      Effect.gen(function*() {
        const effects = yield* GuardedEffects
        const key = freshKey()
        const [first, second] = [yield* claim, yield* claim]
        assert.strictEqual(yield* effects.once(first, key, "ada"), "fired")
        assert.strictEqual(yield* effects.once(first, key, "ada"), "already")
        assert.strictEqual(yield* effects.once(second, key, "bob"), "already")
        assert.strictEqual(yield* effects.once(second, freshKey(), "bob"), "fired")
      }))

    it.effect("of many who ask at once, one fires", () =>
      Effect.gen(function*() {
        const effects = yield* GuardedEffects
        const key = freshKey()
        const claims = yield* Effect.forEach(Array.from({ length: 6 }), () => claim)
        const answers = yield* Effect.forEach(
          claims,
          (claim) => effects.once(claim, key, "ada"),
          { concurrency: "unbounded" }
        )
        assert.strictEqual(answers.filter((answer) => answer === "fired").length, 1)
      }))

    const refused = Effect.fnUntraced(function*(stale: Claim) {
      const effects = yield* GuardedEffects
      const key = freshKey()
      const error = yield* Effect.flip(effects.once(stale, key, "ada"))
      assert.strictEqual(error._tag, "ClaimNotCurrent")
      // Nothing was recorded: the key is free for whoever holds the job now.
      assert.strictEqual(yield* effects.once(yield* claim, key, "bob"), "fired")
    })

    it.effect("a claim whose job was lost records nothing", () =>
      Effect.gen(function*() {
        const stale = yield* claim
        yield* Effect.orDie(options.lose(stale))
        yield* refused(stale)
      }))

    it.effect("a claim that has settled records nothing", () =>
      Effect.gen(function*() {
        const stale = yield* claim
        yield* Effect.orDie(options.end(stale))
        yield* refused(stale)
      }))

    it.effect("a claim of another epoch, or of no job, records nothing", () =>
      Effect.gen(function*() {
        const current = yield* claim
        yield* refused({ ...current, epoch: Epoch.make(current.epoch + 1) })
        yield* refused({ ...current, id: Ids.jobId() })
      }))
  })
