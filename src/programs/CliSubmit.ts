/** `deadman submit`: one job, from what is on the command line or on stdin. */
import { Clock, Effect, Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import type { Client, NewJob } from "../adapters/http/Client.ts"
import type { ClientError, InvalidRequest } from "../adapters/http/ClientError.ts"
import * as JobText from "./cli/JobText.ts"
import * as Text from "./cli/Text.ts"
import { lengthFlag, payloadArgument, payloadOf } from "./CliInput.ts"
import { type Answer, asking, Unsaid, usage } from "./CliRoot.ts"

const instantOf = (text: string): Option.Option<number> => {
  const read = Text.instantOf(text)
  return typeof read === "number" ? Option.some(read) : Option.none()
}

/** Behind `Expected: `. */
const notAnInstant = (text: string): string =>
  Text.instantOf(text) === "unzoned"
    ? `a time with its zone, as ${text.slice(0, 10)}T08:00:00Z or ${text.slice(0, 10)}T08:00:00+02:00, since it is ` +
      "another one in each; or --in 10m"
    : "a time like 2030-01-31T08:00:00Z"

/** A server of before `delay_ms`: then it is by this machine's clock. */
const knowsNoDelays = (error: ClientError): error is InvalidRequest =>
  error._tag === "InvalidRequest" && error.code === "unknown_field" && error.field === "delay_ms"

/** A process has reported itself by then, and what the server counts is newer than the job. */
const unhandledAfter = "10 seconds"

/** A job of a type that nobody runs is well: it only waits, and nothing else would tell whoever waits for it. */
const sayUnhandled = (client: Client["Service"], type: string, note: Answer["note"]): Effect.Effect<void> =>
  Effect.sleep(unhandledAfter).pipe(
    Effect.andThen(client.stats),
    Effect.flatMap(({ unhandled }) =>
      Object.hasOwn(unhandled, type)
        ? note(
          `no process has a handler for ${type}: start a worker whose DEADMAN_HANDLERS has it, or cancel the job if the ` +
            "type is a mistake"
        )
        : Effect.void
    ),
    Effect.ignore
  )

export const submit = Command.make(
  "submit",
  {
    type: Argument.String("type").pipe(Argument.withDescription("The type: which handler runs it")),
    payload: payloadArgument,
    queue: Flag.String("queue").pipe(Flag.withDescription("Its queue (default: default)"), Flag.optional),
    priority: Flag.Int("priority").pipe(Flag.withDescription("-1000 to 1000, higher first"), Flag.optional),
    maxAttempts: Flag.Int("max-attempts").pipe(
      Flag.withDescription("Failed runs after which it is dead (default: 10)"),
      Flag.optional
    ),
    timeout: lengthFlag("timeout", "After how long a run is interrupted").pipe(Flag.optional),
    wait: lengthFlag("in", "Due so long after it is stored, by the database's clock").pipe(Flag.optional),
    at: Flag.String("at").pipe(
      Flag.withDescription("Due at that time: 2030-01-31T08:00:00Z, or with +02:00 for the Z, or in milliseconds"),
      Flag.withMetavar("time"),
      Flag.filterMap(instantOf, notAnInstant),
      Flag.optional
    ),
    tags: Flag.String("tag").pipe(Flag.withDescription("A tag; may be given again"), Flag.atLeast(0)),
    key: Flag.String("key").pipe(
      Flag.withDescription("An Idempotency-Key: a repeat with the same one is the same job"),
      Flag.optional
    ),
    startWithin: lengthFlag("start-within", "Dead, expired, if it was not started in so long").pipe(Flag.optional),
    retain: lengthFlag("retain", "How long it is kept once it has ended").pipe(Flag.optional),
    unique: Flag.Boolean("unique").pipe(
      Flag.withDescription("Nothing new while one of this type and payload has not ended: that one is shown"),
      Flag.withoutNegation,
      Flag.withDefault(false)
    ),
    until: Flag.Boolean("wait").pipe(
      Flag.withDescription("Wait until it has ended; one that ended dead is a failure"),
      Flag.withoutNegation,
      Flag.withDefault(false)
    ),
    within: lengthFlag("within", "The longest that --wait waits (default: 1m)").pipe(Flag.optional)
  },
  Effect.fnUntraced(function*(flags) {
    yield* asking(Effect.fnUntraced(function*(client, { look, note, show }) {
      if (Option.isSome(flags.at) && Option.isSome(flags.wait)) {
        return yield* usage("--at and --in exclude each other: give one of them.")
      }
      const [wait, within] = [Option.getOrNull(flags.wait), Option.getOrNull(flags.startWithin)]
      if (wait !== null && within !== null && wait >= within) {
        return yield* usage("--start-within must be longer than --in: the job would be dead before it is due.")
      }
      const now = yield* Clock.currentTimeMillis
      const set = <K extends keyof NewJob>(name: K, value: Option.Option<NewJob[K]>) =>
        Option.isNone(value) ? {} : { [name]: value.value }
      const asked: NewJob = {
        type: flags.type,
        ...(yield* payloadOf(flags.payload)),
        ...set("queue", flags.queue),
        ...set("priority", flags.priority),
        ...set("max_attempts", flags.maxAttempts),
        ...set("timeout_ms", flags.timeout),
        ...set("run_at_ms", flags.at),
        ...set("delay_ms", flags.wait),
        ...(flags.tags.length === 0 ? {} : { tags: flags.tags }),
        ...set("idempotency_key", flags.key),
        ...set("start_by_ms", Option.map(flags.startWithin, (ms) => now + ms)),
        ...set("retain_ms", flags.retain),
        ...(flags.unique ? { unique: {} } : {})
      }
      const { job, outcome } = yield* client.submit(asked).pipe(
        Effect.catchIf(knowsNoDelays, (refused) => {
          const { delay_ms: delay, ...rest } = asked
          return typeof delay === "number" ? client.submit({ ...rest, run_at_ms: now + delay }) : Effect.fail(refused)
        })
      )
      if (Option.isSome(flags.at) || Option.isSome(flags.wait)) {
        yield* note(`due at ${Text.time(job.run_at_ms)} UTC`)
      }
      if (!flags.until) {
        // The id alone on stdout, so that a shell can take it as it is.
        if (outcome !== "created") {
          yield* note(`${outcome}: it was there before`)
        }
        return yield* show(job, () => job.id)
      }
      yield* note(`waiting for ${job.id}`)
      const ended = yield* Effect.raceFirst(
        client.waitFor(job.id, { within: Option.getOrElse(flags.within, () => 60_000) }),
        Effect.andThen(sayUnhandled(client, flags.type, note), Effect.never)
      )
      yield* show(ended, () => JobText.page(look, ended))
      if (ended.state === "dead") {
        return yield* new Unsaid({ exit: 1 })
      }
    }))
  })
).pipe(
  Command.withDescription("Submits a job and prints its id"),
  Command.withExamples([
    { command: "deadman submit sleep 500 --wait", description: "Run the demo handler and see what became of it" },
    {
      command: "deadman submit mail.send '{\"to\":\"ada\"}' --key order-17 --in 10m",
      description: "Once, in 10 minutes"
    }
  ])
)
