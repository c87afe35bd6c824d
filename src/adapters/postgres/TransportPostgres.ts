/**
 * `Transport` by `NOTIFY`: wakes and no deliveries, for workers that claim from the store.
 *
 * One connection of the process listens for all of its subscribers. Its loss is
 * told to them when it is over, since only then may they have missed something.
 *
 * A connection whose packets are dropped looks like one on which nothing
 * happens. So after five to ten silent seconds it is asked for an answer, and sooner
 * when a notification of our own did not come back.
 */
import { Clock, Effect, Exit, Layer, Metric, Queue, Random, Schema, Scope } from "effect"
import type { LeaseId } from "../../domain/Claim.ts"
import { JobType } from "../../domain/Job.ts"
import type { JobId } from "../../domain/JobId.ts"
import type { DeadLetter } from "../../ports/JobStore.ts"
import * as Rhythm from "../../ports/Rhythm.ts"
import { type Delivery, Transport, TransportUnavailable, type Wake } from "../../ports/Transport.ts"
import * as WakeBuffer from "../../ports/WakeBuffer.ts"
import { Database, type Listening, texts } from "./Database.ts"
import type { DatabaseFailed } from "./DatabaseFailed.ts"
import { wakeChannel } from "./store/Rows.ts"

export const deadChannel = "deadman_dead"

export interface Options {
  /** When in its rhythm this process looks around. */
  readonly phaseMs?: number
  /** How long a silent connection is believed to be alive, at most; at least half as long. */
  readonly pingEveryMs?: number
  /** How long its answer may take. */
  readonly pingWithinMs?: number
  /** How long our own notification may take to come back. */
  readonly echoWithinMs?: number
}

const notifyDeadlineMs = 2_000

/** A subscriber does not wait longer than this for the first connection: it comes by itself. */
const firstWaitMs = 3_000

const backoffMinMs = 50
const backoffMaxMs = 2_000

/** The counter of `programs/process/Meters.ts`, which an adapter cannot import: metrics are one by their name. */
const garbage = Metric.counter("deadman_garbage_messages_total", {
  description: "Transport messages that could not be read and were skipped",
  incremental: true
})

/** Names of types in one notification: of the longest there are, so many fit into the 8,000 bytes that it may have. */
const typesMax = 50

const encode = (wake: Wake): ReadonlyArray<string> => {
  switch (wake._tag) {
    case "Ready":
    case "Resumed":
      return ["r"]
    case "Due":
      return ["d"]
    case "Queues":
      return ["q"]
    case "Published":
      return ["p"]
    case "Awaited":
      return Array.from(
        { length: Math.ceil(wake.types.length / typesMax) },
        (_, n) => `a:${wake.types.slice(n * typesMax, (n + 1) * typesMax).join(" ")}`
      )
    case "Revoked":
      return [`v:${wake.lease}:${wake.epoch}:${wake.id}`]
  }
}

const uuid = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
const revoked = new RegExp(`^v:(${uuid}):(\\d{1,10}):(${uuid})$`)
const isType = Schema.is(JobType)

/** What a payload says, or `null` if it is none of ours. */
export const decode = (payload: string): Wake | null => {
  if (payload === "r") {
    return { _tag: "Ready" }
  }
  if (payload === "d") {
    return { _tag: "Due" }
  }
  if (payload === "q") {
    return { _tag: "Queues" }
  }
  if (payload === "p") {
    return { _tag: "Published" }
  }
  if (payload.startsWith("a:")) {
    const types = payload.slice(2).split(" ")
    return types.every(isType) ? { _tag: "Awaited", types } : null
  }
  const [, lease, epoch, id] = revoked.exec(payload) ?? []
  return lease === undefined || epoch === undefined || id === undefined
    ? null
    : { _tag: "Revoked", lease: lease as LeaseId, epoch: Number(epoch), id: id as JobId }
}

const notifySql =
  `SELECT pg_notify($1::text, p.payload) FROM unnest($2::text[]) WITH ORDINALITY p(payload, n) ORDER BY p.n`

const make = Effect.fnUntraced(function*(options: Options) {
  const database = yield* Database
  const layerScope = yield* Scope.Scope
  const pingEveryMs = options.pingEveryMs ?? 10_000
  const pingWithinMs = options.pingWithinMs ?? 2_000
  const echoWithinMs = options.echoWithinMs ?? 1_000

  const buffers = new Set<WakeBuffer.WakeBuffer>()
  // When a notification of our own was sent.
  const echoes = yield* Queue.sliding<number>(1)
  let connected = false
  let heardMs = 0
  let looping = false

  // In fractions: what is sent in the millisecond in which the connection came is sent after it.
  const clock = yield* Clock.Clock
  const now = () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6
  const nowMs = Effect.sync(now)
  const rhythm = Rhythm.make(options.phaseMs ?? 0, now)

  const tell = (wake: Wake) => {
    for (const buffer of buffers) {
      buffer.offer(wake)
    }
  }

  const hear = Effect.fnUntraced(function*({ notifications }: Listening) {
    while (true) {
      const all = yield* Queue.takeAll(notifications)
      heardMs = yield* nowMs
      for (const { payload } of all) {
        const wake = decode(payload)
        if (wake === null) {
          yield* Metric.update(garbage, 1)
        } else {
          tell(wake)
        }
      }
    }
  })

  // Ends in failure when the connection no longer answers.
  const watch = Effect.fnUntraced(function*({ ping }: Listening) {
    /** When the notification of our own was sent that was last waited for. */
    let echoMs = Number.NEGATIVE_INFINITY
    while (true) {
      const quietMs = (yield* nowMs) - heardMs
      yield* Effect.raceFirst(
        Effect.sleep(Math.max(1, rhythm.within(pingEveryMs - quietMs))),
        Effect.flatMap(Queue.take(echoes), (sentMs) => {
          echoMs = sentMs
          return Effect.sleep(echoWithinMs)
        })
      )
      // The rhythm may have it looked at sooner than that; what is silent for half as long is asked then.
      if (heardMs < echoMs || (yield* nowMs) - heardMs >= pingEveryMs / 2) {
        yield* ping(pingWithinMs)
        heardMs = yield* nowMs
      }
    }
  })

  /** One connection, from its being there to its loss. */
  const session = Effect.fnUntraced(function*(resumes: boolean) {
    const scope = yield* Scope.make()
    return yield* database.listen(wakeChannel).pipe(
      Scope.provide(scope),
      Effect.flatMap((listening) =>
        Effect.gen(function*() {
          heardMs = yield* nowMs
          connected = true
          if (resumes) {
            tell({ _tag: "Resumed" })
          }
          return yield* Effect.raceFirst(hear(listening), watch(listening))
        })
      ),
      Effect.exit,
      // Closing says goodbye to the server, and waits for an answer that may never come.
      Effect.onExit(() =>
        Effect.andThen(
          Effect.sync(() => {
            connected = false
          }),
          Effect.forkDetach(Scope.close(scope, Exit.void))
        )
      )
    )
  })

  const loop = Effect.gen(function*() {
    let resumes = false
    let backoffMs = backoffMinMs
    while (true) {
      const before = yield* nowMs
      yield* session(resumes)
      // Also where the first connection did not come: whoever subscribed meanwhile was told nothing.
      resumes = true
      const lived = (yield* nowMs) - before > backoffMaxMs
      backoffMs = lived ? backoffMinMs : Math.min(backoffMaxMs, backoffMs * 2)
      yield* Effect.logDebug("The connection for wakes is lost; workers claim by themselves until it is back")
      yield* Effect.sleep(backoffMinMs + (yield* Random.next) * backoffMs)
    }
  })

  const subscribe: Transport["Service"]["subscribe"] = Effect.fn("TransportPostgres.subscribe")(function*() {
    const buffer = yield* WakeBuffer.make
    yield* Effect.acquireRelease(
      Effect.sync(() => buffers.add(buffer)),
      () => Effect.sync(() => buffers.delete(buffer))
    )
    const deliveries = yield* Effect.acquireRelease(Queue.bounded<Delivery>(1), Queue.shutdown)
    if (!looping) {
      looping = true
      yield* Effect.forkIn(loop, layerScope)
    }
    const until = (yield* nowMs) + firstWaitMs
    while (!connected && (yield* nowMs) < until) {
      yield* Effect.sleep(10)
    }
    return { wakes: buffer.wakes, deliveries, wakesForAll: true, healthy: Effect.sync(() => connected) }
  })

  const notify = (
    operation: TransportUnavailable["operation"],
    channel: string,
    payloads: ReadonlyArray<string>
  ): Effect.Effect<void, TransportUnavailable> =>
    payloads.length === 0 ? Effect.void : database.query(
      "read",
      notifySql,
      [channel, texts(payloads)],
      { deadlineMs: notifyDeadlineMs }
    ).pipe(
      Effect.mapError((cause: DatabaseFailed) => new TransportUnavailable({ operation, cause })),
      Effect.asVoid
    )

  const notifyWakes = Effect.fnUntraced(function*(operation: "publish" | "wake", payloads: ReadonlyArray<string>) {
    const sentMs = yield* nowMs
    yield* notify(operation, wakeChannel, payloads)
    if (payloads.length > 0) {
      yield* Queue.offer(echoes, sentMs)
    }
  })

  const publish: Transport["Service"]["publish"] = (jobs) => notifyWakes("publish", jobs.length === 0 ? [] : ["r"])

  const wake: Transport["Service"]["wake"] = (wakes) => notifyWakes("wake", [...new Set(wakes.flatMap(encode))])

  const letterText = ({ attempts, diedAtMs, id, queue, reason, type }: DeadLetter) =>
    JSON.stringify({ id, type, queue, reason, attempts, died_at_ms: diedAtMs })

  const announceDead: Transport["Service"]["announceDead"] = Effect.fn("TransportPostgres.announceDead")(
    function*(letters) {
      yield* notify("announceDead", deadChannel, letters.map(letterText))
      for (const { attempts, id, queue, reason, type } of letters) {
        yield* Effect.logWarning("A job is dead").pipe(Effect.annotateLogs({ id, type, queue, reason, attempts }))
      }
    }
  )

  // What is published is told to everybody, whether somebody waits or not.
  return Transport.of({ publish, wake, subscribe, awaits: () => Effect.void, announceDead })
})

export const layerWith = (options: Options): Layer.Layer<Transport, never, Database> =>
  Layer.effect(Transport, make(options))

export const layer: Layer.Layer<Transport, never, Database> = layerWith({})
