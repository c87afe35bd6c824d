/**
 * `Transport` by Kafka for deliveries, and by another transport for wakes.
 *
 * Kafka spreads the ids of ordinary jobs over the workers. What must not queue
 * behind its topic (`ordered`: a priority, a reclaim) and every other wake goes
 * by the transport below, which is Postgres and always there. So without Kafka
 * there are no deliveries, and nothing else is missing.
 *
 * Workers over HTTP are given no ids. While some wait, the processes that publish
 * are told for which types, and say by a wake that ids of these are on their way:
 * one wake for all that is published in a moment, and none while nobody waits.
 *
 * The producer outlives the process's subscriptions: the layer's scope ends it.
 */
import { Clock, Context, Effect, Layer, Queue, Scope } from "effect"
import { type Delivery, type Subscription, Transport, TransportUnavailable } from "../../ports/Transport.ts"
import * as Awaited from "./Awaited.ts"
import * as Bell from "./Bell.ts"
import * as Client from "./Client.ts"
import * as Consumer from "./Consumer.ts"
import * as Producer from "./Producer.ts"

export type Options = Client.Options

/** Between two wakes about what was published. */
const tellEveryMs = 20
/** Until it is tried again to hear who waits. */
const hearAgainMs = 1_000

/** What of Kafka can be seen from here. */
export class Brokers extends Context.Service<Brokers, {
  /** Whether they answer, as far as this process has asked them. */
  readonly isUp: Effect.Effect<boolean>
}>()("deadman/adapters/kafka/TransportKafka/Brokers") {}

const make = Effect.fnUntraced(function*(options: Options) {
  const wakes = yield* Transport
  const kafka = yield* Client.make(options)
  const names = Client.namesOf(options)
  const producer = yield* Producer.make(kafka, names)
  const consumers = new Set<Consumer.ReadyConsumer>()
  const scope = yield* Scope.Scope
  const awaited = Awaited.make()
  const untold = Bell.make()
  const nowMs = Effect.map(Clock.monotonicTimeNanos, (nanos) => Number(nanos) / 1e6)

  const hearing = Effect.gen(function*() {
    const below = yield* wakes.subscribe({ worker: false })
    while (true) {
      for (const wake of yield* Queue.takeAll(below.wakes)) {
        if (wake._tag === "Awaited") {
          awaited.heard(wake.types, yield* nowMs)
        }
      }
    }
  }).pipe(Effect.scoped)

  const telling = Effect.gen(function*() {
    while (true) {
      yield* untold.wait(Number.POSITIVE_INFINITY)
      yield* Effect.ignore(wakes.wake([{ _tag: "Published" }]))
      yield* Effect.sleep(tellEveryMs)
    }
  })

  let listens = false
  /** From the first one on who has something to publish or to hear: the others need no connection for it. */
  const listen = Effect.suspend(() => {
    if (listens) {
      return Effect.void
    }
    listens = true
    return Effect.all([
      Effect.forkIn(Effect.forever(Effect.andThen(Effect.ignoreCause(hearing), Effect.sleep(hearAgainMs))), scope),
      Effect.forkIn(telling, scope)
    ], { discard: true })
  })

  const publish: Transport["Service"]["publish"] = Effect.fnUntraced(function*(jobs) {
    yield* listen
    if (jobs.some(({ ordered }) => ordered === true)) {
      yield* wakes.wake([{ _tag: "Ready" }])
    }
    const queued = jobs.filter(({ ordered }) => ordered !== true)
    // Also while Kafka takes none: who waits finds them in the store.
    if (awaited.some(queued, yield* nowMs)) {
      untold.ring()
    }
    const ids = queued.map(({ id }) => id)
    if (ids.length > 0 && !producer.offer(ids)) {
      return yield* new TransportUnavailable({ operation: "publish", cause: new Error("Kafka takes none at present") })
    }
  })

  const subscribe: Transport["Service"]["subscribe"] = Effect.fn("TransportKafka.subscribe")(function*({ worker }) {
    yield* listen
    const below = yield* wakes.subscribe({ worker })
    if (!worker) {
      return below
    }
    const deliveries = yield* Effect.acquireRelease(Queue.bounded<Delivery>(1), Queue.shutdown)
    const consumer = yield* Consumer.make(kafka, names, deliveries)
    yield* Effect.acquireRelease(
      Effect.sync(() => consumers.add(consumer)),
      () => Effect.sync(() => consumers.delete(consumer))
    )
    // Not when it is in the group, which takes seconds while members come and go: until then it is woken, and looks.
    const subscription: Subscription = {
      wakes: below.wakes,
      deliveries,
      wakesForAll: false,
      healthy: Effect.zipWith(below.healthy, consumer.healthy, (a, b) => a && b)
    }
    return subscription
  })

  const awaits: Transport["Service"]["awaits"] = Effect.fnUntraced(function*(types) {
    awaited.heard(types, yield* nowMs)
    yield* wakes.wake([{ _tag: "Awaited", types }])
  })

  const announceDead: Transport["Service"]["announceDead"] = Effect.fn("TransportKafka.announceDead")(
    function*(letters) {
      if (letters.length === 0) {
        return
      }
      yield* producer.announceDead(letters).pipe(
        Effect.mapError((cause) => new TransportUnavailable({ operation: "announceDead", cause }))
      )
      for (const { attempts, id, queue, reason, type } of letters) {
        yield* Effect.logWarning("A job is dead").pipe(Effect.annotateLogs({ id, type, queue, reason, attempts }))
      }
    }
  )

  return Context.make(Transport, Transport.of({ publish, wake: wakes.wake, subscribe, awaits, announceDead })).pipe(
    Context.add(Brokers, {
      isUp: Effect.sync(() => producer.answers() && [...consumers].every((consumer) => consumer.answers()))
    })
  )
})

/** On top of the transport that wakes. */
export const layer = (options: Options): Layer.Layer<Transport | Brokers, never, Transport> =>
  Layer.effectContext(make(options))
