/**
 * `npm start --prefix test/peers`: Deadman beside pg-boss, graphile-worker, BullMQ and River, in turn, in one run.
 *
 * `npm install --prefix test/peers` first. After `--`, `--rounds 3`, `--only submit,drain`, `--own http` and
 * `--scale 0.2` make it shorter; `--write` puts the tables into docs/benchmarks.md, between its markers. Postgres, and
 * Redis and Kafka where a row asks for them, are started for the run and are gone afterwards: the Postgres is the one
 * that Deadman brings along, the Redis appends to its file every second. River is written in Go: without one that can
 * build it, it is left out.
 */
import { Effect, Option, Redacted } from "effect"
import { execFileSync, spawn } from "node:child_process"
import { readFileSync, writeFileSync } from "node:fs"
import { cpus, loadavg, totalmem } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import * as GuardedFolder from "../../src/adapters/chaos/GuardedFolder.ts"
import * as KafkaServer from "../support/KafkaServer.ts"
import * as PostgresServer from "../support/PostgresServer.ts"
import * as RedisServer from "../support/RedisServer.ts"
import { groupsOf } from "./cases.mjs"
import * as River from "./river/build.mjs"
import { table } from "./tables.mjs"

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "3" },
    only: { type: "string", default: "submit,drain,drain-default,pick-up,idle,scale" },
    scale: { type: "string", default: "1" },
    seconds: { type: "string", default: "6" },
    "idle-seconds": { type: "string", default: "30" },
    own: { type: "string", default: "http,drain,backlog,horizon,recovery" },
    write: { type: "boolean", default: false }
  }
})
const size = Number(values.scale)
const asked = {
  idleSeconds: values["idle-seconds"],
  only: values.only.split(","),
  rounds: Number(values.rounds),
  seconds: values.seconds,
  size,
  without: []
}
const pathOf = (relative) => fileURLToPath(new URL(relative, import.meta.url))
const isIn = (groups, ...systems) => groups.some(({ rows }) => rows.some(({ system }) => systems.includes(system)))
const say = (text) => process.stderr.write(`${text}\n`)

/** The groups, and where River's program is; or the groups without River, and why. */
const withRiver = Effect.gen(function*() {
  const groups = groupsOf(asked)
  if (!isIn(groups, "river")) return { groups, env: {}, river: "" }
  const folder = yield* GuardedFolder.make("deadman-river-", `rm -rf "$1"`)
  const binary = join(folder, "river")
  say("Building River")
  const leftOut = yield* Effect.promise(() => River.build(binary))
  if (leftOut === undefined) return { groups, env: { PEERS_RIVER: binary }, river: `, River ${River.version}` }
  say(leftOut)
  return { groups: groupsOf({ ...asked, without: ["river"] }), env: {}, river: "" }
})

/** The servers of which a system uses the CPU; an idle broker is nobody else's. */
const serversOf = { bullmq: ["REDIS"], "deadman-scale": ["POSTGRES", "REDIS", "KAFKA"] }

/** One run, in a process of its own; null if it gave no figures. */
const measure = (env, scenario, { mode, options, system }) =>
  new Promise((resolve) => {
    const pids = (serversOf[system] ?? ["POSTGRES"]).map((name) => env[`PEERS_${name}_PID`])
    const child = spawn(process.execPath, [pathOf("./measure.mjs"), scenario, system, mode, ...options], {
      env: { ...process.env, ...env, PEERS_SERVER_PIDS: pids.join(" ") },
      stdio: ["ignore", "ignore", "pipe"]
    })
    const timer = setTimeout(() => child.kill("SIGKILL"), 180_000)
    let said = ""
    child.stderr.on("data", (chunk) => {
      said += chunk
    })
    child.on("close", () => {
      clearTimeout(timer)
      const line = /^FIGURES (.*)$/m.exec(said)?.[1]
      if (line === undefined) say(`${system} gave no figures:\n${said.slice(-1_000)}`)
      resolve(line === undefined ? null : JSON.parse(line))
    })
  })

const pidOf = ({ pid }) => Effect.map(pid, (pid) => String(Option.getOrElse(pid, () => 0)))

/** The Postgres and the Redis that the groups need, started; what the measuring processes are to know of them. */
const servers = Effect.fnUntraced(function*(groups) {
  const postgres = yield* PostgresServer.start({ settings: { max_wal_size: "4GB" } })
  const env = { PEERS_DATABASE_URL: Redacted.value(postgres.url), PEERS_POSTGRES_PID: yield* pidOf(postgres) }
  if (isIn(groups, "bullmq", "deadman-scale")) {
    const redis = yield* RedisServer.start({ settings: { appendonly: "yes", appendfsync: "everysec", save: "" } })
    Object.assign(env, { PEERS_REDIS_PORT: String(redis.port), PEERS_REDIS_PID: yield* pidOf(redis) })
  }
  return env
})

/** The same of a Kafka. */
const broker = Effect.fnUntraced(function*(env) {
  const kafka = yield* KafkaServer.start({ quick: false })
  const both = { ...env, PEERS_KAFKA_BROKERS: kafka.brokers, PEERS_KAFKA_PID: yield* pidOf(kafka) }
  // The broker compiles what it runs often: that is not what a round is to measure.
  yield* Effect.promise(() =>
    measure(both, "end-to-end", { system: "deadman-scale", mode: "default", options: ["jobs=60000"] })
  )
  yield* Effect.promise(() =>
    measure(both, "submit", { system: "deadman-scale", mode: "default", options: ["jobs=150000"] })
  )
  return both
})

/** Every row of every group in turn, round by round: the tables. */
const measureAll = Effect.fnUntraced(function*(groups, env) {
  const samples = new Map(groups.map((one) => [one, one.rows.map(() => [])]))
  const total = groups.reduce((sum, one) => sum + one.rows.length * one.rounds, 0)
  const start = Date.now()
  let done = 0
  const most = Math.max(0, ...groups.map(({ rounds }) => rounds))
  for (let round = 0; round < most; round++) {
    for (const one of groups.filter(({ rounds }) => round < rounds)) {
      for (const [index, row] of one.rows.entries()) {
        done += 1
        say(`[${done}/${total}, ${Math.round((Date.now() - start) / 1_000)} s] ${one.title}: ${row.system}`)
        const figures = yield* Effect.promise(() => measure(env, one.scenario, row))
        samples.get(one)[index].push(figures ?? {})
      }
    }
  }
  return groups.map((one) => table(one, samples.get(one)))
})

/** Deadman against itself: what needs no peer. */
const measureOwn = ({ PEERS_DATABASE_URL }) => {
  const scaled = (count) => Math.max(200, Math.round(count * size))
  const options = {
    suites: values.own,
    rounds: asked.rounds,
    drains: [20_000, 100_000, 200_000].map(scaled).join(","),
    rows: scaled(1_000_000),
    seconds: values.seconds
  }
  const words = Object.entries(options).flatMap(([name, value]) => [`--${name}`, String(value)])
  return execFileSync(process.execPath, [pathOf("../../dist/bench.js"), ...words], {
    env: { ...process.env, DEADMAN_BENCH_DATABASE_URL: PEERS_DATABASE_URL },
    stdio: ["ignore", "pipe", "inherit"],
    encoding: "utf8"
  }).trim()
}

const versionOf = (name) => JSON.parse(readFileSync(pathOf(`./node_modules/${name}/package.json`), "utf8")).version

const circumstances = (river) =>
  `${new Date().toISOString().slice(0, 10)}; Node ${process.versions.node}; ${cpus().length} x ${
    cpus()[0]?.model.trim()
  }, ${Math.round(totalmem() / 2 ** 30)} GiB; pg-boss ${versionOf("pg-boss")}, graphile-worker ${
    versionOf("graphile-worker")
  }, BullMQ ${versionOf("bullmq")} on Redis with appendfsync everysec, or on Postgres${river}; ` +
  `${asked.rounds} rounds in turn, medians (least–greatest), ratios within a round; ` +
  `load average at the end ${loadavg()[0].toFixed(1)}.`

const write = (text) => {
  const file = pathOf("../../docs/benchmarks.md")
  const [begin, end] = ["<!-- peers: begin -->", "<!-- peers: end -->"]
  const old = readFileSync(file, "utf8")
  writeFileSync(file, `${old.split(begin)[0]}${begin}\n\n${text}\n\n${end}${old.split(end)[1]}`)
}

const main = Effect.gen(function*() {
  execFileSync(process.execPath, [pathOf("../../deploy/build.mjs")], { stdio: "inherit" })
  const { env, groups, river } = yield* withRiver
  Object.assign(env, yield* servers(groups))
  // Last, so that nothing else shares the machine with a broker.
  const last = groups.filter((one) => isIn([one], "deadman-scale"))
  const tables = yield* measureAll(groups.filter((one) => !last.includes(one)), env)
  if (last.length > 0) tables.push(...yield* Effect.scoped(Effect.flatMap(broker(env), (env) => measureAll(last, env))))
  const own = values.own === ""
    ? []
    : [`**Deadman by itself, ${asked.rounds} rounds** (\`dist/bench.js\`)`, measureOwn(env)]
  const text = [circumstances(river), ...tables, ...own].join("\n\n")
  process.stdout.write(`${text}\n`)
  if (values.write) write(text)
})

Effect.runPromise(Effect.scoped(main)).then(() => process.exit(0), (error) => {
  process.stderr.write(`${error}\n`)
  process.exit(1)
})
