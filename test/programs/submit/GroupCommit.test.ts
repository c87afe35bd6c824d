import { assert, it } from "@effect/vitest"
import { Clock, Context, Effect, Exit, Fiber, Layer, Metric, Queue, Scope } from "effect"
import { TestClock } from "effect/testing"
import * as DelayedJobsMemory from "../../../src/adapters/memory/DelayedJobsMemory.ts"
import * as TransportMemory from "../../../src/adapters/memory/TransportMemory.ts"
import { JobType } from "../../../src/domain/Job.ts"
import type { Unique } from "../../../src/domain/Unique.ts"
import { DelayedJobs } from "../../../src/ports/DelayedJobs.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import { type JobDraft, Submitter } from "../../../src/ports/Submitter.ts"
import { Transport } from "../../../src/ports/Transport.ts"
import * as Meters from "../../../src/programs/process/Meters.ts"
import * as GroupCommit from "../../../src/programs/submit/GroupCommit.ts"
import * as Lane from "../../../src/programs/submit/Lane.ts"
import * as FaultyStore from "../../support/FaultyStore.ts"
import * as Jobs from "../../support/Jobs.ts"

const layer = GroupCommit.layer.pipe(
  Layer.provideMerge(Layer.mergeAll(FaultyStore.layer, TransportMemory.layer, DelayedJobsMemory.layer))
)

interface Options {
  readonly key?: string
  readonly fingerprint?: string
  readonly payload?: string
  readonly runAtMs?: number
  readonly delayMs?: number
  readonly unique?: Unique
}

const draft = ({ fingerprint = "same", key, ...options }: Options = {}): JobDraft =>
  Jobs.draft({ type: JobType.make("t"), key: key === undefined ? null : { key, fingerprint }, ...options })

const submitted = (drafts: ReadonlyArray<JobDraft>) =>
  Effect.flatMap(
    Submitter,
    ({ submit }) => Effect.all(drafts.map((one) => Effect.forkChild(submit(one), { startImmediately: true })))
  )

/** Fibers started by microtasks get to where they wait for the clock. */
const settle = Effect.repeat(Effect.yieldNow, { times: 20 })

const test = (
  title: string,
  body: () => Effect.Effect<
    void,
    unknown,
    Layer.Success<typeof layer> | Scope.Scope
  >
) => it.effect(title, () => Effect.scoped(body()).pipe(Effect.provide(layer)))

test("a lone submit leaves at once, and what comes while flushes are under way leaves together", () =>
  Effect.gen(function*() {
    const faults = yield* FaultyStore.Faults
    faults.submitMs = 10
    const fibers = [...yield* submitted([draft()])]
    yield* settle
    assert.strictEqual(faults.submits.length, 1, "no clock had to move")
    fibers.push(...yield* submitted(Array.from({ length: 10 }, () => draft())))
    yield* settle
    assert.strictEqual(faults.submits.length, 2)
    fibers.push(...yield* submitted(Array.from({ length: 489 }, () => draft())))
    yield* settle
    assert.strictEqual(faults.submits.length, 2, "two flushes are under way: the rest gathers")
    yield* TestClock.adjust("10 millis")
    yield* TestClock.adjust("10 millis")
    const answers = yield* Effect.all(fibers.map((fiber) => Fiber.join(fiber)))
    assert.isTrue(answers.every(({ _tag }) => _tag === "Created"))
    assert.deepStrictEqual(faults.submits.map((jobs) => jobs.length), [1, 10, 489])
  }))

test("ids are drawn in the order of the submits, and are unique", () =>
  Effect.gen(function*() {
    const { drawId } = yield* Submitter
    const ids = yield* Effect.all(Array.from({ length: 10_000 }, () => drawId))
    assert.strictEqual(new Set(ids).size, ids.length)
    assert.deepStrictEqual([...ids].sort(), ids)
    assert.isTrue(ids.every((id) => /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(id)))
    const random = new Set(ids.map((id) => id.slice(20)))
    assert.strictEqual(random.size, ids.length, "the random part alone tells them apart")
  }))

test("keyed submits go apart from unkeyed ones", () =>
  Effect.gen(function*() {
    const faults = yield* FaultyStore.Faults
    const fibers = yield* submitted(
      Array.from({ length: 40 }, (_, n) => n % 2 === 0 ? draft() : draft({ key: `k${n}` }))
    )
    yield* Effect.all(fibers.map((fiber) => Fiber.join(fiber)))
    assert.lengthOf(faults.submits.flat(), 40)
    // Together with its like: one by one they would be apart as well.
    assert.isBelow(faults.submits.length, 10)
    for (const jobs of faults.submits) {
      assert.strictEqual(new Set(jobs.map(({ key }) => key === null)).size, 1)
    }
  }))

test("unique submits go apart from those that nobody can be in the way of", () =>
  Effect.gen(function*() {
    const faults = yield* FaultyStore.Faults
    const unique = { fields: null, window_ms: null, states: ["pending"], on_conflict: "skip" } as const
    const fibers = yield* submitted(
      Array.from({ length: 40 }, (_, n) => n % 2 === 0 ? draft() : draft({ unique, payload: String(n) }))
    )
    yield* Effect.all(fibers.map((fiber) => Fiber.join(fiber)))
    assert.lengthOf(faults.submits.flat(), 40)
    assert.isBelow(faults.submits.length, 10)
    for (const jobs of faults.submits) {
      assert.strictEqual(new Set(jobs.map(({ unique }) => unique === undefined)).size, 1)
    }
  }))

test("a skipped submit is answered with the job in its way, also to whoever repeats its key", () =>
  Effect.gen(function*() {
    const unique = { fields: null, window_ms: null, states: ["pending"], on_conflict: "skip" } as const
    const { submit } = yield* Submitter
    const first = yield* submit(draft({ unique }))
    const fibers = yield* submitted([draft({ unique, key: "k" }), draft({ unique, key: "k" })])
    const answers = yield* Effect.all(fibers.map((fiber) => Fiber.join(fiber)))
    assert.strictEqual(first._tag, "Created")
    for (const answer of answers) {
      if (answer._tag !== "Skipped") return assert.fail(answer._tag)
      assert.strictEqual(answer.job.id, "id" in first && first.id)
      assert.strictEqual(answer.job.state, "pending")
    }
  }))

test("what repeats the key of a skipped submit, with something else in it, is told so", () =>
  Effect.gen(function*() {
    const unique = { fields: null, window_ms: null, states: ["pending"], on_conflict: "skip" } as const
    const { submit } = yield* Submitter
    yield* submit(draft({ unique }))
    const fibers = yield* submitted([draft({ unique, key: "k" }), draft({ unique, key: "k", fingerprint: "other" })])
    const answers = yield* Effect.all(fibers.map((fiber) => Fiber.join(fiber)))
    assert.deepStrictEqual(answers.map(({ _tag }) => _tag), ["Skipped", "KeyMismatch"])
  }))

test("a flush is bounded in rows and in bytes", () =>
  Effect.gen(function*() {
    const faults = yield* FaultyStore.Faults
    const rows = yield* submitted(Array.from({ length: 2_500 }, () => draft()))
    yield* Effect.all(rows.map((fiber) => Fiber.join(fiber)))
    assert.lengthOf(faults.submits.flat(), 2_500)
    assert.strictEqual(Math.max(...faults.submits.map((jobs) => jobs.length)), Lane.flushRowsMax)
    faults.submits.length = 0
    const payload = JSON.stringify("x".repeat(1_000_000))
    const bytes = yield* submitted(Array.from({ length: 10 }, () => draft({ payload })))
    yield* Effect.all(bytes.map((fiber) => Fiber.join(fiber)))
    assert.isTrue(faults.submits.every((jobs) => jobs.length <= 4))
    assert.strictEqual(faults.submits.flat().length, 10)
  }))

test("beyond what may wait a submit is refused at once", () =>
  Effect.gen(function*() {
    const faults = yield* FaultyStore.Faults
    faults.fault = "hanging"
    const { submit } = yield* Submitter
    yield* submitted([draft(), draft()])
    yield* settle
    yield* submitted([draft()])
    yield* settle
    yield* submitted(Array.from({ length: Lane.queueRowsMax }, () => draft()))
    const refused = yield* Effect.flip(submit(draft()))
    assert.strictEqual(refused.reason, "full")
    const keyed = yield* submitted([draft({ key: "another lane" })])
    yield* settle
    assert.isUndefined(keyed[0]?.pollUnsafe(), "the other lane has room")
    yield* TestClock.adjust(GroupCommit.deadlineMs + 200)
  }))

test("a flush whose answer was lost is sent again under the same ids, and makes each job once", () =>
  Effect.gen(function*() {
    const faults = yield* FaultyStore.Faults
    const store = yield* JobStore
    faults.fault = "lost"
    const fibers = yield* submitted([draft(), draft(), draft({ key: "k" })])
    yield* settle
    yield* TestClock.adjust("400 millis")
    faults.fault = "none"
    yield* TestClock.adjust("1 second")
    const answers = yield* Effect.all(fibers.map((fiber) => Fiber.join(fiber)))
    assert.deepStrictEqual(answers.map(({ _tag }) => _tag), ["Created", "Created", "Created"])
    assert.isTrue(faults.submits.length > 2, "it was sent again")
    assert.strictEqual(new Set(faults.submits.flat().map(({ id }) => id)).size, 3)
    assert.strictEqual((yield* store.list({ limit: 100, offset: 0 })).jobs.length, 3)
  }))

test("a store that hangs does not make a caller hang", () =>
  Effect.gen(function*() {
    const faults = yield* FaultyStore.Faults
    faults.fault = "hanging"
    const { submitAll } = yield* Submitter
    const fibers = yield* submitted([draft(), draft({ key: "k" })])
    yield* settle
    fibers.push(...yield* submitted(Array.from({ length: 5 }, () => draft())))
    const batch = yield* Effect.forkChild(submitAll([draft()]), { startImmediately: true })
    yield* settle
    yield* TestClock.adjust(GroupCommit.deadlineMs + 200)
    for (const fiber of fibers) {
      const refused = yield* Effect.flip(Fiber.join(fiber))
      assert.strictEqual(refused.reason, "store")
    }
    yield* TestClock.adjust(GroupCommit.batchDeadlineMs)
    assert.strictEqual((yield* Effect.flip(Fiber.join(batch))).reason, "store")
  }))

test("whoever goes away takes nobody else's submit along", () =>
  Effect.gen(function*() {
    const faults = yield* FaultyStore.Faults
    faults.submitMs = 10
    const fibers = yield* submitted(Array.from({ length: 20 }, () => draft()))
    yield* settle
    yield* Effect.all(fibers.filter((_, n) => n % 2 === 0).map((fiber) => Fiber.interrupt(fiber)))
    yield* TestClock.adjust("20 millis")
    const stayed = yield* Effect.all(fibers.filter((_, n) => n % 2 === 1).map((fiber) => Fiber.join(fiber)))
    assert.isTrue(stayed.every(({ _tag }) => _tag === "Created"))
  }))

test("a key that is several times in one flush is sent once", () =>
  Effect.gen(function*() {
    const faults = yield* FaultyStore.Faults
    const counts = Effect.all([Meters.counters.submitted, Meters.counters.replayed].map(Metric.value))
    const before = yield* counts
    const fibers = yield* submitted([
      draft({ key: "k" }),
      draft({ key: "k" }),
      draft({ key: "k", fingerprint: "other" }),
      draft({ key: "l" })
    ])
    const [first, same, other, another] = yield* Effect.all(fibers.map((fiber) => Fiber.join(fiber)))
    assert.strictEqual(faults.submits.flat().length, 2)
    assert.strictEqual(first?._tag, "Created")
    assert.strictEqual(same?._tag, "Replayed")
    assert.isTrue(same?._tag === "Replayed" && first?._tag === "Created" && same.job?.id === first.id)
    assert.strictEqual(other?._tag, "KeyMismatch")
    assert.strictEqual(another?._tag, "Created")
    const after = yield* counts
    assert.deepStrictEqual(after.map(({ count }, n) => count - before[n]!.count), [2, 1])
  }))

test("a repeat of a known key with another fingerprint than its leader's gets a turn of its own", () =>
  Effect.gen(function*() {
    const { submit } = yield* Submitter
    const first = yield* submit(draft({ key: "k" }))
    // The leader is refused, which says nothing about the one that came after it.
    const fibers = yield* submitted([draft({ key: "k", fingerprint: "other" }), draft({ key: "k" })])
    const [other, same] = yield* Effect.all(fibers.map((fiber) => Fiber.join(fiber)))
    assert.strictEqual(other?._tag, "KeyMismatch")
    assert.strictEqual(same?._tag, "Replayed")
    assert.isTrue(same?._tag === "Replayed" && first._tag === "Created" && same.id === first.id)
  }))

test("an atomic batch is a commit of its own, in order", () =>
  Effect.gen(function*() {
    const faults = yield* FaultyStore.Faults
    const { submitAll } = yield* Submitter
    const answers = yield* submitAll([draft(), draft({ key: "k" }), draft({ key: "k" })])
    assert.deepStrictEqual(answers.map(({ _tag }) => _tag), ["Created", "Created", "Replayed"])
    assert.strictEqual(faults.submits.length, 1)
    const mixed = yield* submitAll([draft(), draft({ key: "k", fingerprint: "other" })])
    assert.deepStrictEqual(mixed.map(({ _tag }) => _tag), ["Aborted", "KeyMismatch"])
  }))

test("batches under way and those that wait are bounded, and one that has ended makes room", () =>
  Effect.gen(function*() {
    const faults = yield* FaultyStore.Faults
    const { submitAll } = yield* Submitter
    faults.fault = "hanging"
    const fibers = yield* Effect.forEach(
      Array.from({ length: GroupCommit.batchesMax + GroupCommit.batchesWaitingMax }),
      () => Effect.forkChild(Effect.flip(submitAll([draft()])), { startImmediately: true })
    )
    yield* settle
    assert.lengthOf(faults.submits, GroupCommit.batchesMax)
    assert.strictEqual((yield* Effect.flip(submitAll([draft()]))).reason, "full")
    assert.isTrue(fibers.every((fiber) => fiber.pollUnsafe() === undefined))
    for (let passedMs = 0; passedMs <= 10 * GroupCommit.batchDeadlineMs; passedMs += GroupCommit.batchDeadlineMs) {
      yield* TestClock.adjust(GroupCommit.batchDeadlineMs)
      yield* settle
    }
    for (const fiber of fibers) {
      assert.strictEqual((yield* Fiber.join(fiber)).reason, "store")
    }
    faults.fault = "none"
    assert.deepStrictEqual((yield* submitAll([draft()])).map(({ _tag }) => _tag), ["Created"])
  }))

test("a batch that waits for what others do not need holds up no other", () =>
  Effect.gen(function*() {
    const faults = yield* FaultyStore.Faults
    const { submitAll } = yield* Submitter
    faults.undecided.add("t")
    const held = yield* Effect.forEach(
      Array.from({ length: 2 * GroupCommit.batchesMax }),
      () => Effect.forkChild(submitAll([draft()]), { startImmediately: true })
    )
    yield* settle
    const free = yield* submitAll([{ ...draft(), type: JobType.make("free") }])
    assert.deepStrictEqual(free.map(({ _tag }) => _tag), ["Created"], "no clock had to move")
    faults.undecided.clear()
    yield* TestClock.adjust("1 second")
    for (const fiber of held) {
      assert.deepStrictEqual((yield* Fiber.join(fiber)).map(({ _tag }) => _tag), ["Created"])
    }
  }))

test("a large batch that is repeated is answered beside others, however many jobs are read for that", () =>
  Effect.gen(function*() {
    const faults = yield* FaultyStore.Faults
    const { submitAll } = yield* Submitter
    const drafts = Array.from({ length: 400 }, (_, n) => draft({ key: `k${n}` }))
    yield* submitAll(drafts)
    faults.submitMs = 2_000
    const others = yield* Effect.forEach(
      Array.from({ length: GroupCommit.batchesMax }),
      () => Effect.forkChild(Effect.forever(submitAll([draft()])), { startImmediately: true })
    )
    const again = yield* Effect.forkChild(submitAll(drafts), { startImmediately: true })
    for (let passedMs = 0; passedMs < GroupCommit.batchDeadlineMs; passedMs += 500) {
      yield* settle
      yield* TestClock.adjust(500)
    }
    const answered = again.pollUnsafe()
    yield* Fiber.interruptAll(others)
    yield* TestClock.adjust(GroupCommit.batchDeadlineMs)
    assert.isDefined(answered)
    assert.deepStrictEqual(new Set((yield* Fiber.join(again)).map(({ _tag }) => _tag)), new Set(["Replayed"]))
  }))

test("the workers are told after the commit, unless the store has told them", () =>
  Effect.gen(function*() {
    const { submit } = yield* Submitter
    const transport = yield* Transport
    const { wakes } = yield* transport.subscribe({ worker: true })
    yield* submit(draft())
    const wake = yield* Queue.take(wakes)
    assert.strictEqual(wake._tag, "Ready")
    yield* submit(draft({ runAtMs: (yield* Clock.currentTimeMillis) + 60_000 }))
    yield* settle
    const nowMs = yield* Clock.currentTimeMillis
    yield* submit(draft({ delayMs: 30_000 }))
    yield* settle
    assert.strictEqual(yield* Queue.size(wakes), 0, "what is not due wakes nobody")
    const { nextMs } = yield* (yield* DelayedJobs).due(nowMs, 10)
    assert.strictEqual(nextMs, nowMs + 30_000, "the promoter knows when a delay is over")
  }))

const keyed = (count: number) => Array.from({ length: count }, (_, n) => draft({ key: `k${n}` }))

const answersTo = (drafts: ReadonlyArray<JobDraft>) =>
  Effect.flatMap(submitted(drafts), (fibers) => Effect.all(fibers.map((fiber) => Fiber.join(fiber))))

test("jobs that are shown in answers are read few at a time: each brings its payload and its result", () =>
  Effect.gen(function*() {
    const { reads } = yield* FaultyStore.Faults
    const drafts = keyed(120)
    const ids = (yield* answersTo(drafts)).flatMap((said) => said._tag === "Created" ? [said.id] : [])
    const shown = (yield* answersTo(drafts)).flatMap((said) => said._tag === "Replayed" ? [said.job?.id] : [])
    assert.deepStrictEqual(shown, ids)
    assert.lengthOf(reads.flat(), 120)
    assert.isAtMost(Math.max(...reads.map(({ length }) => length)), 50)
  }))

test("jobs are read for answers only while somebody waits for these", () =>
  Effect.gen(function*() {
    const faults = yield* FaultyStore.Faults
    const drafts = keyed(120)
    yield* answersTo(drafts)
    faults.readMs = GroupCommit.deadlineMs + 1_000
    const fibers = yield* submitted(drafts)
    yield* settle
    const [first] = faults.reads
    assert.isDefined(first, "it is read")
    yield* TestClock.adjust(GroupCommit.deadlineMs + 200)
    for (const fiber of fibers) {
      assert.strictEqual((yield* Effect.flip(Fiber.join(fiber))).reason, "store")
    }
    yield* TestClock.adjust(3 * faults.readMs)
    assert.deepStrictEqual(faults.reads.flat(), first)
  }))

test("what the store does not know yet is asked again after a pause, and holds up nobody", () =>
  Effect.gen(function*() {
    const faults = yield* FaultyStore.Faults
    faults.undecided.add("t")
    const [first, same, other] = yield* submitted([
      draft({ key: "k" }),
      draft({ key: "k" }),
      draft({ key: "k", fingerprint: "other" })
    ])
    const [plain] = yield* submitted([draft()])
    const free = yield* submitted([{ ...draft(), type: JobType.make("free") }])
    assert.strictEqual((yield* Fiber.join(free[0]!))._tag, "Created", "no clock had to move")
    yield* settle
    assert.lengthOf(faults.submits, 2)
    yield* TestClock.adjust("2 seconds")
    assert.isAtLeast(faults.submits.length, 2 + 2 * 5)
    assert.isAtMost(faults.submits.length, 2 + 2 * 40)
    faults.undecided.clear()
    yield* TestClock.adjust("500 millis")
    const answers = yield* Effect.all([first!, same!, other!, plain!].map((fiber) => Fiber.join(fiber)))
    assert.deepStrictEqual(answers.map(({ _tag }) => _tag), ["Created", "Replayed", "KeyMismatch", "Created"])
    const asked = faults.submits.length
    yield* TestClock.adjust("5 seconds")
    assert.lengthOf(faults.submits, asked)
  }))

test("what stays unknown is unavailable at its deadline, and counts among what waits until then", () =>
  Effect.gen(function*() {
    const faults = yield* FaultyStore.Faults
    const { submit } = yield* Submitter
    faults.undecided.add("t")
    const rows = yield* submitted(Array.from({ length: Lane.queueRowsMax }, () => draft()))
    yield* settle
    const refused = yield* Effect.flip(submit(draft()))
    assert.strictEqual(refused._tag === "SubmitUnavailable" && refused.reason, "full")
    yield* TestClock.adjust(GroupCommit.deadlineMs + 100)
    const late = yield* Effect.all(rows.map((fiber) => Effect.flip(Fiber.join(fiber))))
    assert.deepStrictEqual(new Set(late.map((error) => error.reason)), new Set(["store"]))
    const asked = faults.submits.length
    faults.undecided.clear()
    assert.strictEqual((yield* submit(draft()))._tag, "Created")
    yield* TestClock.adjust("1 second")
    assert.lengthOf(faults.submits, asked + 1, "nothing is sent for whoever was answered")
  }))

it.effect("closing waits for what is under way, and refuses what is new", () =>
  Effect.gen(function*() {
    const scope = yield* Scope.make()
    const context = yield* Layer.buildWithScope(layer, scope)
    const { submit } = Context.get(context, Submitter)
    const faults = Context.get(context, FaultyStore.Faults)
    faults.submitMs = 500
    const inFlight = yield* Effect.forkChild(submit(draft()), { startImmediately: true })
    yield* settle
    const closing = yield* Effect.forkChild(Scope.close(scope, Exit.void), { startImmediately: true })
    yield* settle
    assert.strictEqual((yield* Effect.flip(submit(draft()))).reason, "stopping")
    assert.isUndefined(closing.pollUnsafe(), "it waits")
    yield* TestClock.adjust("600 millis")
    assert.strictEqual((yield* Fiber.join(inFlight))._tag, "Created")
    yield* Fiber.join(closing)
  }))

it.effect("closing waits for what the store does not know yet, until its deadline", () =>
  Effect.gen(function*() {
    const scope = yield* Scope.make()
    const context = yield* Layer.buildWithScope(layer, scope)
    const faults = Context.get(context, FaultyStore.Faults)
    faults.undecided.add("t")
    faults.undecided.add("never")
    const [known, unknown] = yield* submitted([draft(), { ...draft(), type: JobType.make("never") }]).pipe(
      Effect.provide(context)
    )
    yield* settle
    const closing = yield* Effect.forkChild(Scope.close(scope, Exit.void), { startImmediately: true })
    yield* TestClock.adjust("1 second")
    assert.isUndefined(closing.pollUnsafe(), "both are at rest between two tries")
    faults.undecided.delete("t")
    yield* TestClock.adjust("1 second")
    assert.strictEqual((yield* Fiber.join(known!))._tag, "Created")
    assert.isUndefined(closing.pollUnsafe())
    yield* TestClock.adjust(GroupCommit.deadlineMs - 1_900)
    assert.strictEqual((yield* Effect.flip(Fiber.join(unknown!))).reason, "store")
    yield* Fiber.join(closing)
    const asked = faults.submits.length
    yield* TestClock.adjust("5 seconds")
    assert.lengthOf(faults.submits, asked)
  }))
