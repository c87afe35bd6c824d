/**
 * A system over Kafka in one process: submits, keeper and workers as the programs put them together.
 *
 * Database, topics and group are its own. Each worker has a kafkajs of its own, as a process of its own would.
 */
import { Context, Duration, Effect, Exit, Layer, Scope } from "effect"
import { Kafka, logLevel } from "kafkajs"
import * as TransportKafka from "../../../src/adapters/kafka/TransportKafka.ts"
import * as Database from "../../../src/adapters/postgres/Database.ts"
import * as DelayedJobsPostgres from "../../../src/adapters/postgres/DelayedJobsPostgres.ts"
import * as JobStorePostgres from "../../../src/adapters/postgres/JobStorePostgres.ts"
import * as LeaseRegisterPostgres from "../../../src/adapters/postgres/LeaseRegisterPostgres.ts"
import * as QueuesPostgres from "../../../src/adapters/postgres/QueuesPostgres.ts"
import * as SchedulesPostgres from "../../../src/adapters/postgres/SchedulesPostgres.ts"
import * as SessionsPostgres from "../../../src/adapters/postgres/SessionsPostgres.ts"
import * as TransportPostgres from "../../../src/adapters/postgres/TransportPostgres.ts"
import { JobType, type NewJob } from "../../../src/domain/Job.ts"
import type { JobId } from "../../../src/domain/JobId.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import { Queues } from "../../../src/ports/Queues.ts"
import { Transport } from "../../../src/ports/Transport.ts"
import * as Keeper from "../../../src/programs/keeper/Keeper.ts"
import * as KeeperConfig from "../../../src/programs/keeper/KeeperConfig.ts"
import * as Loops from "../../../src/programs/process/Loops.ts"
import type { Handler } from "../../../src/programs/worker/HandlerApi.ts"
import * as Handlers from "../../../src/programs/worker/Handlers.ts"
import * as WorkerConfig from "../../../src/programs/worker/WorkerConfig.ts"
import * as WorkerPool from "../../../src/programs/worker/WorkerPool.ts"
import { freshDatabase } from "../../support/Database.ts"
import * as Jobs from "../../support/Jobs.ts"

let drawn = 0
let workers = 0

/** `spoken`: how the system itself speaks to that Kafka, where that is not by `brokers` as they are. */
export const make = Effect.fnUntraced(function*(
  brokers: string,
  prefixGiven?: string,
  spoken?: Omit<TransportKafka.Options, "prefix">
) {
  const prefix = prefixGiven ?? `s${process.pid}-${drawn++}.`
  const scope = yield* Effect.scope
  const { url } = yield* freshDatabase
  const database = yield* Layer.build(Database.layer({ url, storePool: 6 }))
  const onKafka = TransportKafka.layer({ ...(spoken ?? { brokers: brokers.split(",") }), prefix }).pipe(
    Layer.provide(TransportPostgres.layer)
  )
  const ports = () =>
    Layer.mergeAll(
      JobStorePostgres.layer({ wake: true, queued: true, keyTtlMs: 60_000 }),
      LeaseRegisterPostgres.layer,
      DelayedJobsPostgres.layer,
      SessionsPostgres.layer,
      QueuesPostgres.layer({ wake: true }),
      SchedulesPostgres.layer({ wake: true, queued: true, keyTtlMs: 60_000 }),
      onKafka,
      Loops.layer
    ).pipe(Layer.provide(Layer.succeedContext(database)))

  const base = yield* Layer.build(
    Keeper.layer.pipe(Layer.provide(KeeperConfig.layer()), Layer.provideMerge(Layer.fresh(ports())))
  )
  const store = Context.get(base, JobStore)
  const transport = Context.get(base, Transport)
  const queues = Context.get(base, Queues)

  /** Closing its scope stops it. */
  const worker = Effect.fnUntraced(function*(
    handlers: Readonly<Record<string, Handler>>,
    config: Partial<WorkerConfig.WorkerConfig["Service"]> = {}
  ) {
    const own = yield* Scope.fork(scope)
    const built = yield* Layer.buildWithScope(
      WorkerPool.layer.pipe(
        Layer.provide(Handlers.layer(handlers)),
        Layer.provide(WorkerConfig.layer({
          name: `worker-${workers++}`,
          lease: Duration.seconds(2),
          drain: Duration.millis(200),
          ...config
        })),
        Layer.provideMerge(Layer.fresh(ports()))
      ),
      own
    ).pipe(Effect.orDie)
    const loops = Context.get(built, Loops.Loops)
    return {
      pool: Context.get(built, WorkerPool.WorkerPool),
      reasons: Effect.zipWith(loops.reasons, loops.degraded, (reasons, degraded) => [...reasons, ...degraded]),
      stop: Scope.close(own, Exit.void)
    }
  })

  /** Stored and published, as a submit is. */
  const submit = Effect.fnUntraced(function*(type: string, count: number, change: Partial<NewJob> = {}) {
    const jobs = yield* Jobs.jobs(count, { type: JobType.make(type), ...change })
    yield* Effect.orDie(store.submit(jobs, { atomic: false }))
    yield* Effect.ignore(transport.publish(jobs.map((job) => ({ ...job, ordered: job.priority !== 0 }))))
    return jobs.map(({ id }) => id)
  })

  const states = (ids: ReadonlyArray<JobId>) =>
    Effect.map(Effect.orDie(store.get(ids)), (jobs) => jobs.map((job) => job.state))

  const completed = (ids: ReadonlyArray<JobId>) =>
    Effect.map(states(ids), (all) => all.length === ids.length && all.every((state) => state === "completed"))

  const topic = `${prefix}jobs.ready`
  const kafka = new Kafka({ clientId: "test", brokers: brokers.split(","), logLevel: logLevel.NOTHING })
  const admin = <A>(use: (admin: ReturnType<Kafka["admin"]>) => Promise<A>) =>
    Effect.acquireUseRelease(
      Effect.promise(() => {
        const admin = kafka.admin()
        return admin.connect().then(() => admin)
      }),
      (admin) => Effect.promise(() => use(admin)),
      (admin) => Effect.promise(() => admin.disconnect())
    )
  const send = (values: ReadonlyArray<string | Buffer | null>, partition?: number) =>
    Effect.acquireUseRelease(
      Effect.promise(() => {
        const producer = kafka.producer()
        return producer.connect().then(() => producer)
      }),
      (producer) =>
        Effect.promise(() =>
          producer.send({
            topic,
            messages: values.map((value) => ({ value, ...(partition === undefined ? {} : { partition }) }))
          })
        ),
      (producer) => Effect.promise(() => producer.disconnect())
    )
  /** What is committed, by partition; -1 where nothing is. */
  const offsets = Effect.map(
    admin((admin) => admin.fetchOffsets({ groupId: `${prefix}deadman`, topics: [topic] })),
    (topics) => topics[0]?.partitions.map(({ offset }) => Number(offset)) ?? []
  )
  /** Messages that are not committed. */
  const lag = Effect.gen(function*() {
    const ends = yield* admin((admin) => admin.fetchTopicOffsets(topic))
    const committed = yield* offsets
    return ends.reduce((sum, { offset, partition }) => sum + Number(offset) - Math.max(0, committed[partition] ?? 0), 0)
  })

  /** As whoever has a connection of their own. */
  const sql = (text: string, params: ReadonlyArray<unknown> = []) =>
    Effect.orDie(Context.get(database, Database.Database).query<Record<string, unknown>>("read", text, params))

  return {
    store,
    sql,
    transport,
    queues,
    worker,
    submit,
    states,
    completed,
    topic,
    group: `${prefix}deadman`,
    admin,
    send,
    lag,
    offsets
  }
})
