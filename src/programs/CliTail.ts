/**
 * `deadman tail`: what becomes of a job, or of those that a filter lets through, as it happens.
 *
 * It looks again and again, and tells each change with its time: what happened between two looks, the job says. What is
 * there when it begins is shown for one job and left out for many.
 */
import { Clock, Effect, Option, Schedule, Schema } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import type { Client, Job } from "../adapters/http/Client.ts"
import type { ClientError } from "../adapters/http/ClientError.ts"
import * as Following from "./cli/Following.ts"
import * as JobText from "./cli/JobText.ts"
import * as Steps from "./cli/Steps.ts"
import { filterOf, filters } from "./CliJobs.ts"
import { type Answer, asking, usage } from "./CliRoot.ts"

const againMax = 60

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

const sayOf = ({ line, look }: Answer) =>
  Effect.fnUntraced(function*({ job, saidMs }: Steps.Step<Job>) {
    const atMs = saidMs ?? (yield* Clock.currentTimeMillis)
    yield* line(job, () => JobText.change(look, job, atMs))
  })

const follow = Effect.fnUntraced(function*(client: Client["Service"], id: string, everyMs: number, answer: Answer) {
  const say = sayOf(answer)
  let told: Steps.Step<Job> | null = null
  while (true) {
    const job: Job = yield* patiently(client.get(id), told === null, answer)
    const steps: ReadonlyArray<Steps.Step<Job>> = Steps.stepsOf(job).slice(told === null ? -1 : 0)
    for (const step of steps) {
      if (told === null || Steps.isAfter(step, told)) {
        told = step
        yield* say(step)
      }
    }
    if (Steps.isEnded(job)) {
      return
    }
    yield* Effect.sleep(everyMs)
  }
})

/** How many jobs a page looks at is enough for so long. */
const pageEveryMs = 500

const followAll = Effect.fnUntraced(function*(
  client: Client["Service"],
  { state, ...filter }: ReturnType<typeof filterOf>,
  everyMs: number,
  answer: Answer
) {
  const say = sayOf(answer)
  let first = true
  const ask = <A>(asked: Effect.Effect<A, ClientError>) => Effect.suspend(() => patiently(asked, first, answer))
  // A change into that state: from which other one, nobody knows before.
  const { look } = Following.make({
    list: (query) => ask(client.list({ ...filter, ...query })),
    getAll: (ids) => ask(client.getAll(ids)),
    now: ask(Effect.map(client.stats, ({ as_of_ms }) => as_of_ms))
  }, { ...Following.limits, shortPages: Math.ceil(everyMs / pageEveryMs) })
  while (true) {
    const { notes, steps } = yield* look
    yield* Effect.forEach(notes, answer.note)
    for (const step of steps) {
      if (state === undefined || step.job.state === state) {
        yield* say(step)
      }
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
    { command: "deadman tail --type mail.send", description: "Every change of every mail" }
  ])
)
