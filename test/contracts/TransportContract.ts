/**
 * The laws of `Transport`, for any adapter.
 *
 * Subscribers of one process are used for subscribers of several: what reaches
 * each of them went through the adapter's server and back.
 */
import { assert, it } from "@effect/vitest"
import { type Duration, Effect, Exit, type Layer, Option, Queue, Scope } from "effect"
import { Epoch } from "../../src/domain/Claim.ts"
import { JobType, queueDefault } from "../../src/domain/Job.ts"
import type { JobId } from "../../src/domain/JobId.ts"
import { type Delivery, type ReadyJob, type Subscription, Transport, type Wake } from "../../src/ports/Transport.ts"
import { eventually } from "../support/Eventually.ts"
import * as Ids from "../support/Ids.ts"

export interface Options<R> {
  /** Whether jobs are delivered by id. */
  readonly deliveries: boolean
  /** How long a delivery may take that has to change hands. */
  readonly within?: Duration.Input
  /** Cuts the connections under all subscriptions. */
  readonly disconnect?: Effect.Effect<void, unknown, R>
  /** Sends what cannot be read. */
  readonly garbage?: Effect.Effect<void, unknown, R>
}

const job = (): ReadyJob => ({ id: Ids.jobId(), type: JobType.make("noop"), queue: queueDefault })

/** What one subscriber was told, gathered as it comes. */
const gather = Effect.fnUntraced(function*(subscription: Subscription, acknowledge: boolean) {
  const wakes: Array<Wake> = []
  const ids: Array<JobId> = []
  const open: Array<Delivery> = []
  yield* Effect.forkScoped(Effect.forever(Effect.map(Queue.take(subscription.wakes), (wake) => wakes.push(wake))))
  yield* Effect.forkScoped(Effect.forever(Effect.gen(function*() {
    const delivery = yield* Queue.take(subscription.deliveries)
    ids.push(...delivery.ids)
    open.push(delivery)
    if (acknowledge) {
      yield* delivery.acknowledge(delivery.ids)
    }
  })))
  const told = (tag: Wake["_tag"]) => wakes.filter((wake) => wake._tag === tag).length
  return { wakes, ids, open, told }
})

export const suite = <R, E>(
  adapter: string,
  layer: Layer.Layer<Transport | R, E>,
  options: Options<R>
) =>
  it.layer(layer, { timeout: "2 minutes", excludeTestServices: true })(`Transport (${adapter})`, (it) => {
    const within = options.within ?? "30 seconds"

    const subscriber = Effect.fnUntraced(function*(worker = true, acknowledge = true) {
      const transport = yield* Transport
      const subscription = yield* transport.subscribe({ worker })
      return { subscription, ...(yield* gather(subscription, acknowledge)) }
    })

    it.effect("each published job reaches some worker, by its id or as a wake", () =>
      Effect.gen(function*() {
        const transport = yield* Transport
        const [a, b] = [yield* subscriber(), yield* subscriber()]
        const jobs = Array.from({ length: 120 }, job)
        yield* transport.publish(jobs)
        yield* eventually(
          "all ids, or a wake",
          Effect.sync(() => {
            const seen = new Set([...a.ids, ...b.ids])
            return a.told("Ready") > 0 || b.told("Ready") > 0 || jobs.every(({ id }) => seen.has(id))
          }),
          within
        )
      }).pipe(Effect.scoped), 180_000)

    it.effect("a wake reaches every subscriber, also those that run no jobs", () =>
      Effect.gen(function*() {
        const transport = yield* Transport
        const all = [yield* subscriber(), yield* subscriber(), yield* subscriber(false)]
        const revoked: Wake = { _tag: "Revoked", lease: Ids.leaseId(), id: Ids.jobId(), epoch: Epoch.make(3) }
        yield* transport.wake([{ _tag: "Ready" }, { _tag: "Due" }, revoked])
        for (const one of all) {
          yield* eventually(
            "all three wakes",
            Effect.sync(() => one.told("Ready") > 0 && one.told("Due") > 0 && one.told("Revoked") > 0),
            within
          )
          assert.deepInclude(one.wakes, revoked)
        }
      }).pipe(Effect.scoped), 180_000)

    it.effect("many claims cut off at once are all named", () =>
      Effect.gen(function*() {
        const transport = yield* Transport
        const one = yield* subscriber()
        const cutOff = Array.from({ length: 300 }, (_, n) => ({
          _tag: "Revoked" as const,
          lease: Ids.leaseId(),
          id: Ids.jobId(),
          epoch: n + 1
        }))
        yield* transport.wake(cutOff)
        yield* eventually("300 names", Effect.sync(() => one.told("Revoked") === 300), within)
        assert.deepStrictEqual(one.wakes.filter((wake) => wake._tag === "Revoked"), cutOff)
      }).pipe(Effect.scoped), 180_000)

    it.effect("a subscriber that takes nothing is told less, never nothing, and holds nobody up", () =>
      Effect.gen(function*() {
        const transport = yield* Transport
        const slow = yield* transport.subscribe({ worker: false })
        const quick = yield* subscriber(false)
        for (let n = 0; n < 200; n++) {
          yield* transport.wake([{ _tag: "Ready" }, { _tag: "Due" }])
        }
        yield* eventually(
          "the quick one was told",
          Effect.sync(() =>
            quick.told("Due") > 0
          ),
          within
        )
        // A last wake that the slow one can only know of by its own buffer.
        const last: Wake = { _tag: "Revoked", lease: Ids.leaseId(), id: Ids.jobId(), epoch: 1 }
        yield* transport.wake([last])
        const taken: Array<Wake> = []
        yield* eventually(
          "the slow one was told",
          Effect.map(Queue.poll(slow.wakes), (wake) => {
            if (Option.isSome(wake)) {
              taken.push(wake.value)
            }
            return taken.some(({ _tag }) => _tag === "Ready") && taken.some(({ _tag }) => _tag === "Due") &&
              taken.some(({ _tag }) => _tag === "Revoked")
          }),
          within
        )
        assert.isBelow(taken.length, 50)
      }).pipe(Effect.scoped), 180_000)

    it.effect("a job that keeps the store's order is told by a wake", () =>
      Effect.gen(function*() {
        const transport = yield* Transport
        const one = yield* subscriber()
        const ordered = job()
        yield* transport.publish([{ ...ordered, ordered: true }])
        yield* eventually(
          "a wake",
          Effect.sync(() =>
            one.told("Ready") > 0
          ),
          within
        )
        assert.notInclude(one.ids, ordered.id)
      }).pipe(Effect.scoped), 180_000)

    it.effect("what is published of an awaited type is told to all subscribers by a wake, and of no other", () =>
      Effect.gen(function*() {
        const transport = yield* Transport
        const all = [yield* subscriber(), yield* subscriber(false)]
        const [awaited, other] = [JobType.make(Ids.jobId()), JobType.make(Ids.jobId())]
        yield* transport.awaits([awaited])
        yield* transport.publish([{ ...job(), type: awaited }])
        const told = (tag: Wake["_tag"]) =>
          all.every((one) => one.told(tag) > 0)
        yield* eventually("a wake", Effect.sync(() => told("Ready") || told("Published")), within)
        if (options.deliveries) {
          const before = all.map((one) => one.told("Published"))
          yield* transport.publish([{ ...job(), type: other }])
          yield* transport.wake([{ _tag: "Due" }])
          yield* eventually("the wake behind it", Effect.sync(() => told("Due")), within)
          assert.deepStrictEqual(all.map((one) => one.told("Published")), before)
          assert.isFalse(told("Ready"))
        }
      }).pipe(Effect.scoped), 180_000)

    it.effect("a subscription is healthy", () =>
      Effect.gen(function*() {
        const { subscription } = yield* subscriber()
        yield* eventually("healthy", subscription.healthy, within)
      }).pipe(Effect.scoped), 180_000)

    it.effect("publishing and waking nothing is allowed, and dead letters are taken", () =>
      Effect.gen(function*() {
        const transport = yield* Transport
        yield* transport.publish([])
        yield* transport.wake([])
        yield* transport.announceDead([])
        yield* transport.announceDead([{
          id: Ids.jobId(),
          type: JobType.make("noop"),
          queue: queueDefault,
          reason: "rejected",
          attempts: 1,
          diedAtMs: 1
        }])
      }))

    if (options.deliveries) {
      it.effect("what was not acknowledged is delivered again after its receiver has gone", () =>
        Effect.gen(function*() {
          const transport = yield* Transport
          const scope = yield* Scope.make()
          const first = yield* Scope.provide(subscriber(true, false), scope)
          const jobs = Array.from({ length: 20 }, job)
          yield* transport.publish(jobs)
          yield* eventually(
            "a first delivery",
            Effect.sync(() =>
              first.ids.length > 0
            ),
            within
          )
          const kept = first.ids[0]!
          yield* Scope.close(scope, Exit.void)
          const second = yield* subscriber()
          yield* eventually("the delivery again", Effect.sync(() => second.ids.includes(kept)), within)
        }).pipe(Effect.scoped), 180_000)

      it.effect("what is not yet acknowledged holds back nothing else", () =>
        Effect.gen(function*() {
          const transport = yield* Transport
          const one = yield* subscriber(true, false)
          yield* transport.publish([job()])
          yield* eventually("the first delivery", Effect.sync(() => one.open.length > 0), within)
          const jobs = Array.from({ length: 100 }, job)
          yield* transport.publish(jobs)
          yield* eventually("the others", Effect.sync(() => jobs.every(({ id }) => one.ids.includes(id))), within)
          for (const delivery of one.open.toReversed()) {
            yield* delivery.acknowledge(delivery.ids.toReversed())
          }
        }).pipe(Effect.scoped), 180_000)
    }

    const { disconnect, garbage } = options

    if (disconnect !== undefined) {
      it.effect("a subscription comes back by itself, says so, and is told again", () =>
        Effect.gen(function*() {
          const transport = yield* Transport
          const one = yield* subscriber()
          yield* eventually("healthy", one.subscription.healthy, within)
          yield* Effect.orDie(disconnect)
          yield* eventually("Resumed", Effect.sync(() => one.told("Resumed") > 0), within)
          yield* eventually("healthy again", one.subscription.healthy, within)
          const before = one.told("Due")
          yield* eventually(
            "a wake after it",
            Effect.map(transport.wake([{ _tag: "Due" }]), () => one.told("Due") > before),
            within
          )
          assert.strictEqual(one.told("Resumed"), 1)
        }).pipe(Effect.scoped), 180_000)
    }

    if (garbage !== undefined) {
      it.effect("what cannot be read is skipped", () =>
        Effect.gen(function*() {
          const transport = yield* Transport
          const one = yield* subscriber()
          yield* Effect.orDie(garbage)
          const cutOff: Wake = { _tag: "Revoked", lease: Ids.leaseId(), id: Ids.jobId(), epoch: 7 }
          yield* transport.wake([cutOff])
          yield* eventually("the wake behind it", Effect.sync(() => one.told("Revoked") > 0), within)
          assert.deepStrictEqual(one.wakes.filter(({ _tag }) => _tag === "Revoked"), [cutOff])
        }).pipe(Effect.scoped), 180_000)
    }
  })
