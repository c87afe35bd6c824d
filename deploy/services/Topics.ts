/** The topics of Deadman, created where they are missing. */
import { Effect } from "effect"
import { Kafka, logLevel } from "kafkajs"
import * as Mend from "../../src/adapters/kafka/Mend.ts"
import { ServiceFailed } from "./ServiceFailed.ts"

export interface Topic {
  readonly topic: string
  readonly numPartitions: number
}

export const topics: ReadonlyArray<Topic> = [
  { topic: "jobs.ready", numPartitions: 6 },
  { topic: "jobs.dead", numPartitions: 1 }
]

type Admin = ReturnType<Kafka["admin"]>

/** Uses an admin connection of its own, and closes it. */
export const withAdmin = <A>(
  brokers: string,
  doing: string,
  use: (admin: Admin) => Promise<A>
): Effect.Effect<A, ServiceFailed> => {
  const failed = (cause: unknown) =>
    new ServiceFailed({
      message: `Kafka on ${brokers} cannot ${doing}: ${cause instanceof Error ? cause.message : String(cause)}`
    })
  return Effect.acquireUseRelease(
    Effect.sync(() => {
      Mend.mend()
      return new Kafka({
        clientId: "deadman-services",
        brokers: brokers.split(","),
        logLevel: logLevel.NOTHING,
        connectionTimeout: 2_000,
        requestTimeout: 5_000,
        retry: { initialRetryTime: 100, maxRetryTime: 1_000, retries: 8 }
      }).admin()
    }),
    (admin) => Effect.tryPromise({ try: () => admin.connect().then(() => use(admin)), catch: failed }),
    (admin) => Effect.ignore(Effect.timeout(Effect.promise(() => admin.disconnect()), "2 seconds"))
  ).pipe(
    Effect.timeoutOrElse({ duration: "30 seconds", orElse: () => failed("no answer in 30 s") })
  )
}

/** Asked first, because kafkajs logs an error for a topic that exists. */
export const create = (brokers: string, wanted: ReadonlyArray<Topic> = topics): Effect.Effect<void, ServiceFailed> =>
  withAdmin(brokers, "create topics", (admin) =>
    admin.listTopics().then((existing) => {
      const absent = wanted.filter(({ topic }) => !existing.includes(topic))
      return absent.length === 0
        ? undefined
        : admin.createTopics({ topics: [...absent], waitForLeaders: true, timeout: 5_000 })
    })).pipe(Effect.asVoid)
