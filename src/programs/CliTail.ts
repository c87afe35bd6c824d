/**
 * `deadman tail`: what becomes of a job, or of those that a filter lets through, as it happens.
 *
 * It looks again and again at the newest jobs, so a state that a job was in for less than one look is not seen. What is
 * there when it begins is shown for one job and left out for many.
 */
import { Clock, Effect, Option, Schedule, Schema } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import type { Client, Job } from "../adapters/http/Client.ts"
import type { ClientError } from "../adapters/http/ClientError.ts"
import * as JobText from "./cli/JobText.ts"
import { filterOf, filters } from "./CliJobs.ts"
import { type Answer, asking, usage } from "./CliRoot.ts"

const window = 200
/** Of jobs that have left the window: those that are remembered, so that nothing is said twice. */
const rememberMax = 5_000
const againMax = 60

/** Another one of these is another line. */
const stampOf = (job: Job): string =>
  [job.state, job.epoch, job.attempts, job.lease_losses, job.run_at_ms, job.resubmitted_as].join(" ")

/** A server that is replaced is away for some seconds; one that was never there is said at once. */
const patiently = <A>(ask: Effect.Effect<A, ClientError>, first: boolean, { note }: Answer) =>
  first ? ask : ask.pipe(
    Effect.tapError((error) =>
      error._tag === "ServerUnavailable" ? note(`${error.message} Looking again.`) : Effect.void
    ),
    Effect.retry({
      while: (error) => error._tag === "ServerUnavailable",
      schedule: Schedule.spaced("1 second"),
      times: againMax
    })
  )

const isEnded = (job: Job): boolean => job.state === "completed" || job.state === "dead"

const sayOf = ({ line, look }: Answer) =>
  Effect.fnUntraced(function*(job: Job) {
    const now = yield* Clock.currentTimeMillis
    yield* line(job, () => JobText.change(look, job, now))
  })

const follow = Effect.fnUntraced(function*(client: Client["Service"], id: string, everyMs: number, answer: Answer) {
  const say = sayOf(answer)
  let stamp = ""
  while (true) {
    const job = yield* patiently(client.get(id), stamp === "", answer)
    if (stampOf(job) !== stamp) {
      stamp = stampOf(job)
      yield* say(job)
    }
    if (isEnded(job)) {
      return
    }
    yield* Effect.sleep(everyMs)
  }
})

const followAll = Effect.fnUntraced(function*(
  client: Client["Service"],
  filter: ReturnType<typeof filterOf>,
  everyMs: number,
  answer: Answer
) {
  const say = sayOf(answer)
  const seen = new Map<string, string>()
  let first = true
  while (true) {
    const { jobs } = yield* patiently(client.list({ ...filter, limit: window }), first, answer)
    // Oldest first, as they came.
    for (const job of jobs.toReversed()) {
      const stamp = stampOf(job)
      if (seen.get(job.id) !== stamp) {
        seen.delete(job.id)
        seen.set(job.id, stamp)
        if (!first) {
          yield* say(job)
        }
      }
    }
    for (const [id] of seen) {
      if (seen.size <= rememberMax) {
        break
      }
      seen.delete(id)
    }
    first = false
    yield* Effect.sleep(everyMs)
  }
})

export const tail = Command.make(
  "tail",
  {
    id: Argument.String("id").pipe(
      Argument.withDescription("A job, until it has ended; without one: all that come"),
      Argument.optional
    ),
    ...filters,
    every: Flag.Int("every").pipe(
      Flag.withDescription("Milliseconds between two looks (default: 500)"),
      Flag.withSchema(Schema.Int.check(Schema.isBetween({ minimum: 50, maximum: 60_000 }))),
      Flag.withDefault(500)
    )
  },
  Effect.fnUntraced(function*(flags) {
    yield* asking(Effect.fnUntraced(function*(client, answer) {
      const filter = filterOf(flags)
      if (Option.isSome(flags.id)) {
        if (Object.values(filter).some((value) => value !== undefined)) {
          return yield* usage("A job is followed by its id alone: leave out --state, --type, --queue and --tag.")
        }
        return yield* follow(client, flags.id.value, flags.every, answer)
      }
      yield* answer.note(`following what happens at ${client.url}; Ctrl-C ends it`)
      return yield* followAll(client, filter, flags.every, answer)
    }))
  })
).pipe(
  Command.withDescription("Follows one job, or all that a filter lets through; with --json one document per line"),
  Command.withExamples([
    { command: "deadman tail --type mail.send", description: "Every change of the newest mails" }
  ])
)
