/** `deadman schedules`: jobs that come again and again. */
import { Effect, Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import type { Client, NewSchedule } from "../adapters/http/Client.ts"
import type { ClientError } from "../adapters/http/ClientError.ts"
import { overlaps } from "../domain/Schedule.ts"
import * as JobText from "./cli/JobText.ts"
import * as ScheduleText from "./cli/ScheduleText.ts"
import { lengthFlag, payloadArgument, payloadOf } from "./CliInput.ts"
import { allPages, asking, usage } from "./CliRoot.ts"

const name = Argument.String("name").pipe(Argument.withDescription("The name of the schedule"))

const showAll = Effect.suspend(() =>
  asking(Effect.fnUntraced(function*(client, { look, show }) {
    const schedules = yield* allPages<ScheduleText.ShownSchedule>((cursor) =>
      Effect.map(
        client.call("always", (api) => api.schedules.listSchedules({ query: cursor === null ? {} : { cursor } })),
        ({ next_cursor, schedules }) => ({ items: schedules, next: next_cursor })
      )
    )
    yield* show({ schedules }, () => ScheduleText.table(look, schedules))
  }))
)

const list = Command.make("list", {}, () => showAll).pipe(Command.withDescription("All schedules, by name"))

/** A command that answers with one schedule. */
const one = (ask: (client: Client["Service"]) => Effect.Effect<ScheduleText.ShownSchedule, ClientError>) =>
  asking(Effect.fnUntraced(function*(client, { look, show }) {
    const schedule = yield* ask(client)
    yield* show(schedule, () => ScheduleText.page(look, schedule))
  }))

const get = Command.make(
  "get",
  { name },
  ({ name }) => one((client) => client.call("always", (api) => api.schedules.getSchedule({ params: { name } })))
).pipe(
  Command.withDescription("One schedule, with its next times")
)

const pause = Command.make(
  "pause",
  { name },
  ({ name }) => one((client) => client.call("always", (api) => api.schedules.pauseSchedule({ params: { name } })))
).pipe(
  Command.withDescription("It makes no jobs until it is resumed")
)

const resume = Command.make(
  "resume",
  { name },
  ({ name }) => one((client) => client.call("always", (api) => api.schedules.resumeSchedule({ params: { name } })))
).pipe(
  Command.withDescription("It goes on from its next time on")
)

const key = Flag.String("key").pipe(
  Flag.withDescription("An Idempotency-Key: a repeat with the same one is the same job"),
  Flag.optional
)

const run = Command.make(
  "run",
  { name, key },
  ({ key, name }) =>
    asking(Effect.fnUntraced(function*(client, { look, show }) {
      const job = yield* client.runSchedule(name, { key: Option.getOrUndefined(key) })
      yield* show(job, () => JobText.page(look, job))
    }))
).pipe(Command.withDescription("Makes one job of it now, and shows it"))

const remove = Command.make("delete", { name }, ({ name }) =>
  asking(Effect.fnUntraced(function*(client, { show }) {
    yield* client.call("if nothing was done", (api) => api.schedules.deleteSchedule({ params: { name } }))
    yield* show({ deleted: name }, () => `deleted ${name}; the jobs that it made stay`)
  }))).pipe(Command.withDescription("It makes no jobs any more; those that it made stay"))

const missedOf = (text: string): "skip" | "latest" | { readonly all: number } | undefined =>
  text === "skip" || text === "latest" ? text : /^[1-9][0-9]{0,5}$/.test(text) ? { all: Number(text) } : undefined

const put = Command.make(
  "put",
  {
    name,
    type: Argument.String("type").pipe(Argument.withDescription("The type of its jobs")),
    payload: payloadArgument,
    cron: Flag.String("cron").pipe(
      Flag.withDescription("Minute, hour, day of month, month, day of week: \"0 3 * * *\""),
      Flag.optional
    ),
    zone: Flag.String("zone").pipe(
      Flag.withDescription("Whose clocks --cron goes by, as Europe/Berlin (default: UTC)"),
      Flag.optional
    ),
    every: lengthFlag("every", "In place of --cron: again and again after so long").pipe(Flag.optional),
    queue: Flag.String("queue").pipe(Flag.withDescription("The queue of its jobs"), Flag.optional),
    priority: Flag.Int("priority").pipe(Flag.withDescription("-1000 to 1000, higher first"), Flag.optional),
    maxAttempts: Flag.Int("max-attempts").pipe(
      Flag.withDescription("Failed runs after which a job of it is dead"),
      Flag.optional
    ),
    timeout: lengthFlag("timeout", "After how long a run is interrupted").pipe(Flag.optional),
    retain: lengthFlag("retain", "How long its jobs are kept once they have ended").pipe(Flag.optional),
    tags: Flag.String("tag").pipe(Flag.withDescription("A tag; may be given again"), Flag.atLeast(0)),
    missed: Flag.String("missed").pipe(
      Flag.withDescription("What becomes of times that no server was there for (default: latest)"),
      Flag.withMetavar("skip|latest|number"),
      Flag.optional
    ),
    overlap: Flag.Literals("overlap", overlaps).pipe(
      Flag.withDescription("While the job before has not ended (default: allow)"),
      Flag.optional
    ),
    paused: Flag.Boolean("paused").pipe(Flag.withDescription("Whether it is paused"), Flag.optional)
  },
  Effect.fnUntraced(function*(flags) {
    yield* asking(Effect.fnUntraced(function*(client, { look, show }) {
      const missed = Option.map(flags.missed, missedOf)
      if (Option.isSome(missed) && missed.value === undefined) {
        return yield* usage("--missed must be skip, latest, or a number: the newest so many.")
      }
      if (Option.isSome(flags.cron) === Option.isSome(flags.every)) {
        return yield* usage("Say when: --cron or --every, one of them.")
      }
      const set = <K extends keyof NewSchedule>(name: K, value: Option.Option<NewSchedule[K]>) =>
        Option.isNone(value) ? {} : { [name]: value.value }
      const payload = {
        type: flags.type,
        ...(yield* payloadOf(flags.payload)),
        ...set("cron", flags.cron),
        ...set("zone", flags.zone),
        ...set("every_ms", flags.every),
        ...set("queue", flags.queue),
        ...set("priority", flags.priority),
        ...set("max_attempts", flags.maxAttempts),
        ...set("timeout_ms", flags.timeout),
        ...set("retain_ms", flags.retain),
        ...(flags.tags.length === 0 ? {} : { tags: flags.tags }),
        ...(Option.isSome(missed) && missed.value !== undefined ? { missed: missed.value } : {}),
        ...set("overlap", flags.overlap),
        ...set("paused", flags.paused)
      }
      const schedule = yield* client.putSchedule(flags.name, payload)
      yield* show(schedule, () => ScheduleText.page(look, schedule))
    }))
  })
).pipe(
  Command.withDescription("Stores a schedule, or replaces the one of that name"),
  Command.withExamples([{
    command: "deadman schedules put report report.nightly --cron \"0 3 * * *\" --zone Europe/Berlin",
    description: "Every night at three, by the clocks of Berlin"
  }])
)

export const schedules = Command.make("schedules", {}, () => showAll).pipe(
  Command.withSubcommands([list, get, put, pause, resume, run, remove]),
  Command.withDescription("Lists schedules; puts, pauses, resumes, runs and deletes them")
)
