/**
 * A server that outlives whoever started it, and can be found and stopped by anyone later.
 *
 * It writes its own record (pid, start time, boot) and then becomes the program, so there is no moment in which it
 * runs and is not on record, however early its starter is killed. A record counts only while the process with that
 * pid has that start time: what a crash of the machine leaves behind names nobody, and no stranger is ever signalled.
 */
import { Duration, Effect, Option, Schedule, Schema } from "effect"
import { spawn } from "node:child_process"
import { closeSync, existsSync, openSync, readFileSync, readSync, renameSync, rmSync, statSync } from "node:fs"
import { join } from "node:path"
import * as ProcessIdentity from "../../src/adapters/embedded/ProcessIdentity.ts"
import { attempt, ServiceFailed } from "./ServiceFailed.ts"

/** A folder with the record, the log and the data of one server. */
export interface Place {
  readonly name: string
  readonly folder: string
}

export interface Command {
  readonly program: string
  readonly args: ReadonlyArray<string>
}

export const recordOf = (place: Place): string => join(place.folder, "process.json")
export const logOf = (place: Place): string => join(place.folder, `${place.name}.log`)

const becomes = `
umask 077
record=$1 rest=$2
shift 2
if [ -r /proc/$$/stat ]; then started=$(awk '{print $22}' /proc/$$/stat)
else started=$(ps -o lstart= -p $$); fi
printf '{"pid":%s,"started":"%s",%s' $$ "$started" "$rest" > "$record.$$"
ln "$record.$$" "$record"
taken=$?
rm -f "$record.$$"
[ $taken -eq 0 ] || exit 1
exec "$@"`

const Identity = Schema.Struct({
  pid: Schema.Int,
  started: Schema.String,
  boot: Schema.String,
  namespace: Schema.String
})
const decode = Schema.decodeUnknownOption(Schema.fromJsonString(Identity))

const isAlive = (place: Place, { boot, namespace, pid, started }: typeof Identity.Type): boolean => {
  const here = ProcessIdentity.self()
  if (boot !== here.boot) return false
  if (namespace !== here.namespace) {
    throw new ServiceFailed({
      message: `${place.folder} is in use in another container, where its processes cannot be seen from here: stop ` +
        `them there, or choose another folder with DEADMAN_SERVICES_DIR`
    })
  }
  const now = ProcessIdentity.startOf(pid)
  return now !== undefined && (now === "" || now === started)
}

const pidNow = (place: Place): Option.Option<number> =>
  existsSync(recordOf(place))
    ? decode(readFileSync(recordOf(place), "utf8")).pipe(
      Option.filter((identity) => isAlive(place, identity)),
      Option.map(({ pid }) => pid)
    )
    : Option.none()

/** The pid of the server that runs now, whoever started it. */
export const running = (place: Place): Effect.Effect<Option.Option<number>, ServiceFailed> =>
  attempt(`read ${recordOf(place)}`, () => pidNow(place)).pipe(Effect.retry({ times: 2 }))

/** What the log says last. */
export const lastWords = (place: Place): string => {
  const size = statSync(logOf(place), { throwIfNoEntry: false })?.size ?? 0
  if (size === 0) return "it says nothing"
  const file = openSync(logOf(place), "r")
  try {
    const buffer = Buffer.alloc(Math.min(size, 8_000))
    const length = readSync(file, buffer, 0, buffer.length, size - buffer.length)
    const lines = buffer.toString("utf8", 0, length).trim().split("\n")
    return (lines.findLast((line) => /\b(ERROR|FATAL|Exception|error|Fatal)\b/.test(line)) ?? lines.at(-1) ?? "").trim()
  } finally {
    closeSync(file)
  }
}

/** Starts it in a group of its own. The folder must hold no record of a live process. */
export const launch = (
  place: Place,
  command: Command,
  env: Readonly<Record<string, string>> = {}
): Effect.Effect<void, ServiceFailed> =>
  attempt(`start ${place.name}`, () => {
    // A starter that was killed may have left one on its way to becoming the server.
    if (Option.isSome(pidNow(place))) return
    rmSync(recordOf(place), { force: true })
    if (existsSync(logOf(place))) renameSync(logOf(place), `${logOf(place)}.1`)
    const { boot, namespace } = ProcessIdentity.self()
    const log = openSync(logOf(place), "a", 0o600)
    try {
      const rest = JSON.stringify({ boot, namespace }).slice(1)
      spawn("sh", ["-c", becomes, "sh", recordOf(place), rest, command.program, ...command.args], {
        cwd: place.folder,
        env: { PATH: process.env["PATH"] ?? "", LC_ALL: "C", TZ: "UTC", ...env },
        stdio: ["ignore", log, log],
        detached: true
      }).on("error", () => {
        // Whoever waits for the server sees that there is none.
      }).unref()
    } finally {
      closeSync(log)
    }
  })

const pause = Duration.millis(25)

/** Whether `check` says yes within `limit`. */
const until = <E>(check: Effect.Effect<boolean, E>, limit: Duration.Input) =>
  check.pipe(
    Effect.repeat({ until: (yes) => yes, schedule: Schedule.spaced(pause) }),
    Effect.timeoutOption(limit),
    Effect.map(Option.isSome)
  )

const spawnLimit = Duration.seconds(20)

/** Waits until `answers` holds; fails at once when the server ended instead. */
export const awaitReady = Effect.fn("Daemon.awaitReady")(function*(
  place: Place,
  answers: Effect.Effect<boolean>,
  limit: Duration.Input
) {
  const failed = (why: string) =>
    new ServiceFailed({ message: `${place.name} ${why}: ${lastWords(place)} (all of it is in ${logOf(place)})` })
  const onRecord = Effect.map(running(place), Option.isSome)
  if (!(yield* until(onRecord, spawnLimit))) return yield* failed("does not start")
  const ready = yield* until(
    Effect.flatMap(answers, (yes) =>
      yes
        ? Effect.succeed(true)
        : Effect.flatMap(onRecord, (alive) => alive ? Effect.succeed(false) : failed("ended instead of starting"))),
    limit
  )
  if (!ready) return yield* failed(`does not answer after ${Duration.format(Duration.fromInputUnsafe(limit))}`)
})

/** Sends a signal to the server if it runs. */
export const signal = (place: Place, name: NodeJS.Signals): Effect.Effect<void, ServiceFailed> =>
  Effect.flatMap(running(place), (pid) =>
    Option.isNone(pid)
      ? Effect.void
      : attempt(`signal ${place.name}`, () => {
        try {
          process.kill(pid.value, name)
        } catch (cause) {
          // It ended by itself.
          if (!(cause instanceof Error && "code" in cause && cause.code === "ESRCH")) throw cause
        }
      }))

const forget = (place: Place) => attempt("forget it", () => rmSync(recordOf(place), { force: true }))

const gone = (place: Place, limit: Duration.Input) => until(Effect.map(running(place), Option.isNone), limit)

/** `kill -9`, and its record with it. */
export const kill = Effect.fn("Daemon.kill")(function*(place: Place) {
  yield* signal(place, "SIGKILL")
  if (yield* gone(place, "10 seconds")) return yield* forget(place)
  return yield* new ServiceFailed({ message: `${place.name} cannot be stopped, not even killed` })
})

/** Asks it to end, and kills it when it does not within `patience`. Says whether there was one. */
export const stop = Effect.fn("Daemon.stop")(function*(place: Place, patience: Duration.Input = "15 seconds") {
  if (Option.isNone(yield* running(place))) {
    yield* forget(place)
    return false
  }
  yield* signal(place, "SIGTERM")
  // A frozen process takes no signal but this one.
  yield* signal(place, "SIGCONT")
  if (yield* gone(place, patience)) {
    yield* forget(place)
  } else {
    yield* Effect.logWarning(`${place.name} does not stop; killing it`)
    yield* kill(place)
  }
  return true
})
