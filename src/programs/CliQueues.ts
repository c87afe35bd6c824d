/** `deadman queues`: what they hold, and how they are worked off. */
import { Effect, Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import type { Client } from "../adapters/http/Client.ts"
import type { ClientError } from "../adapters/http/ClientError.ts"
import * as QueueText from "./cli/QueueText.ts"
import * as Text from "./cli/Text.ts"
import { allPages, type Answer, asking, usage } from "./CliRoot.ts"

const name = Argument.String("name").pipe(Argument.withDescription("The name of the queue"))

const all = (client: Client["Service"]) =>
  allPages<QueueText.ShownQueue>((cursor) =>
    Effect.map(
      client.call("always", (api) => api.queues.listQueues({ query: cursor === null ? {} : { cursor } })),
      ({ next_cursor, queues }) => ({ items: queues, next: next_cursor })
    )
  )

const showAll = Effect.suspend(() =>
  asking(Effect.fnUntraced(function*(client, { look, show }) {
    const queues = yield* all(client)
    yield* show({ queues }, () => QueueText.table(look, queues))
  }))
)

const list = Command.make("list", {}, () => showAll).pipe(Command.withDescription("All queues, by name"))

const lookMs = 2_000

/** Only for a note: whatever else comes of it, the change itself is still to be tried. */
const isMissing = (client: Client["Service"], name: string) =>
  client.call("always", (api) => api.queues.getQueue({ params: { name } })).pipe(
    Effect.as(false),
    Effect.timeoutOrElse({ duration: lookMs, orElse: () => Effect.succeed(false) }),
    Effect.catch((error) => Effect.succeed(error._tag === "NotFound"))
  )

/**
 * Changes a queue, and shows it. The same change twice is one. A queue needs no set-up, so one of a mistyped name is made
 * like any other: that is said, or nobody would know why the right one goes on.
 */
const changed = Effect.fnUntraced(function*(
  client: Client["Service"],
  { look, note, show }: Answer,
  name: string,
  ask: Effect.Effect<QueueText.ShownQueue, ClientError>
) {
  const isNew = yield* isMissing(client, name)
  const queue = yield* ask
  if (isNew) {
    yield* note(`There was no queue ${name} so far: it is made now. Is that its name? (\`deadman queues\` lists them.)`)
  }
  yield* show(queue, () => QueueText.table(look, [queue]))
})

const change = (
  name: string,
  ask: (client: Client["Service"]) => Effect.Effect<QueueText.ShownQueue, ClientError>
) => asking((client, answer) => changed(client, answer, name, ask(client)))

const pause = Command.make(
  "pause",
  { name },
  ({ name }) => change(name, (client) => client.call("always", (api) => api.queues.pauseQueue({ params: { name } })))
).pipe(
  Command.withDescription("Nothing of it is started any more; what runs goes on")
)

const resume = Command.make(
  "resume",
  { name },
  ({ name }) => change(name, (client) => client.call("always", (api) => api.queues.resumeQueue({ params: { name } })))
).pipe(
  Command.withDescription("Lets a paused queue go on, in its order")
)

const concurrencyOf = (text: string): number | null | undefined =>
  text === "none" ? null : /^[1-9][0-9]{0,5}$/.test(text) ? Number(text) : undefined

const stepOf = (text: string): number | "strict" | undefined =>
  text === "strict" ? text : Text.lengthOf(text) ?? undefined

const set = Command.make(
  "set",
  {
    name,
    concurrency: Flag.String("concurrency").pipe(
      Flag.withDescription("Jobs of it that one process runs at once, at most; none: no limit"),
      Flag.withMetavar("number|none"),
      Flag.optional
    ),
    step: Flag.String("step").pipe(
      Flag.withDescription("How long a job waits until it is worth one priority more (60s); strict: never"),
      Flag.withMetavar("length|strict"),
      Flag.optional
    )
  },
  Effect.fnUntraced(function*(flags) {
    const concurrency = Option.map(flags.concurrency, concurrencyOf)
    const step = Option.map(flags.step, stepOf)
    const payload = {
      ...(Option.isSome(concurrency) && concurrency.value !== undefined ? { concurrency: concurrency.value } : {}),
      ...(Option.isSome(step) && step.value !== undefined ? { step_ms: step.value } : {})
    }
    yield* asking(Effect.fnUntraced(function*(client, answer) {
      if (Option.isSome(concurrency) && concurrency.value === undefined) {
        return yield* usage("--concurrency must be a whole number from 1, or none.")
      }
      if (Option.isSome(step) && step.value === undefined) {
        return yield* usage("--step must be a length like 60s, or strict.")
      }
      if (Object.keys(payload).length === 0) {
        return yield* usage("Say what to set: --concurrency, --step.")
      }
      yield* changed(
        client,
        answer,
        flags.name,
        client.call("always", (api) => api.queues.putQueue({ params: { name: flags.name }, payload }))
      )
    }))
  })
).pipe(Command.withDescription("Sets how a queue is worked off, and leaves the rest as it is"))

export const queues = Command.make("queues", {}, () => showAll).pipe(
  Command.withSubcommands([list, pause, resume, set]),
  Command.withDescription("Lists queues with their counts; pauses, resumes and limits them")
)
