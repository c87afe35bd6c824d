/**
 * The one producer of a process: gathers ids, sends them in batches, and comes back by itself.
 *
 * Whoever publishes waits for nothing: what is accepted is on its way, what does
 * not get through is dropped, because its job is in the store and is found
 * there. So there is no retry here that could outlast an outage, and no queue
 * that could grow in one.
 */
import { Clock, Deferred, Effect, type Scope } from "effect"
import { type Kafka, Partitioners, type Producer } from "kafkajs"
import type { JobId } from "../../domain/JobId.ts"
import type { DeadLetter } from "../../ports/JobStore.ts"
import * as Bell from "./Bell.ts"
import * as Client from "./Client.ts"
import * as Message from "./Message.ts"
import * as Pace from "./Pace.ts"
import * as Topics from "./Topics.ts"
import * as Trouble from "./Trouble.ts"

/** Ids that wait to be sent. */
const waitingMax = 50_000
/** What comes together between two sends, and more than that: a second send would have as many messages again. */
const batchMax = 4_000
const sendsMax = 2
const sendMs = 5_000
/** How long a dead letter waits for the connection. */
const connectMs = 3_000
const flushMs = 1_000
/** Without a failed send for so long, a connection is taken for a good one after one that ended with such a send. */
const doubtMs = 10_000

interface Connection {
  readonly producer: Producer
  /** Ends it. */
  readonly lost: Deferred.Deferred<never, Client.KafkaFailed>
}

export interface ReadyProducer {
  /** Puts ids on their way. False while Kafka is away, or when too many wait. */
  readonly offer: (ids: ReadonlyArray<JobId>) => boolean
  /** Whether the last try to publish went well, as far as is known. */
  readonly answers: () => boolean
  /** Done when the brokers have them. */
  readonly announceDead: (letters: ReadonlyArray<DeadLetter>) => Effect.Effect<void, Client.KafkaFailed>
}

export const make = Effect.fnUntraced(function*(
  kafka: Kafka,
  names: Client.Names
): Effect.fn.Return<ReadyProducer, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  const trouble = Trouble.make("publishing to Kafka", "workers find their jobs in Postgres meanwhile")
  const arrived = Bell.make()
  const wanted = Bell.make()
  const changed = Bell.make()
  let waiting: Array<JobId> = []
  let current: Connection | null = null
  /** Whether a send ended the connection before: it could be made, so the next one proves nothing by being there. */
  let doubted = false
  let sends = 0

  const nowMs = () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6

  const sendBy = (connection: Connection, topic: string, values: ReadonlyArray<string>) =>
    Client.call(
      "sending",
      sendMs,
      () => connection.producer.send({ topic, acks: -1, timeout: 3_000, messages: values.map((value) => ({ value })) })
    ).pipe(
      Effect.tap(() => topic === names.ready && current === connection ? trouble.over : Effect.void),
      Effect.tapError((error) =>
        Effect.sync(() => {
          // Who may not announce the dead is told so by it, and may publish all the same.
          if (topic === names.ready || !error.isRefusal) {
            Deferred.doneUnsafe(connection.lost, Effect.fail(error))
          }
        })
      )
    )

  /** One connection. Ends when a send has failed: kafkajs says of its errors too little to tell which of them pass. */
  const connection = Effect.gen(function*() {
    const inDoubt = doubted
    doubted = false
    yield* Topics.ensure(kafka, names)
    const producer = kafka.producer({
      createPartitioner: Partitioners.DefaultPartitioner,
      allowAutoTopicCreation: false
    })
    yield* Effect.addFinalizer(() =>
      Effect.suspend(() => {
        current = null
        return Effect.ignore(Client.call("disconnecting", flushMs, () => producer.disconnect()))
      })
    )
    yield* Client.call("connecting", 3_000, () => producer.connect())
    const lost = yield* Deferred.make<never, Client.KafkaFailed>()
    const ended = Effect.tapError(Deferred.await(lost), () =>
      Effect.sync(() => {
        doubted = true
      }))
    current = { producer, lost }
    changed.ring()
    // Whoever may not write connects as well as anybody. What is sent in between says it is over.
    yield* inDoubt ? Effect.timeoutOption(ended, doubtMs) : Effect.void
    yield* trouble.over
    return yield* ended
  }).pipe(Effect.scoped)

  const connections = Effect.gen(function*() {
    // A process that publishes nothing needs no connection.
    yield* wanted.wait(Number.POSITIVE_INFINITY)
    while (true) {
      yield* Effect.catchCause(connection, (cause) => trouble.failed(...Client.failureOf(cause)))
      waiting = []
      yield* Effect.sleep(trouble.pauseMs())
    }
  })

  const sending = Effect.gen(function*() {
    while (true) {
      if (waiting.length === 0) {
        yield* arrived.wait(Number.POSITIVE_INFINITY)
        continue
      }
      const connection = current
      if (connection === null || sends >= sendsMax) {
        yield* changed.wait(1_000)
        continue
      }
      const ids = waiting.slice(0, batchMax)
      waiting = waiting.slice(batchMax)
      sends += 1
      yield* Effect.forkChild(
        sendBy(connection, names.ready, Message.pack(ids)).pipe(
          Effect.catch((error) => Effect.logDebug(`${ids.length} ids were not published: ${error.message}`)),
          Effect.ensuring(Effect.sync(() => {
            sends -= 1
            changed.ring()
          }))
        )
      )
      yield* Effect.sleep(Pace.gapMs(ids.length, batchMax))
    }
  })

  const flushed = Effect.gen(function*() {
    while (current !== null && (waiting.length > 0 || sends > 0)) {
      yield* changed.wait(50)
    }
  })

  yield* Effect.forkScoped(connections)
  yield* Effect.forkScoped(sending)
  yield* Effect.addFinalizer(() => Effect.timeoutOption(flushed, flushMs))

  return {
    offer: (ids) => {
      wanted.ring()
      if ((current === null && trouble.count() > 0) || waiting.length + ids.length > waitingMax) {
        return false
      }
      waiting = waiting.length === 0 ? [...ids] : waiting.concat(ids)
      arrived.ring()
      return true
    },
    answers: () => trouble.count() === 0,
    announceDead: Effect.fnUntraced(function*(letters) {
      wanted.ring()
      const untilMs = nowMs() + connectMs
      while (current === null && nowMs() < untilMs) {
        yield* changed.wait(50)
      }
      const connection = current as Connection | null
      if (connection === null) {
        return yield* new Client.KafkaFailed({ doing: "connecting", cause: new Error(`not within ${connectMs} ms`) })
      }
      yield* sendBy(connection, names.dead, letters.map(Message.encodeDead))
    })
  }
})
