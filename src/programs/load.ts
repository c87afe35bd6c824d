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
import * as Adapters from "./Adapters.ts"
import * as Load from "./load/Load.ts"
import * as Progress from "./load/Progress.ts"
import * as Wait from "./load/Wait.ts"
import * as Main from "./Main.ts"
import * as Words from "./process/Words.ts"
import { version } from "./Version.ts"

const bounded = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))

const progress = (what: string, total: number) =>
  Progress.make({
    what,
    total,
    terminal: process.stderr.isTTY === true,
    write: (text) => void process.stderr.write(text)
  })

/** What was loaded, or with `--jobs 0` all that is outstanding. */
const drain = Effect.fnUntraced(function*(among: Verification.Among, seconds: number) {
  const left = Verification.outstanding(among)
  const total = Object.values(yield* left).reduce((all, n) => all + n, 0)
  const bar = yield* progress("ended", total)
  const waited = yield* Wait.run({ total, seconds, left, show: bar.show }).pipe(Effect.ensuring(bar.end))
  return Wait.complaint(waited, seconds)
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
      `deliveries above 1 ${Words.counted(figures.redelivered, "job")}`,
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
      Flag.withDescription("How many jobs to submit; 0 only counts (default: 10000)"),
      Flag.withSchema(bounded(0, 10_000_000)),
      Flag.withDefault(10_000)
    ),
    type: Flag.String("type").pipe(
      Flag.withDescription("Their type (default: side-effect)"),
      Flag.withSchema(JobType),
      Flag.withDefault(JobType.make("side-effect"))
    ),
    payload: Flag.String("payload").pipe(
      Flag.withDescription("Their payload as JSON; {n} is the job's number (default: {n})"),
      Flag.withDefault("{n}")
    ),
    batch: Flag.Int("batch").pipe(
      Flag.withDescription("Jobs per statement (default: 1000)"),
      Flag.withSchema(bounded(1, 10_000)),
      Flag.withDefault(1_000)
    ),
    wait: Flag.Int("wait").pipe(
      Flag.withDescription(
        "Seconds to wait until every loaded job has ended (with --jobs 0: every job there is); 0 does not wait (default: 0)"
      ),
      Flag.withSchema(bounded(0, 86_400)),
      Flag.withDefault(0)
    ),
    json: Flag.Boolean("json").pipe(
      Flag.withDescription("Print the counts as JSON (default: as lines)"),
      Flag.withDefault(false)
    )
  },
  Effect.fn(function*(flags) {
    const payload = (n: number) => flags.payload.replaceAll("{n}", String(n))
    const fault = JsonText.check(payload(0))
    if (fault !== null) {
      return yield* new Load.LoadRefused({ message: `--payload is not JSON that can be stored: ${fault.reason}` })
    }
    let among: Verification.Among = Verification.all
    if (flags.jobs > 0) {
      const bar = yield* progress("submitted", flags.jobs)
      const loaded = yield* Load.run(
        { jobs: flags.jobs, type: flags.type, payload, batch: flags.batch, width: 2 },
        bar.show
      ).pipe(Effect.ensuring(bar.end))
      if (loaded !== null) {
        among = { ...loaded, type: flags.type }
      }
    }
    const complaint = flags.wait === 0 ? null : yield* drain(among, flags.wait)
    const figures = yield* report(flags.json)
    if (complaint !== null || figures.duplicates > 0 || figures.missing > 0) {
      return yield* new Load.LoadRefused({ message: complaint ?? "side effects are missing or duplicated" })
    }
  })
).pipe(
  Command.withDescription("Loads jobs into Deadman's database and counts what became of them"),
  Command.provide(Adapters.storeLayer("load"))
)

Main.once(load.pipe(Command.run({ version }), Effect.provide(NodeServices.layer)))
