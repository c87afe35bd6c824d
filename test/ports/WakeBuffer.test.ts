import { assert, it } from "@effect/vitest"
import { Effect, Option, Queue } from "effect"
import { JobType } from "../../src/domain/Job.ts"
import type { Wake } from "../../src/ports/Transport.ts"
import * as WakeBuffer from "../../src/ports/WakeBuffer.ts"
import { eventually } from "../support/Eventually.ts"
import * as Ids from "../support/Ids.ts"

const revoked = (epoch: number): Wake => ({ _tag: "Revoked", lease: Ids.leaseId(), id: Ids.jobId(), epoch })

/** What there is to take, until it ends with `last`. */
const takeUntil = Effect.fnUntraced(function*(buffer: WakeBuffer.WakeBuffer, last: Wake["_tag"]) {
  const taken: Array<Wake> = []
  yield* eventually(
    `a last wake ${last}`,
    Effect.map(Queue.poll(buffer.wakes), (wake) => {
      if (Option.isSome(wake)) {
        taken.push(wake.value)
      }
      return taken.at(-1)?._tag === last
    })
  )
  return taken
})

it.effect("wakes of a kind that wait are one, and what was cut off comes first", () =>
  Effect.gen(function*() {
    const buffer = yield* WakeBuffer.make
    const cutOff = [revoked(1), revoked(2)]
    for (let n = 0; n < 100; n++) {
      buffer.offer({ _tag: "Due" })
      buffer.offer({ _tag: "Ready" })
    }
    cutOff.forEach(buffer.offer)
    const taken = yield* takeUntil(buffer, "Due")
    assert.deepStrictEqual(taken, [...cutOff, { _tag: "Ready" }, { _tag: "Due" }])
  }).pipe(Effect.scoped))

it.effect("types that are awaited are told together, each once, and not more than are kept", () =>
  Effect.gen(function*() {
    const buffer = yield* WakeBuffer.make
    const [a, b] = [JobType.make("a"), JobType.make("b")]
    buffer.offer({ _tag: "Awaited", types: [a] })
    buffer.offer({ _tag: "Published" })
    buffer.offer({ _tag: "Awaited", types: [b, a] })
    buffer.offer({ _tag: "Published" })
    assert.deepStrictEqual(yield* takeUntil(buffer, "Awaited"), [{ _tag: "Published" }, {
      _tag: "Awaited",
      types: [a, b]
    }])
    const many = Array.from({ length: WakeBuffer.awaitedMax + 5 }, (_, n) => JobType.make(`t${n}`))
    buffer.offer({ _tag: "Awaited", types: many })
    const [told] = yield* takeUntil(buffer, "Awaited")
    assert.deepStrictEqual(told, { _tag: "Awaited", types: many.slice(0, WakeBuffer.awaitedMax) })
  }).pipe(Effect.scoped))

it.effect("a wake that comes while its like is on its way is told again", () =>
  Effect.gen(function*() {
    const buffer = yield* WakeBuffer.make
    buffer.offer({ _tag: "Ready" })
    assert.deepStrictEqual(yield* Queue.take(buffer.wakes), { _tag: "Ready" })
    buffer.offer({ _tag: "Ready" })
    assert.deepStrictEqual(yield* Queue.take(buffer.wakes), { _tag: "Ready" })
  }).pipe(Effect.scoped))

it.effect("more claims cut off than are kept become one: anything may have happened", () =>
  Effect.gen(function*() {
    const buffer = yield* WakeBuffer.make
    for (let n = 0; n <= WakeBuffer.revokedMax; n++) {
      buffer.offer(revoked(n + 1))
    }
    buffer.offer({ _tag: "Due" })
    const taken = yield* takeUntil(buffer, "Due")
    assert.deepStrictEqual(taken, [{ _tag: "Resumed" }, { _tag: "Due" }])
  }).pipe(Effect.scoped))
