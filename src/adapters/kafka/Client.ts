/**
 * The kafkajs of this process: mended, patient for a bounded time, and silent.
 *
 * Its own retries are short, because whoever uses it here starts anew when they
 * are over. What it logs is for who debugs: what matters is said by its users,
 * once, and not for every try.
 */
import { Cause, Effect, Schema } from "effect"
import { Kafka, type LogEntry, logLevel } from "kafkajs"
import * as Mend from "./Mend.ts"

/** Kafka did not do it in time, or said that it cannot. */
export class KafkaFailed extends Schema.TaggedError<KafkaFailed>()("KafkaFailed", {
  doing: Schema.String,
  cause: Schema.Defect()
}) {
  override get message(): string {
    const { cause } = this
    return `${this.doing}: ${cause instanceof Error ? cause.message : String(cause)}`
  }
}

export interface Options {
  /** `host:port` of some brokers; the others are learned from them. */
  readonly brokers: ReadonlyArray<string>
  /** In front of the names of topics and group, so that several systems share a Kafka. */
  readonly prefix?: string
}

/** Names in Kafka. */
export const namesOf = ({ prefix = "" }: Options) => ({
  ready: `${prefix}jobs.ready`,
  dead: `${prefix}jobs.dead`,
  group: `${prefix}deadman`
})

export type Names = ReturnType<typeof namesOf>

/** Short enough to be over before a submit's hint is stale; what fails then is tried anew by its user. */
export const retry = { initialRetryTime: 100, maxRetryTime: 500, multiplier: 2, factor: 0.2, retries: 4 }

export const make = (options: Options): Effect.Effect<Kafka> =>
  Effect.map(Effect.context<never>(), (context) => {
    Mend.mend()
    const fork = Effect.runForkWith(context)
    return new Kafka({
      clientId: "deadman",
      brokers: [...options.brokers],
      connectionTimeout: 2_000,
      requestTimeout: 5_000,
      retry,
      logLevel: logLevel.WARN,
      logCreator: () => ({ log, namespace }: LogEntry) => {
        fork(Effect.logDebug(`kafkajs ${namespace}: ${log.message}`))
      }
    })
  })

/** A call of kafkajs under a deadline. What it does beyond that is its own affair: it cannot be interrupted. */
export const call = <A>(doing: string, ms: number, run: () => Promise<A>): Effect.Effect<A, KafkaFailed> =>
  Effect.tryPromise({ try: run, catch: (cause) => new KafkaFailed({ doing, cause }) }).pipe(
    Effect.timeoutOrElse({
      duration: ms,
      orElse: () => Effect.fail(new KafkaFailed({ doing, cause: new Error(`no answer within ${ms} ms`) }))
    })
  )

/** In one line, for the log. */
export const reasonOf = (cause: Cause.Cause<unknown>): string => {
  const error = Cause.squash(cause)
  return error instanceof Error ? error.message : String(error)
}
