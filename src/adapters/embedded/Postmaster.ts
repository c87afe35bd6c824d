/**
 * The running server of a cluster: found, started, waited for, stopped. All of it under the folder's lock.
 *
 * `postmaster.pid` is Postgres's own account of itself, but its pid may be a zombie's or, after a crash, a
 * stranger's. The server is known by its arguments instead: it carries the device and inode of its data folder as
 * `cluster_name`, which no copy of the folder shares.
 *
 * It runs in a process group of its own, so that Ctrl-C reaches Deadman's drain and not the database under it.
 */
import { Clock, Duration, Effect, Option, Schedule } from "effect"
import { spawn } from "node:child_process"
import {
  closeSync,
  copyFileSync,
  existsSync,
  openSync,
  readFileSync,
  readSync,
  renameSync,
  statSync,
  truncateSync,
  writeFileSync
} from "node:fs"
import { connect } from "node:net"
import { join } from "node:path"
import * as Account from "./Account.ts"
import * as Cluster from "./Cluster.ts"
import { attempt, EmbeddedPostgresFailed, reasonIn } from "./EmbeddedPostgresFailed.ts"
import * as ProcessIdentity from "./ProcessIdentity.ts"
import * as SignOfLife from "./SignOfLife.ts"

export interface Running {
  readonly pid: number
  readonly port: number
}

type Status =
  | { readonly state: "none" }
  | { readonly state: "ready" | "starting" | "stopping"; readonly pid: number; readonly port: number }

const pause = Duration.millis(20)
/** Recovery after a crash replays up to `max_wal_size`, on a slow disk for minutes. */
const startLimit = Duration.minutes(10)
const visibleLimit = Duration.seconds(30)
const answerLimit = Duration.seconds(15)
const orphanLimit = Duration.seconds(30)
const fastStopLimit = Duration.seconds(20)
const immediateStopLimit = Duration.seconds(5)
const logLimit = 16 * 1024 * 1024

/** Held by every process of the server, in whichever container it runs. */
const signOf = (cluster: Cluster.Cluster) => join(cluster.dataDir, "server.alive")

/** What it takes to find the server of a folder. */
type Place = Pick<Cluster.Cluster, "dataDir" | "data">

const pidFileOf = (cluster: Place) => join(cluster.data, "postmaster.pid")

const markOf = (cluster: Place): string => {
  const { dev, ino } = statSync(cluster.data)
  return `cluster_name=deadman-${dev}-${ino}`
}

const isPostmaster = (cluster: Place, pid: number): boolean => {
  if (ProcessIdentity.startOf(pid) === undefined) return false
  const args = ProcessIdentity.argumentsOf(pid)
  // Where it cannot be seen, it has to be taken for ours: two servers on one folder destroy the data.
  return args === undefined || args.includes(markOf(cluster))
}

const statusNow = (cluster: Place): Status => {
  if (!existsSync(pidFileOf(cluster))) return { state: "none" }
  const lines = readFileSync(pidFileOf(cluster), "utf8").split("\n").map((line) => line.trim())
  const pid = Number(lines[0])
  if (!Number.isInteger(pid) || pid <= 0 || !isPostmaster(cluster, pid)) return { state: "none" }
  const port = Number(lines[3])
  const state = lines[7] === "ready" && port > 0 ? "ready" : lines[7] === "stopping" ? "stopping" : "starting"
  return { state, pid, port }
}

const status = (cluster: Place) =>
  // Postgres may remove or rewrite the file between two looks at it.
  attempt(`read ${pidFileOf(cluster)}`, () => statusNow(cluster)).pipe(Effect.retry({ times: 2 }))

/** The server that runs now, whoever started it. */
export const running = (cluster: Place): Effect.Effect<Option.Option<Running>, EmbeddedPostgresFailed> =>
  status(cluster).pipe(Effect.map((now) => now.state === "none" ? Option.none() : Option.some(now)))

/** The other side of the port speaks Postgres: it answers a request for TLS with one letter. */
const answers = (port: number): Effect.Effect<boolean> =>
  Effect.callback<boolean>((resume) => {
    const socket = connect({ host: "127.0.0.1", port })
    socket.on("connect", () => socket.write(Buffer.from([0, 0, 0, 8, 4, 210, 22, 47])))
    socket.on("data", (data) => {
      socket.destroy()
      resume(Effect.succeed(data[0] === 0x4e || data[0] === 0x53))
    })
    socket.on("error", () => resume(Effect.succeed(false)))
    socket.on("close", () => resume(Effect.succeed(false)))
    return Effect.sync(() => socket.destroy())
  })

/** Whether `check` says yes within `limit`. */
const until = <E>(check: Effect.Effect<boolean, E>, every: Duration.Duration, limit: Duration.Input) =>
  check.pipe(
    Effect.repeat({ until: (yes) => yes, schedule: Schedule.spaced(every) }),
    Effect.timeoutOption(limit),
    Effect.map(Option.isSome)
  )

const mustAnswer = Effect.fn("Postmaster.mustAnswer")(function*(cluster: Cluster.Cluster, { pid, port }: Running) {
  const answer = Effect.map(Effect.timeoutOption(answers(port), Duration.seconds(2)), Option.getOrElse(() => false))
  if (yield* until(answer, Duration.millis(200), answerLimit)) return
  return yield* new EmbeddedPostgresFailed({
    message:
      `The Postgres of ${cluster.dataDir} runs (process ${pid}) but does not answer on port ${port}. If it was ` +
      `frozen, run \`kill -CONT ${pid}\`; else stop it with \`kill -QUIT ${pid}\` and start again`
  })
})

/** What the log says from `from` on, if that is not too much. */
const logSince = (cluster: Cluster.Cluster, from: number): string => {
  const size = statSync(cluster.log, { throwIfNoEntry: false })?.size ?? 0
  const start = Math.max(from, size - 16_000)
  if (size <= start) return ""
  const file = openSync(cluster.log, "r")
  try {
    const buffer = Buffer.alloc(size - start)
    return buffer.toString("utf8", 0, readSync(file, buffer, 0, buffer.length, start))
  } finally {
    closeSync(file)
  }
}

/** Keeps the log below its limit while the server writes to it: it appends, so it goes on at the new end. */
export const boundLog = (cluster: Cluster.Cluster): Effect.Effect<void> =>
  Effect.sync(() => {
    if ((statSync(cluster.log, { throwIfNoEntry: false })?.size ?? 0) < logLimit) return
    copyFileSync(cluster.log, `${cluster.log}.1`)
    truncateSync(cluster.log)
  }).pipe(Effect.catchDefect(() => Effect.void))

/**
 * Postgres refuses to start while the pid in `postmaster.pid` exists, and it exists when it is a zombie that nobody
 * reaps or was given to a stranger. Its own parent's pid it knows to be no server. The rest of the file stays: it
 * names the shared memory that orphaned backends of the dead server may still write through, and Postgres looks.
 */
const disownPidFile = (cluster: Cluster.Cluster): void => {
  if (!existsSync(pidFileOf(cluster))) return
  const lines = readFileSync(pidFileOf(cluster), "utf8").split("\n")
  if (!ProcessIdentity.exists(Number(lines[0]))) return
  lines[0] = String(process.pid)
  writeFileSync(pidFileOf(cluster), lines.join("\n"))
}

interface Attempt {
  readonly pid: number
  readonly logFrom: number
  exited: boolean
}

const launch = (cluster: Cluster.Cluster): Effect.Effect<Attempt, EmbeddedPostgresFailed> =>
  attempt("start", () => {
    disownPidFile(cluster)
    if ((statSync(cluster.log, { throwIfNoEntry: false })?.size ?? 0) > logLimit / 4) {
      renameSync(cluster.log, `${cluster.log}.1`)
    }
    const sign = SignOfLife.hold(signOf(cluster), cluster.dataDir)
    const log = openSync(cluster.log, "a", 0o600)
    Account.give(cluster.log, cluster.dataDir)
    const logFrom = statSync(cluster.log).size
    try {
      const child = spawn(
        cluster.binaries.postgres,
        ["-D", Account.here(cluster.account, cluster.data), "-c", markOf(cluster)],
        {
          ...cluster.account.as,
          cwd: cluster.data,
          env: Cluster.environment(),
          stdio: sign === undefined ? ["ignore", log, log] : ["ignore", log, log, sign],
          detached: true
        }
      )
      const launched: Attempt = { pid: child.pid ?? 0, logFrom, exited: child.pid === undefined }
      child.on("exit", () => {
        launched.exited = true
      })
      child.on("error", () => {
        launched.exited = true
      })
      // Our exit must not wait for it: the next member takes it over.
      child.unref()
      return launched
    } finally {
      closeSync(log)
      if (sign !== undefined) closeSync(sign)
    }
  })

/** Starts the server, and lets nobody go before it can be found: whoever leaves then would leave it running. */
const launchVisibly = (cluster: Cluster.Cluster) =>
  Effect.uninterruptible(Effect.tap(launch(cluster), (launched) =>
    until(
      Effect.map(status(cluster), (now) => launched.exited || now.state !== "none"),
      pause,
      visibleLimit
    )))

/** Starts the server, unless it runs, and waits until it takes connections. */
export const ensure = Effect.fn("Postmaster.ensure")(function*(
  cluster: Cluster.Cluster
): Effect.fn.Return<Running & { readonly started: boolean }, EmbeddedPostgresFailed> {
  const since = yield* Clock.monotonicTimeNanos
  let launched: Attempt | undefined
  let started = false
  let told = Duration.seconds(5)
  while (true) {
    const now = yield* status(cluster)
    if (now.state === "ready") {
      yield* mustAnswer(cluster, now)
      return { pid: now.pid, port: now.port, started }
    }
    const waited = Duration.nanos((yield* Clock.monotonicTimeNanos) - since)
    if (launched !== undefined && launched.exited && now.state === "none") {
      const log = logSince(cluster, launched.logFrom)
      const words = reasonIn(log)
      // Another process took the port between our look and the server's: look again, or choose another.
      const again = /could not bind|could not create any TCP/.test(log) ||
        // The backends of a killed server end by themselves when they notice.
        (/shared memory block/.test(words) && Duration.isLessThan(waited, orphanLimit))
      if (!again || Duration.isGreaterThan(waited, orphanLimit)) {
        return yield* new EmbeddedPostgresFailed({
          message: `The embedded Postgres does not start: ${words}. See ${cluster.log}; ` +
            `to start with an empty database, move ${cluster.dataDir} away`
        })
      }
      launched = undefined
      yield* Effect.sleep(Duration.millis(200))
    }
    if (now.state === "none" && launched === undefined && SignOfLife.look(signOf(cluster)) === "held") {
      // Orphans of a killed server end by themselves. A server of another container does not, and its members, who
      // are gone, can no longer stop it.
      if (Duration.isGreaterThan(waited, orphanLimit)) {
        return yield* new EmbeddedPostgresFailed({
          message:
            `Processes of a Postgres that cannot be seen from here still use ${cluster.data}. Stop the container ` +
            `they run in, or set DEADMAN_DATA_DIR to another folder`
        })
      }
    } else if (now.state === "none" && launched === undefined) {
      yield* Cluster.configure(cluster, yield* Cluster.choosePort(cluster))
      launched = yield* launchVisibly(cluster)
      started = true
    }
    if (Duration.isGreaterThan(waited, startLimit)) {
      return yield* new EmbeddedPostgresFailed({
        message:
          `The embedded Postgres has been ${now.state === "none" ? "starting" : now.state} for ten minutes. See ` +
          `${cluster.log}; it goes on, so starting again later joins it`
      })
    }
    if (Duration.isGreaterThan(waited, told)) {
      yield* Effect.logInfo(
        `waiting for Postgres (${now.state}, ${
          Math.round(Duration.toSeconds(waited))
        } s); after a crash it first replays its log`
      )
      told = Duration.sum(told, Duration.seconds(5))
    }
    yield* Effect.sleep(pause)
  }
})

/** Waits for a server to end, for at most `limit`, and says whether it did. */
export const gone = (cluster: Place, pid: number, limit: Duration.Input) =>
  until(Effect.sync(() => !isPostmaster(cluster, pid)), pause, limit)

export const signal = (pid: number, name: NodeJS.Signals): Effect.Effect<void> =>
  Effect.sync(() => {
    try {
      process.kill(pid, name)
    } catch {
      // It ended by itself.
    }
  })

/** Asks the server to end, its clients or not, and says whether it has. */
const stopFast = Effect.fnUntraced(function*(cluster: Place, pid: number) {
  yield* signal(pid, "SIGINT")
  // A frozen server takes no signal but this one.
  yield* signal(pid, "SIGCONT")
  return yield* gone(cluster, pid, fastStopLimit)
})

/** Stops the server if it runs and nobody is connected to it; says whether none runs. */
export const stopIdle = Effect.fn("Postmaster.stopIdle")(function*(
  cluster: Place,
  isIdle: (port: number) => Effect.Effect<boolean>
): Effect.fn.Return<boolean, EmbeddedPostgresFailed> {
  const now = yield* status(cluster)
  if (now.state === "none") return true
  return now.state === "ready" && (yield* isIdle(now.port)) && (yield* stopFast(cluster, now.pid))
})

/** Stops the server if it runs: without its clients' consent, then without a checkpoint, then without its own. */
export const stop = Effect.fn("Postmaster.stop")(function*(
  cluster: Cluster.Cluster
): Effect.fn.Return<void, EmbeddedPostgresFailed> {
  const now = yield* status(cluster)
  if (now.state === "none") return
  if (yield* stopFast(cluster, now.pid)) return
  yield* Effect.logWarning(`Postgres (process ${now.pid}) does not stop; stopping it without a checkpoint`)
  yield* signal(now.pid, "SIGQUIT")
  if (yield* gone(cluster, now.pid, immediateStopLimit)) return
  yield* signal(now.pid, "SIGKILL")
  if (yield* gone(cluster, now.pid, immediateStopLimit)) return
  return yield* new EmbeddedPostgresFailed({
    message: `Postgres (process ${now.pid}) cannot be stopped, not even killed`
  })
})
