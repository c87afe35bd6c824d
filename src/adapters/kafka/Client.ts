/**
 * The kafkajs of this process: mended, patient for a bounded time, and silent.
 *
 * Its own retries are short, because whoever uses it here starts anew when they
 * are over. What it logs is for who debugs: what matters is said by its users,
 * once, and not for every try. Neither has the password in it.
 */
import { Cause, Effect, Redacted, Schema } from "effect"
import { type ISocketFactory, Kafka, type LogEntry, logLevel, type SASLOptions } from "kafkajs"
import { createRequire } from "node:module"
import { type Pem, tlsOptions } from "../../domain/Pem.ts"
import * as Advice from "./Advice.ts"
import type { Login } from "./Login.ts"
import * as Mend from "./Mend.ts"

/** Kafka did not do it in time, or said that it cannot. */
export class KafkaFailed extends Schema.TaggedError<KafkaFailed>()("KafkaFailed", {
  doing: Schema.String,
  cause: Schema.Defect()
}) {
  /** What happened, without what to do about it. */
  get reason(): string {
    return `${this.doing}: ${Advice.reasonOf(this.cause)}`
  }

  /** What to do, where it is or may be more than an outage: no waiting cures it. */
  get advice(): string | null {
    return Advice.of(this.doing, this.cause)
  }

  /** Whether Kafka answers and refuses us, rather than being away. */
  get isRefusal(): boolean {
    return Advice.isRefusal(this.cause)
  }

  override get message(): string {
    return this.advice === null ? this.reason : `${this.reason}. ${this.advice}`
  }
}

export interface Options {
  /** `host:port` of some brokers; the others are learned from them. */
  readonly brokers: ReadonlyArray<string>
  /** In front of the names of topics and group, so that several systems share a Kafka. */
  readonly prefix?: string
  /** What tells the processes of this system from those of another one that shares it unawares. */
  readonly installation?: string | null
  /** Absent or `null`: in the clear. */
  readonly tls?: Pem | null
  readonly login?: Login | null
}

/** Names in Kafka. */
export const namesOf = ({ installation = null, prefix = "" }: Options) => ({
  ready: `${prefix}jobs.ready`,
  dead: `${prefix}jobs.dead`,
  group: `${prefix}deadman`,
  client: installation === null ? "deadman" : `deadman-${installation}`
})

export type Names = ReturnType<typeof namesOf>

/** Short enough to be over before a submit's hint is stale; what fails then is tried anew by its user. */
export const retry = { initialRetryTime: 100, maxRetryTime: 500, multiplier: 2, factor: 0.2, retries: 4 }

const require = createRequire(import.meta.url)

const ofKafkajs: ISocketFactory = require("kafkajs/src/network/socketFactory.js")()

/**
 * As kafkajs makes it, but what is written leaves at once: the end of a large request would wait for the broker to
 * acknowledge the beginning, which it puts off for 40 ms.
 */
const socketFactory: ISocketFactory = (options) => ofKafkajs(options).setNoDelay(true)

const saslOf = ({ mechanism, password, username }: Login): SASLOptions => ({
  // Their types tell the mechanisms apart, and ask the same of each of these.
  mechanism: mechanism as "plain",
  username,
  password: Redacted.value(password)
})

export const make = (options: Options): Effect.Effect<Kafka> =>
  Effect.map(Effect.context<never>(), (context) => {
    Mend.mend()
    const fork = Effect.runForkWith(context)
    return new Kafka({
      clientId: namesOf(options).client,
      brokers: [...options.brokers],
      ...(options.tls ? { ssl: tlsOptions(options.tls) } : {}),
      ...(options.login ? { sasl: saslOf(options.login) } : {}),
      connectionTimeout: 2_000,
      requestTimeout: 5_000,
      retry,
      socketFactory,
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

/** In one line, for the log, and whether Kafka refuses us rather than being away. */
export const failureOf = (cause: Cause.Cause<unknown>): readonly [reason: string, refused: boolean] => {
  const error = Cause.squash(cause)
  return [
    error instanceof Error ? error.message : String(error),
    error instanceof KafkaFailed && error.isRefusal
  ]
}
