/**
 * `npm start --prefix test/peers`: Deadman beside pg-boss, graphile-worker and BullMQ, in turn, in one run.
 *
 * `npm install --prefix test/peers` first. After `--`, `--rounds 3`, `--only submit,drain`, `--own http` and `--scale 0.2` make it shorter; `--write`
 * puts the tables into docs/benchmarks.md, between its markers. Postgres, and Redis and Kafka where a row asks for them,
 * are started for the run and are gone afterwards: the Postgres is the one that Deadman brings along, the Redis appends
 * to its file every second.
 */
import { Effect, Option, Redacted } from "effect"
import { execFileSync, spawn } from "node:child_process"
import { readFileSync, writeFileSync } from "node:fs"
import { cpus, loadavg, totalmem } from "node:os"
import { parseArgs } from "node:util"
import * as KafkaServer from "../support/KafkaServer.ts"
import * as PostgresServer from "../support/PostgresServer.ts"
import * as RedisServer from "../support/RedisServer.ts"

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "3" },
    only: { type: "string", default: "submit,drain,drain-default,pick-up,idle,scale" },
    scale: { type: "string", default: "1" },
    seconds: { type: "string", default: "6" },
    "idle-seconds": { type: "string", default: "20" },
    own: { type: "string", default: "http,drain,backlog,horizon,recovery" },
    write: { type: "boolean", default: false }
  }
})
const rounds = Number(values.rounds)
const scale = Number(values.scale)
const scaled = (jobs) => Math.max(200, Math.round(jobs * scale))
const only = values.only.split(",")
const all = ["deadman", "graphile-worker", "pg-boss", "bullmq"]

/** A row for each system; `jobs` may differ, since a rate is a rate and nobody wants to wait. */
const group = (suite, title, scenario, rows, roundsMax = rounds) => ({ suite, title, scenario, rows, roundsMax })
const each = (mode, options, systems = all) =>
  systems.map((system) => ({ system, mode: modeOf(system, mode), options: options(system) }))
/** pg-boss without NOTIFY polls every two seconds: its pick-up is shown at its best. */
const modeOf = (system, mode) =>
  system.startsWith("deadman") ? "default" : mode === "notified" && system !== "pg-boss" ? "default" : mode
const quick = (system) => system.startsWith("deadman") || system === "bullmq"

const groups = [
  ...[64, 16, 1].map((width) =>
    group(
      "submit",
      `Single submits, ${width} concurrent`,
      "submit",
      each(
        "default",
        (system) => [`width=${width}`, `jobs=${scaled(width === 1 ? 2_000 : quick(system) ? 40_000 : 5_000)}`]
      )
    )
  ),
  group("submit", "Bulk, 1,000 at a time", "submit", each("default", () => ["bulk=1000", `jobs=${scaled(50_000)}`])),
  group(
    "drain",
    `Drain of ${scaled(100_000).toLocaleString("en-GB")} jobs, never ANALYZEd; the peers at their best settings`,
    "drain",
    each("tuned", () => [`jobs=${scaled(100_000)}`])
  ),
  group(
    "drain-default",
    "Drain, everybody at default settings",
    "drain",
    each("default", (system) =>
      system === "pg-boss"
        ? ["jobs=1000", "cap=8"]
        : [`jobs=${scaled(system === "deadman" ? 100_000 : 15_000)}`])
  ),
  group(
    "drain-2",
    `Drain of ${scaled(100_000).toLocaleString("en-GB")} jobs by 2 processes; the peers at their best settings`,
    "drain",
    each("tuned", () => [`jobs=${scaled(100_000)}`, "processes=2"])
  ),
  ...[50, 500].map((rate) =>
    group(
      "pick-up",
      `Pick-up at ${rate}/s; pg-boss with NOTIFY, at 500/s the peers tuned`,
      "pick-up",
      each(rate === 50 ? "notified" : "latency", () => [`rate=${rate}`, `seconds=${values.seconds}`])
    )
  ),
  group(
    "pick-up-future",
    `Pick-up at 50/s beside ${scaled(1_000_000).toLocaleString("en-GB")} far-future jobs`,
    "pick-up",
    each("notified", () => ["rate=50", `seconds=${values.seconds}`, `future=${scaled(1_000_000)}`], [
      "deadman",
      "graphile-worker",
      "pg-boss"
    ]),
    1
  ),
  group(
    "scale",
    "Scale profile: single submits, 64 concurrent",
    "submit",
    each("default", () => [`jobs=${scaled(40_000)}`], ["deadman-scale", "deadman"])
  ),
  group(
    "scale",
    `Scale profile: drain of a full topic of ${
      scaled(60_000).toLocaleString("en-GB")
    }, from the first job; BullMQ tuned`,
    "drain",
    each("tuned", () => [`jobs=${scaled(60_000)}`, "from=first"], ["deadman-scale", "bullmq", "deadman"])
  ),
  group(
    "scale",
    "Scale profile: end to end, 64 submitters and one worker; BullMQ tuned",
    "end-to-end",
    each(
      "tuned",
      (system) => [`jobs=${scaled(system === "bullmq-postgres" ? 3_000 : 25_000)}`],
      ["deadman-scale", "bullmq-postgres", "bullmq", "deadman"]
    )
  ),
  group(
    "scale",
    "Scale profile: pick-up at 50/s",
    "pick-up",
    each("default", () => ["rate=50", `seconds=${values.seconds}`], ["deadman-scale", "deadman"])
  ),
  group("idle", "Idle", "idle", each("default", () => [`seconds=${values["idle-seconds"]}`]), Math.min(rounds, 2))
].filter(({ suite }) => only.includes(suite))

const median = (figures) => figures.toSorted((a, b) => a - b)[Math.max(0, Math.ceil(figures.length / 2) - 1)]
const shown = (value) =>
  value >= 1_000 ? Math.round(value).toLocaleString("en-GB") : String(Number(value.toPrecision(3)))

const measure = (env, scenario, { mode, options, system }) =>
  new Promise((resolve) => {
    const child = spawn(
      process.execPath,
      [new URL("./measure.mjs", import.meta.url).pathname, scenario, system, mode, ...options],
      { env: { ...process.env, ...env }, stdio: ["ignore", "ignore", "pipe"] }
    )
    const timer = setTimeout(() => child.kill("SIGKILL"), 180_000)
    let said = ""
    child.stderr.on("data", (chunk) => {
      said += chunk
    })
    child.on("close", () => {
      clearTimeout(timer)
      const line = /^FIGURES (.*)$/m.exec(said)?.[1]
      if (line === undefined) process.stderr.write(`${system} gave no figures:\n${said.slice(-1_000)}\n`)
      resolve(line === undefined ? null : JSON.parse(line))
    })
  })

const table = ({ rows, title }, samples) => {
  const columns = [...new Set(samples.flat().flatMap(Object.keys))]
  const cell = (index, column) => {
    const figures = samples[index].map((sample) => sample[column]).filter(Number.isFinite)
    if (figures.length === 0) return "–"
    const [low, mid, high] = [Math.min(...figures), median(figures), Math.max(...figures)].map(shown)
    return low === high ? mid : `${mid} (${low}–${high})`
  }
  const ratio = (index) => {
    const [lead] = columns
    const pairs = samples[0].map((own, round) => [own[lead], samples[index][round]?.[lead]])
      .filter(([own, peer]) => own > 0 && peer > 0)
    return index === 0 || pairs.length === 0 ? "" : shown(median(pairs.map(([own, peer]) => own / peer)))
  }
  return [
    `**${title}**`,
    "",
    `| | ${columns.join(" | ")} | ${rows[0].system} ÷ it (${columns[0]}) |`,
    `| --- |${" ---: |".repeat(columns.length + 1)}`,
    ...rows.map((row, index) =>
      `| ${row.system} | ${columns.map((column) => cell(index, column)).join(" | ")} | ${ratio(index)} |`
    )
  ].join("\n")
}

const versionOf = (name) =>
  JSON.parse(readFileSync(new URL(`./node_modules/${name}/package.json`, import.meta.url), "utf8")).version

const main = Effect.gen(function*() {
  execFileSync(process.execPath, [new URL("../../deploy/build.mjs", import.meta.url).pathname], { stdio: "inherit" })
  const postgres = yield* PostgresServer.start({ settings: { max_wal_size: "4GB" } })
  const pidOf = ({ pid }) => Effect.map(pid, (pid) => String(Option.getOrElse(pid, () => 0)))
  const env = { PEERS_DATABASE_URL: Redacted.value(postgres.url), PEERS_POSTGRES_PID: yield* pidOf(postgres) }
  const isAsked = (systems) => groups.some(({ rows }) => rows.some(({ system }) => systems.includes(system)))
  if (isAsked(["bullmq", "deadman-scale"])) {
    const redis = yield* RedisServer.start({ settings: { appendonly: "yes", appendfsync: "everysec", save: "" } })
    Object.assign(env, { PEERS_REDIS_PORT: String(redis.port), PEERS_REDIS_PID: yield* pidOf(redis) })
  }
  if (isAsked(["deadman-scale"])) {
    const kafka = yield* KafkaServer.start({ quick: false })
    Object.assign(env, { PEERS_KAFKA_BROKERS: kafka.brokers, PEERS_KAFKA_PID: yield* pidOf(kafka) })
    // The broker compiles what it runs often: that is not what a round is to measure.
    yield* Effect.promise(() =>
      measure(env, "end-to-end", { system: "deadman-scale", mode: "default", options: ["jobs=60000"] })
    )
  }
  const samples = new Map(groups.map((one) => [one, one.rows.map(() => [])]))
  const total = groups.reduce((sum, one) => sum + one.rows.length * one.roundsMax, 0)
  let done = 0
  for (let round = 0; round < rounds; round++) {
    for (const one of groups.filter(({ roundsMax }) => round < roundsMax)) {
      for (const [index, row] of one.rows.entries()) {
        done += 1
        process.stderr.write(`[${done}/${total}] ${one.title}: ${row.system}\n`)
        const figures = yield* Effect.promise(() => measure(env, one.scenario, row))
        samples.get(one)[index].push(figures ?? {})
      }
    }
  }
  // Deadman against itself: what needs no peer.
  const own = values.own === "" ? "" : execFileSync(process.execPath, [
    new URL("../../dist/bench.js", import.meta.url).pathname,
    "--suites",
    values.own,
    "--rounds",
    "1",
    "--drains",
    [20_000, 100_000, 200_000].map(scaled).join(","),
    "--rows",
    String(scaled(1_000_000)),
    "--seconds",
    values.seconds
  ], {
    env: { ...process.env, DEADMAN_BENCH_DATABASE_URL: env.PEERS_DATABASE_URL },
    stdio: ["ignore", "pipe", "inherit"],
    encoding: "utf8"
  })
  const text = [
    `${new Date().toISOString().slice(0, 10)}; Node ${process.versions.node}; ${cpus().length} x ${
      cpus()[0]?.model.trim()
    }, ${Math.round(totalmem() / 2 ** 30)} GiB; pg-boss ${versionOf("pg-boss")}, graphile-worker ${
      versionOf("graphile-worker")
    }, BullMQ ${
      versionOf("bullmq")
    } on Redis with appendfsync everysec, or on Postgres; ${rounds} rounds in turn, medians (least–` +
    `greatest), ratios within a round; load average at the end ${loadavg()[0].toFixed(1)}.`,
    ...groups.map((one) => table(one, samples.get(one))),
    ...(own === "" ? [] : ["**Deadman by itself, one round** (`dist/bench.js`)", own.trim()])
  ].join("\n\n")
  process.stdout.write(`${text}\n`)
  if (values.write) {
    const file = new URL("../../docs/benchmarks.md", import.meta.url)
    const [begin, end] = ["<!-- peers: begin -->", "<!-- peers: end -->"]
    const old = readFileSync(file, "utf8")
    writeFileSync(file, `${old.split(begin)[0]}${begin}\n\n${text}\n\n${end}${old.split(end)[1]}`)
  }
})

Effect.runPromise(Effect.scoped(main)).then(() => process.exit(0), (error) => {
  process.stderr.write(`${error}\n`)
  process.exit(1)
})
