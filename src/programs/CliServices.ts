/**
 * `deadman migrate` and `deadman doctor`: what is asked of the services themselves, by the variables of the programs.
 *
 * Neither needs a server. `doctor` looks at everything that is configured, at the same time, and a thing that is away or
 * wrong does not keep it from the others.
 */
import { Effect } from "effect"
import { Command, Flag } from "effect/cli"
import { lengthFlag } from "./CliInput.ts"
import { answering } from "./CliRoot.ts"

const checks = Effect.promise(() => import("./CliChecks.ts"))

export const migrate = Command.make(
  "migrate",
  {
    check: Flag.Boolean("check").pipe(
      Flag.withDescription("Change nothing: fail if the schema is not this program's"),
      Flag.withoutNegation,
      Flag.withDefault(false)
    )
  },
  ({ check }) => answering((answer) => Effect.flatMap(checks, ({ migrate }) => migrate(check, answer)))
).pipe(Command.withDescription("Brings the schema up to date, or says that it is; needs the right to change it"))

export const doctor = Command.make(
  "doctor",
  {
    old: lengthFlag("old", "After how long an open transaction is worth a word").pipe(Flag.withDefault(60_000))
  },
  ({ old }) => answering((answer) => Effect.flatMap(checks, ({ doctor }) => doctor(old, answer)))
).pipe(
  Command.withDescription("Looks at Postgres, Redis, Kafka, the processes and the backlog, and says what to do"),
  Command.withShortDescription("Looks for what is wrong, and says what to do")
)
