import { assert, it } from "@effect/vitest"
import { Duration, Effect, Fiber, Layer, Ref } from "effect"
import { TestClock } from "effect/testing"
import * as DelayedJobsMemory from "../../../src/adapters/memory/DelayedJobsMemory.ts"
import * as TransportMemory from "../../../src/adapters/memory/TransportMemory.ts"
import { JobStore, JobStoreUnavailable } from "../../../src/ports/JobStore.ts"
import { Transport, TransportUnavailable } from "../../../src/ports/Transport.ts"
import * as Announcer from "../../../src/programs/keeper/Announcer.ts"
import * as KeeperConfig from "../../../src/programs/keeper/KeeperConfig.ts"
import * as Promoter from "../../../src/programs/keeper/Promoter.ts"
import * as Pruner from "../../../src/programs/keeper/Pruner.ts"
import * as Loops from "../../../src/programs/process/Loops.ts"
import * as Stage from "./Stage.ts"

const provided = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.provide(effect, Layer.mergeAll(Stage.memory, DelayedJobsMemory.layer, TransportMemory.layer, Loops.layer))

it.effect("a delayed job becomes ready at its time, within a poll, and not before", () =>
  provided(Effect.gen(function*() {
    const store = yield* JobStore
    const now = yield* store.now
    const job = Stage.newJob({ runAtMs: now + 30_000 })
    yield* store.submit([job], { atomic: false })
    const running = yield* Effect.forkChild(Effect.scoped(Promoter.run))
    const claim = Stage.claimAgain("ada")
    yield* TestClock.adjust("29 seconds")
    assert.lengthOf(yield* claim, 0)
    for (let n = 0; n < 30; n++) {
      yield* TestClock.adjust("100 millis")
    }
    assert.lengthOf(yield* claim, 1)
    yield* Fiber.interrupt(running)
  })))

it.effect("a dead job is announced again when the announcement did not go out", () =>
  provided(Effect.gen(function*() {
    const store = yield* JobStore
    const transport = yield* Transport
    const job = Stage.newJob()
    yield* store.submit([job], { atomic: false })
    yield* store.cancel(job.id)
    const said = yield* Ref.make<ReadonlyArray<string>>([])
    const broken = yield* Ref.make(true)
    const flaky: Transport["Service"] = {
      ...transport,
      announceDead: (letters) =>
        Effect.gen(function*() {
          yield* Ref.update(said, (ids) => [...ids, ...letters.map(({ id }) => id)])
          if (yield* Ref.get(broken)) {
            return yield* new TransportUnavailable({ operation: "announceDead", cause: "away" })
          }
        })
    }
    const round = Announcer.round.pipe(Effect.provideService(Transport, flaky))
    yield* Effect.flip(round)
    yield* Ref.set(broken, false)
    assert.strictEqual(yield* round, 1)
    assert.strictEqual(yield* round, 0)
    assert.deepStrictEqual(yield* Ref.get(said), [job.id, job.id])
  })))

it.effect("while dead letters cannot go out the process is ready and says so; a round that breaks is another matter", () =>
  provided(Effect.gen(function*() {
    const store = yield* JobStore
    const transport = yield* Transport
    const loops = yield* Loops.Loops
    const job = Stage.newJob()
    yield* store.submit([job], { atomic: false })
    yield* store.cancel(job.id)
    const away = yield* Ref.make<"transport" | "store" | null>("transport")
    const flaky: Transport["Service"] = {
      ...transport,
      announceDead: () =>
        Effect.flatMap(
          Ref.get(away),
          (who) =>
            who === null
              ? Effect.void
              : Effect.fail(new TransportUnavailable({ operation: "announceDead", cause: who }))
        )
    }
    const broken: JobStore["Service"] = {
      ...store,
      deadLetters: (limit) =>
        Effect.flatMap(Ref.get(away), (who) =>
          who === "store"
            ? Effect.fail(new JobStoreUnavailable({ operation: "deadLetters", cause: who }))
            : store.deadLetters(limit))
    }
    yield* Effect.forkChild(Announcer.run.pipe(
      Effect.provideService(Transport, flaky),
      Effect.provideService(JobStore, broken),
      Effect.provide(KeeperConfig.layer())
    ))
    const after = Effect.andThen(
      Effect.forEach(Array.from({ length: 80 }), () => TestClock.adjust("500 millis")),
      Effect.all([loops.degraded, loops.status])
    )
    const [letters, [loop]] = yield* after
    assert.match(letters.join(), /dead letters wait/)
    assert.isTrue(loop?.ok)
    yield* Ref.set(away, "store")
    const [none, [deaf]] = yield* after
    assert.deepStrictEqual(none, [])
    assert.isFalse(deaf?.ok)
    yield* Ref.set(away, null)
    const [well, [again]] = yield* after
    assert.deepStrictEqual(well, [])
    assert.isTrue(again?.ok)
  })))

it.effect("what is final is pruned after its time, and nothing else ever", () =>
  provided(Effect.gen(function*() {
    const store = yield* JobStore
    const gone = Stage.newJob()
    const waiting = Stage.newJob({ runAtMs: (yield* store.now) + Duration.toMillis("365 days") })
    yield* store.submit([gone, waiting], { atomic: false })
    yield* store.cancel(gone.id)
    yield* Announcer.round
    yield* TestClock.adjust("29 days")
    yield* Pruner.round
    assert.lengthOf(yield* store.get([gone.id, waiting.id]), 2)
    yield* TestClock.adjust("2 days")
    yield* Pruner.round
    assert.deepStrictEqual((yield* store.get([gone.id, waiting.id])).map(({ id }) => id), [waiting.id])
  })))
