/**
 * `node dist/load.js`: loads many jobs, waits for them if asked to, and counts what became of them.
 *
 * It needs no server, only the database that the others use: `DEADMAN_DATABASE_URL` or the embedded one.
 */
import { NodeServices } from "@effect/platform-node"
import { Console, Effect, Schema } from "effect"
import { Command, Flag } from "effect/cli"
import * as Verification from "../adapters/postgres/Verification.ts"
import { JobType } from "../domain/Job.ts"
import * as JsonText from "../domain/JsonText.ts"
import { JobStore } from "../ports/JobStore.ts"
import * as Adapters from "./Adapters.ts"
import * as Load from "./load/Load.ts"
import * as Progress from "./load/Progress.ts"
import * as Main from "./Main.ts"
import { version } from "./Version.ts"

const bounded = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))

const progress = (what: string, total: number) =>
  Progress.make({
    what,
    total,
    terminal: process.stderr.isTTY === true,
    write: (text) => void process.stderr.write(text)
  })

const outstanding = Effect.gen(function*() {
  const { byState } = yield* (yield* JobStore).counts
  return byState.pending + byState.running + byState.failed
})

/** Until nothing is outstanding, or for so long. */
const drain = Effect.fnUntraced(function*(seconds: number) {
  const total = yield* outstanding
  const bar = yield* progress("ended", total)
  const ended = yield* Effect.gen(function*() {
    while (true) {
      const left = yield* outstanding
      yield* bar.show(Math.max(0, total - left))
      if (left === 0) {
        return true
      }
      yield* Effect.sleep("250 millis")
    }
  }).pipe(Effect.timeoutOrElse({ duration: `${seconds} seconds`, orElse: () => Effect.succeed(false) }))
  yield* bar.end
  return ended
})

const report = Effect.fnUntraced(function*(json: boolean) {
  const figures = yield* Verification.read
  if (json) {
    yield* Console.log(JSON.stringify(figures))
  } else {
    const dead = Object.entries(figures.dead).map(([reason, n]) => `${n} ${reason}`).join(", ")
    yield* Console.log([
      `jobs               ${figures.jobs}`,
      `outstanding        ${figures.outstanding}`,
      `completed          ${figures.completed}`,
      `dead               ${dead === "" ? "0" : dead}`,
      `effects            ${figures.effects}`,
      `effects missing    ${figures.missing}`,
      `effects duplicated ${figures.duplicates}`,
      `deliveries above 1 ${figures.redelivered} jobs`,
      `lease losses       ${figures.leaseLosses}`,
      `stale writes       ${figures.staleWrites} (refused)`
    ].join("\n"))
  }
  return figures
})

const load = Command.make(
  "load",
  {
    jobs: Flag.Int("jobs").pipe(
      Flag.withDescription("How many jobs to submit; 0 only counts"),
      Flag.withSchema(bounded(0, 10_000_000)),
      Flag.withDefault(10_000)
    ),
    type: Flag.String("type").pipe(
      Flag.withDescription("Their type"),
      Flag.withSchema(JobType),
      Flag.withDefault(JobType.make("side-effect"))
    ),
    payload: Flag.String("payload").pipe(
      Flag.withDescription("Their payload as JSON; {n} is the job's number"),
      Flag.withDefault("{n}")
    ),
    batch: Flag.Int("batch").pipe(
      Flag.withDescription("Jobs per statement"),
      Flag.withSchema(bounded(1, 10_000)),
      Flag.withDefault(1_000)
    ),
    wait: Flag.Int("wait").pipe(
      Flag.withDescription("Seconds to wait until every job has ended; 0 does not wait"),
      Flag.withSchema(bounded(0, 86_400)),
      Flag.withDefault(0)
    ),
    json: Flag.Boolean("json").pipe(Flag.withDescription("Print the counts as JSON"), Flag.withDefault(false))
  },
  Effect.fn(function*(flags) {
    const payload = (n: number) => flags.payload.replaceAll("{n}", String(n))
    const fault = JsonText.check(payload(0))
    if (fault !== null) {
      return yield* new Load.LoadRefused({ message: `--payload is not JSON that can be stored: ${fault.reason}` })
    }
    if (flags.jobs > 0) {
      const bar = yield* progress("submitted", flags.jobs)
      yield* Load.run({ jobs: flags.jobs, type: flags.type, payload, batch: flags.batch, width: 2 }, bar.show)
      yield* bar.end
    }
    const ended = flags.wait === 0 || (yield* drain(flags.wait))
    const figures = yield* report(flags.json)
    if (!ended || figures.duplicates > 0 || figures.missing > 0) {
      return yield* new Load.LoadRefused({
        message: ended ? "side effects are missing or duplicated" : `not every job ended within ${flags.wait} s`
      })
    }
  })
).pipe(
  Command.withDescription("Loads jobs into Deadman's database and counts what became of them"),
  Command.provide(Adapters.storeLayer("load"))
)

Main.once(load.pipe(Command.run({ version }), Effect.provide(NodeServices.layer)))
