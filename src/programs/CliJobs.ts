/** `deadman get`, `list`, `cancel`, `retry`, `resubmit`, `stats`: what the API answers, for people and for programs. */
import { Effect, Option, Schema } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import type { Client, Job, ListQuery } from "../adapters/http/Client.ts"
import type { ClientError } from "../adapters/http/ClientError.ts"
import { jobStates } from "../domain/JobState.ts"
import * as JobText from "./cli/JobText.ts"
import * as StatsText from "./cli/StatsText.ts"
import { type Answer, asking } from "./CliRoot.ts"

const id = Argument.String("id").pipe(Argument.withDescription("The id of the job"))

/** A command that does one thing with one job, and shows it. */
const one = (
  name: string,
  description: string,
  ask: (client: Client["Service"], id: string, answer: Answer) => Effect.Effect<Job, ClientError>
) =>
  Command.make(
    name,
    { id },
    Effect.fnUntraced(function*(given) {
      yield* asking(Effect.fnUntraced(function*(client, answer) {
        const job = yield* ask(client, given.id, answer)
        yield* answer.show(job, () => JobText.page(answer.look, job))
      }))
    })
  ).pipe(Command.withDescription(description))

export const get = one("get", "Shows one job, with what happened to it", (client, id) => client.get(id))
/** Once more is no failure: it is as it was asked to be. */
export const cancel = one(
  "cancel",
  "Ends a waiting or running job: dead, cancelled",
  (client, id, { note }) =>
    Effect.gen(function*() {
      const before = yield* client.get(id)
      const job = yield* client.cancel(id)
      if (before.reason === "cancelled") {
        yield* note("it was cancelled before")
      }
      return job
    })
)
export const retry = one("retry", "Lets a pending or failed job run now", (client, id) => client.retry(id))
export const resubmit = one(
  "resubmit",
  "Submits a dead or completed job again, as a new one",
  (client, id) => client.resubmit(id)
)

export const filters = {
  state: Flag.Literals("state", jobStates).pipe(Flag.withDescription("Only jobs in that state"), Flag.optional),
  type: Flag.String("type").pipe(Flag.withDescription("Only jobs of that type"), Flag.optional),
  queue: Flag.String("queue").pipe(Flag.withDescription("Only jobs of that queue"), Flag.optional),
  tag: Flag.String("tag").pipe(Flag.withDescription("Only jobs with that tag"), Flag.optional)
}

type Filters = {
  readonly [Name in keyof typeof filters]: Option.Option<string>
}

export const filterOf = (given: Filters): ListQuery => ({
  state: Option.getOrUndefined(given.state) as ListQuery["state"],
  type: Option.getOrUndefined(given.type),
  queue: Option.getOrUndefined(given.queue),
  tag: Option.getOrUndefined(given.tag)
})

const pageMax = 500
/** A page looks at a bounded number of rows and may be empty: so many are asked for before the list ends as it is. */
const pagesMax = 50

export const list = Command.make(
  "list",
  {
    ...filters,
    limit: Flag.Int("limit").pipe(
      Flag.withDescription("How many, at most (default: 50)"),
      Flag.withSchema(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 10_000 }))),
      Flag.withDefault(50)
    ),
    cursor: Flag.String("cursor").pipe(
      Flag.withDescription("Go on where an earlier list ended: its next_cursor"),
      Flag.optional
    )
  },
  Effect.fnUntraced(function*(flags) {
    yield* asking(Effect.fnUntraced(function*(client, { look, note, show }) {
      const jobs: Array<Job> = []
      let cursor = Option.getOrNull(flags.cursor)
      for (let pages = 0; pages < pagesMax; pages++) {
        const page = yield* client.list({
          ...filterOf(flags),
          limit: Math.min(flags.limit - jobs.length, pageMax),
          cursor: cursor ?? undefined
        })
        jobs.push(...page.jobs)
        cursor = page.next_cursor
        if (cursor === null || jobs.length >= flags.limit) {
          break
        }
      }
      yield* show({ jobs, next_cursor: cursor }, () => JobText.table(look, jobs))
      if (cursor !== null && look.width !== null) {
        yield* note(`There are more: --limit, or --cursor ${cursor}`)
      }
    }))
  })
).pipe(
  Command.withDescription("Lists jobs, newest first"),
  Command.withAlias("ls"),
  Command.withExamples([{ command: "deadman list --state dead --json", description: "The dead ones, for a program" }])
)

export const stats = Command.make(
  "stats",
  {},
  Effect.fnUntraced(function*() {
    yield* asking(Effect.fnUntraced(function*(client, { look, show }) {
      const stats = yield* client.stats
      yield* show(stats, () => StatsText.page(look, stats))
    }))
  })
).pipe(Command.withDescription("Counts of jobs, counters, and the processes that run them"))
