/** `node test/siege/run.ts <name> [--short] [--scale]`: one siege on the built programs, its findings and figures. */
import { NodeRuntime } from "@effect/platform-node"
import { Console, Effect } from "effect"
import * as Arena from "./Arena.ts"
import * as CronSieges from "./CronSieges.ts"
import type { Report } from "./Findings.ts"
import * as MemberSieges from "./MemberSieges.ts"
import * as PostgresSieges from "./PostgresSieges.ts"
import * as ScaleSieges from "./ScaleSieges.ts"
import * as ServerSieges from "./ServerSieges.ts"
import * as WorkerSieges from "./WorkerSieges.ts"

const sieges = {
  kills: {
    long: () =>
      WorkerSieges.kills({
        jobs: 2_000,
        kills: 20,
        every: "2 seconds",
        workers: 3,
        threads: 40,
        leaseMs: 5_000,
        sleepMaxMs: 3_000
      }),
    short: () =>
      WorkerSieges.kills({
        jobs: 300,
        kills: 5,
        every: "1500 millis",
        workers: 3,
        threads: 32,
        leaseMs: 2_000,
        sleepMaxMs: 1_500
      })
  },
  zombie: { long: () => WorkerSieges.zombie({ leaseMs: 5_000 }), short: () => WorkerSieges.zombie({ leaseMs: 2_000 }) },
  keys: {
    long: () => ServerSieges.keys({ rounds: 100, width: 50 }),
    short: () => ServerSieges.keys({ rounds: 10, width: 50 })
  },
  sigterm: {
    long: () => WorkerSieges.sigterm({ drainMs: 10_000 }),
    short: () => WorkerSieges.sigterm({ drainMs: 2_000 })
  },
  outage: {
    long: () => PostgresSieges.outage({ rounds: 5, awayMs: 30_000, leaseMs: 5_000 }),
    short: () => PostgresSieges.outage({ rounds: 1, awayMs: 5_000, leaseMs: 2_000 })
  },
  idle: {
    long: () => ServerSieges.idle({ seconds: 30, jobs: 50 }),
    short: () => ServerSieges.idle({ seconds: 5, jobs: 10 })
  },
  redis: {
    long: () =>
      ScaleSieges.redis({
        leaseMs: 5_000,
        flushes: 30,
        stopsMs: [2_000, 30_000, 90_000],
        freezeMs: 30_000,
        readOnlyMs: 30_000
      }),
    short: () =>
      ScaleSieges.redis({ leaseMs: 2_000, flushes: 5, stopsMs: [2_000, 6_000], freezeMs: 6_000, readOnlyMs: 6_000 })
  },
  kafka: {
    long: () =>
      ScaleSieges.kafka({
        leaseMs: 5_000,
        stopsMs: [5_000, 20_000, 60_000, 10_000, 30_000],
        waiting: { wiped: 100, moved: 100 }
      }),
    short: () => ScaleSieges.kafka({ leaseMs: 2_000, stopsMs: [5_000, 8_000], waiting: { wiped: 100, moved: 100 } })
  },
  kafkaFull: {
    long: () => ScaleSieges.kafka({ leaseMs: 5_000, stopsMs: [], waiting: { wiped: 1_000_000, moved: 100 } }),
    short: () => ScaleSieges.kafka({ leaseMs: 2_000, stopsMs: [], waiting: { wiped: 20_000, moved: 100 } })
  },
  backlog: {
    long: () => MemberSieges.backlog({ leaseMs: 5_000, workers: 3, threads: 16, jobs: 2_000, sleepMs: 1_500 }),
    short: () => MemberSieges.backlog({ leaseMs: 2_000, workers: 3, threads: 8, jobs: 400, sleepMs: 500 })
  },
  cron: {
    long: () => CronSieges.cron({ seconds: 300, servers: 3, everyMs: 4_000, freezeMaxMs: 8_000 }),
    short: () => CronSieges.cron({ seconds: 40, servers: 3, everyMs: 3_000, freezeMaxMs: 5_000 })
  },
  lostAnswers: {
    long: () => PostgresSieges.lostAnswers({ losses: 200, freezes: 10, leaseMs: 2_000 }),
    short: () => PostgresSieges.lostAnswers({ losses: 30, freezes: 1, leaseMs: 1_500 })
  }
}

const isSiege = (name: string | undefined): name is keyof typeof sieges => name !== undefined && name in sieges

const main = Effect.gen(function*() {
  const name = process.argv[2]
  if (!isSiege(name)) {
    return yield* Effect.die(new Error(`which siege? one of: ${Object.keys(sieges).join(", ")}`))
  }
  const report: Report = yield* process.argv.includes("--short") ? sieges[name].short() : sieges[name].long()
  for (const { detail, held, law } of report.findings) {
    yield* Console.log(`${held ? "held  " : "BROKEN"}  ${law}${detail === "" ? "" : `  (${detail})`}`)
  }
  yield* Console.log(JSON.stringify(report.figures))
  if (report.findings.some(({ held }) => !held)) {
    process.exitCode = 1
  }
})

NodeRuntime.runMain(
  Effect.scoped(main).pipe(
    Effect.provideService(Arena.Profile, process.argv.includes("--scale") ? "scale" : "postgres")
  )
)
