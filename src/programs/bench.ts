/**
 * `node dist/bench.js`: what Deadman does on this machine, by suites, round after round in turn.
 *
 * It starts a Postgres of its own that is gone afterwards, or uses the server that `DEADMAN_BENCH_DATABASE_URL` names,
 * in fresh databases that it drops. With `DEADMAN_REDIS_URL` and `DEADMAN_KAFKA_BROKERS` it measures the profile that
 * they make.
 */
import { NodeServices } from "@effect/platform-node"
import { Console, Effect, Schema } from "effect"
import { Command, Flag } from "effect/cli"
import { cpus, totalmem } from "node:os"
import * as Drains from "./bench/Drains.ts"
import * as Figures from "./bench/Figures.ts"
import * as PickUps from "./bench/PickUps.ts"
import * as Quiet from "./bench/Quiet.ts"
import * as Runner from "./bench/Runner.ts"
import { BenchFailed } from "./bench/Stage.ts"
import * as Submits from "./bench/Submits.ts"
import * as BenchStage from "./BenchStage.ts"
import * as Main from "./Main.ts"
import * as Variables from "./process/Variables.ts"
import { version } from "./Version.ts"

const bounded = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))

const suites = ["submit", "http", "drain", "pick-up", "backlog", "horizon", "idle", "recovery"] as const

const progress: Runner.Progress = {
  show: (done, total, what) =>
    Effect.sync(() => {
      const text = `[${done + 1 > total ? total : done + 1}/${total}] ${what}`
      process.stderr.write(
        process.stderr.isTTY === true ? `\r\u001b[K${text}${done === total ? "\n" : ""}` : `${text}\n`
      )
    })
}

const list = (text: string) => text.split(",").map((word) => word.trim()).filter((word) => word !== "")

const bench = Command.make(
  "bench",
  {
    suites: Flag.String("suites").pipe(
      Flag.withDescription(`Which, with commas between: ${suites.join(", ")}`),
      Flag.withDefault("submit,http,drain,pick-up")
    ),
    rounds: Flag.Int("rounds").pipe(
      Flag.withDescription("How often each case runs"),
      Flag.withSchema(bounded(1, 100)),
      Flag.withDefault(3)
    ),
    submits: Flag.Int("submits").pipe(
      Flag.withDescription("Jobs of a submit case"),
      Flag.withSchema(bounded(100, 10_000_000)),
      Flag.withDefault(30_000)
    ),
    drains: Flag.String("drains").pipe(
      Flag.withDescription("Jobs of the drain cases, from small to large, with commas between"),
      Flag.withDefault("20000,100000,200000")
    ),
    seconds: Flag.Int("seconds").pipe(
      Flag.withDescription("Length of a pick-up case"),
      Flag.withSchema(bounded(1, 600)),
      Flag.withDefault(10)
    ),
    idleSeconds: Flag.Int("idle-seconds").pipe(
      Flag.withDescription("Length of the idle case"),
      Flag.withSchema(bounded(1, 600)),
      Flag.withDefault(30)
    ),
    rows: Flag.Int("rows").pipe(
      Flag.withDescription("Rows of the backlog cases that must not matter"),
      Flag.withSchema(bounded(1, 10_000_000)),
      Flag.withDefault(1_000_000)
    ),
    json: Flag.Boolean("json").pipe(Flag.withDescription("Print the figures as JSON"), Flag.withDefault(false))
  },
  Effect.fn(function*(flags) {
    const chosen = list(flags.suites)
    const unknown = chosen.find((name) => !(suites as ReadonlyArray<string>).includes(name))
    const sizes = list(flags.drains).map(Number)
    if (unknown !== undefined || sizes.some((size) => !Number.isInteger(size) || size < 100)) {
      return yield* new BenchFailed({
        message: unknown === undefined
          ? `--drains must be whole numbers from 100 with commas between, not "${flags.drains}"`
          : `--suites knows ${suites.join(", ")}, not "${unknown}"`
      })
    }
    const small = sizes[0] ?? 20_000
    const middle = sizes[1] ?? small
    const cases: Record<(typeof suites)[number], ReadonlyArray<Runner.Case>> = {
      submit: Submits.cases(flags.submits).filter(({ suite }) => suite === "submit"),
      http: Submits.cases(flags.submits).filter(({ suite }) => suite === "http"),
      drain: Drains.cases(sizes),
      "pick-up": PickUps.cases(flags.seconds),
      backlog: PickUps.backlogCases(flags.rows, middle, flags.seconds),
      horizon: Drains.pinnedCases(small),
      idle: Quiet.idleCases(flags.idleSeconds),
      recovery: Quiet.recoveryCases(small)
    }
    const results = yield* Runner.run(
      suites.filter((name) => chosen.includes(name)).flatMap((name) => cases[name]),
      flags.rounds,
      progress
    ).pipe(Effect.provide(BenchStage.layer(yield* Variables.text("DEADMAN_BENCH_DATABASE_URL"))))
    const machine = {
      version,
      node: process.versions.node,
      cores: cpus().length,
      cpu: cpus()[0]?.model.trim() ?? "unknown",
      memoryGb: Math.round(totalmem() / 2 ** 30),
      redis: process.env["DEADMAN_REDIS_URL"] !== undefined,
      kafka: process.env["DEADMAN_KAFKA_BROKERS"] !== undefined
    }
    yield* Console.log(flags.json ? JSON.stringify({ machine, results }) : Figures.tables(results))
    if (results.some(({ failures }) => failures.length > 0)) {
      return yield* new BenchFailed({ message: "some cases failed: see their rows" })
    }
  })
).pipe(Command.withDescription("Measures Deadman on this machine"))

Main.once(bench.pipe(Command.run({ version }), Effect.provide(NodeServices.layer)))
