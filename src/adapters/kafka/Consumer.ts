/**
 * Takes part in the group of workers: brings deliveries, and commits what is settled.
 *
 * What kafkajs hands over is put into the inbox at once, so that neither the
 * next fetch nor the group's heartbeat waits for a job. Only a full inbox makes
 * the fetching wait, and that wait says its heartbeats. No error of a job comes
 * near here.
 *
 * kafkajs's consumer ends for many reasons and does not always say so. Here a
 * consumer is a session: whatever ends it, or silence, leads to the next one,
 * which first looks for the topics and takes the place of the member it was.
 */
import { Clock, Deferred, Effect, Metric, Queue, Random, type Scope } from "effect"
import { type Assigner, type Consumer, type EachBatchPayload, type Kafka, PartitionAssigners } from "kafkajs"
import type { Delivery } from "../../ports/Transport.ts"
import * as Client from "./Client.ts"
import * as Inbox from "./Inbox.ts"
import type * as Mend from "./Mend.ts"
import * as Neighbours from "./Neighbours.ts"
import * as Pace from "./Pace.ts"
import * as Topics from "./Topics.ts"
import * as Trouble from "./Trouble.ts"

/** Without a sign of life for so long, the group gives a member's partitions to others. */
const sessionMs = 6_000
/** How long the group waits for members that do not come back to a rebalance. Nobody is given messages meanwhile. */
const rebalanceMs = 3_000
const heartbeatMs = 1_000
/** A fetch waits so long for a message; a partition that was paused is fetched again within that. */
const fetchWaitMs = 500
const partitionBytes = 65_536
/** Ids of one fetch that are company enough. */
const fetchFull = 1_000
const commitEveryMs = 1_000

/** Silence after which a session is given up: longer than a rebalance. */
const silenceMs = 15_000
/** Silence after which it is not called healthy. */
const healthyMs = 5_000
/** Membership that is proof after so long: whom the topic is refused, the group takes all the same. */
const provenMs = 5_000
/** How long the last commit and the leaving may take. */
const leaveMs = 1_500

/** The counter of `programs/process/Meters.ts`, which an adapter cannot import: metrics are one by their name. */
const garbage = Metric.counter("deadman_garbage_messages_total", {
  description: "Transport messages that could not be read and were skipped",
  incremental: true
})

export interface ReadyConsumer {
  readonly healthy: Effect.Effect<boolean>
  /** Whether the last try to take part went well, as far as is known. */
  readonly answers: () => boolean
}

export const make = Effect.fnUntraced(function*(
  kafka: Kafka,
  names: Client.Names,
  deliveries: Queue.Queue<Delivery>
): Effect.fn.Return<ReadyConsumer, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  const context = yield* Effect.context<never>()
  const runPromise = Effect.runPromiseWith(context)
  const runFork = Effect.runForkWith(context)
  const inbox = Inbox.make()
  const member: Mend.Rejoining["member"] = { id: null }
  const trouble = Trouble.make("taking deliveries from Kafka", "workers find their jobs in Postgres meanwhile")
  let joined = false
  let looked = false
  let heardMs = 0

  const nowMs = () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6

  const assigner = (config: Parameters<typeof PartitionAssigners.roundRobin>[0]): Assigner & Mend.Rejoining => ({
    ...PartitionAssigners.roundRobin(config),
    member
  })

  const commit = (consumer: Consumer, ms: number) =>
    Effect.suspend(() => {
      const commits = inbox.committable()
      return commits.length === 0 ? Effect.void : Client.call(
        "committing offsets",
        ms,
        () =>
          consumer.commitOffsets(
            commits.map(({ offset, partition }) => ({ topic: names.ready, partition, offset: String(offset) }))
          )
      ).pipe(
        Effect.tap(() => Effect.sync(() => inbox.committed(commits))),
        // They are committed with the next ones; what is delivered twice until then, the store refuses.
        Effect.catch((error) => Effect.logDebug(error.message))
      )
    })

  const limitPartitions = (consumer: Consumer) => {
    const { pause, resume } = inbox.full()
    if (pause.length > 0) {
      consumer.pause([{ topic: names.ready, partitions: [...pause] }])
    }
    if (resume.length > 0) {
      consumer.resume([{ topic: names.ready, partitions: [...resume] }])
    }
  }

  /** One consumer, from its start to its end. Fails with what ended it. */
  const session = Effect.gen(function*() {
    const created = yield* Topics.ensure(kafka, names)
    if (created.length > 0) {
      yield* Effect.logInfo(`created in Kafka: ${created.join(", ")}`)
    }
    const ended = yield* Deferred.make<never, Client.KafkaFailed>()
    let live = true
    let joining: Promise<void> = Promise.resolve()
    /** Ids of the last fetch, until its pace is kept. */
    let fetched = 0
    let isFirst = false
    let sinceMs = Number.POSITIVE_INFINITY

    const consumer = kafka.consumer({
      groupId: names.group,
      partitionAssigners: [assigner],
      sessionTimeout: sessionMs,
      rebalanceTimeout: rebalanceMs,
      heartbeatInterval: heartbeatMs,
      maxWaitTimeInMs: fetchWaitMs,
      maxBytesPerPartition: partitionBytes,
      maxBytes: 1_048_576,
      allowAutoTopicCreation: false,
      // A session of ours ends with it: kafkajs would start again after a while, and as a stranger.
      retry: { ...Client.retry, restartOnFailure: () => Promise.resolve(false) }
    })

    const { events } = consumer
    consumer.on(events.CRASH, ({ payload }) => {
      Deferred.doneUnsafe(ended, Effect.fail(new Client.KafkaFailed({ doing: "consuming", cause: payload.error })))
    })
    consumer.on(events.REQUEST, ({ payload: { apiName } }) => {
      if (apiName === "Fetch" || apiName === "Heartbeat" || apiName === "JoinGroup" || apiName === "SyncGroup") {
        heardMs = nowMs()
      }
    })
    consumer.on(events.FETCH, () => {
      isFirst = true
    })
    consumer.on(events.REBALANCING, () => {
      // Under the generation that ends, or others would be given it again.
      runFork(commit(consumer, leaveMs))
    })
    consumer.on(events.GROUP_JOIN, ({ payload: { memberAssignment, memberId } }) => {
      member.id = memberId
      if (!live) {
        return
      }
      inbox.assign(memberAssignment[names.ready] ?? [])
      consumer.resume([{ topic: names.ready }])
      joined = true
      heardMs = nowMs()
      sinceMs = Math.min(sinceMs, heardMs)
    })

    const eachBatch = Effect.fnUntraced(function*({ batch, heartbeat, isRunning, resolveOffset }: EachBatchPayload) {
      if (!live) {
        return
      }
      yield* trouble.over
      const taken = inbox.admit(batch.partition, batch.messages)
      const last = batch.messages[taken.messages - 1]
      if (last !== undefined) {
        resolveOffset(last.offset)
      }
      limitPartitions(consumer)
      if (taken.garbage > 0) {
        yield* Metric.update(garbage, taken.garbage)
        yield* Effect.logDebug(`skipped ${taken.garbage} messages that could not be read`)
      }
      const before = fetched
      fetched = (isFirst ? 0 : fetched) + taken.ids
      if (isFirst) {
        isFirst = false
        yield* Effect.sleep(Pace.gapMs(before, fetchFull))
      }
      while (live && isRunning() && inbox.isFull()) {
        yield* inbox.room.wait(heartbeatMs)
        // A defect on purpose: kafkajs gets its own error back, and sees by it that the group has changed.
        yield* Effect.promise(heartbeat)
      }
    })

    yield* Effect.addFinalizer(() =>
      Effect.gen(function*() {
        live = false
        inbox.room.ring()
        // kafkajs does not leave a group that it is about to join, and the others would wait for this member.
        yield* Effect.ignore(Client.call("joining the group", leaveMs, () => joining))
        if (joined) {
          joined = false
          yield* commit(consumer, leaveMs)
        }
        yield* Effect.ignore(Client.call("leaving the group", leaveMs, () => consumer.disconnect()))
      })
    )
    yield* Client.call("connecting", 3_000, () => consumer.connect())
    if (!looked) {
      yield* Effect.forkScoped(Effect.map(Neighbours.say(kafka, names), () => {
        looked = true
      }))
    }
    yield* Client.call("subscribing", 5_000, () => consumer.subscribe({ topics: [names.ready], fromBeginning: true }))
    heardMs = nowMs()
    joining = consumer.run({
      autoCommit: false,
      eachBatchAutoResolve: false,
      partitionsConsumedConcurrently: 64,
      eachBatch: (payload) => runPromise(eachBatch(payload))
    })
    const running = Client.call("joining the group", 60_000, () => joining)
    const committing = Effect.gen(function*() {
      while (true) {
        yield* Effect.sleep(commitEveryMs)
        if (joined) {
          yield* commit(consumer, 5_000)
          limitPartitions(consumer)
        }
        if (nowMs() - sinceMs > provenMs) {
          yield* trouble.over
        }
        if (nowMs() - heardMs > silenceMs) {
          return yield* new Client.KafkaFailed({
            doing: "consuming",
            cause: new Error(`not a word from Kafka for ${silenceMs / 1_000} s`)
          })
        }
      }
    })
    return yield* Effect.raceFirst(
      Effect.andThen(running, Effect.never),
      Effect.raceFirst(Deferred.await(ended), committing)
    )
  }).pipe(Effect.scoped)

  const deliver = Effect.gen(function*() {
    while (true) {
      const delivery = inbox.take()
      yield* (delivery === null ? inbox.arrived.wait(10_000) : Queue.offer(deliveries, delivery))
    }
  })

  const sessions = Effect.gen(function*() {
    while (true) {
      yield* session.pipe(Effect.catchCause((cause) => trouble.failed(...Client.failureOf(cause))))
      const draw = yield* Random.next
      yield* Effect.sleep(trouble.pauseMs() * (0.5 + draw / 2))
    }
  })

  yield* Effect.forkScoped(sessions)
  yield* Effect.forkScoped(deliver)

  const answers = () => joined ? nowMs() - heardMs < healthyMs : trouble.count() === 0
  return { healthy: Effect.sync(() => joined && answers()), answers }
})
