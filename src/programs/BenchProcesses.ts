/** The processes of the bench: workers, servers and a bare HTTP server, each gone with its scope, and what they use. */
import { Effect, type Scope } from "effect"
import { type ChildProcess, fork, spawn } from "node:child_process"
import { readdirSync, readFileSync } from "node:fs"
import { connect, createServer, type Socket } from "node:net"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { BenchFailed, type HttpLoad, type Worker } from "./bench/Stage.ts"
import type { Report, Usage } from "./BenchHandlers.ts"

/** Of Linux. */
const ticksPerSecond = 100
const startWithin = "30 seconds"
const stopWithin = "15 seconds"
/** For a worker that is not needed any more to leave the group that it takes deliveries in: the next one would wait for it. */
const leaveWithin = "3 seconds"

// Both in dist, or the bench runs from its sources and the programs are the built ones.
const here = dirname(fileURLToPath(import.meta.url))
const programs = here.endsWith("dist") ? here : join(here, "../../dist")

interface Stat {
  readonly parent: number
  readonly ownMs: number
  /** Of children that have ended. */
  readonly childrenMs: number
}

const statOf = (pid: number | string): Stat | null => {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8")
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ").map(Number)
    const ms = (at: number) => (fields[at]! + fields[at + 1]!) * 1_000 / ticksPerSecond
    return { parent: fields[1]!, ownMs: ms(11), childrenMs: ms(13) }
  } catch {
    return null
  }
}

export const parentOf = (pid: number): number | null => statOf(pid)?.parent ?? null

/** CPU of a server with a process per connection: its own, its living children's and its dead ones'. */
export const familyMs = (pid: number): number | null => {
  const head = statOf(pid)
  if (head === null) {
    return null
  }
  let sum = head.ownMs + head.childrenMs
  for (const entry of readdirSync("/proc")) {
    const stat = /^\d+$/.test(entry) ? statOf(entry) : null
    sum += stat?.parent === pid ? stat.ownMs : 0
  }
  return sum
}

const exited = (child: ChildProcess) =>
  Effect.callback<void>((resume) => {
    if (child.exitCode !== null || child.signalCode !== null) {
      resume(Effect.void)
      return
    }
    const done = () => resume(Effect.void)
    child.once("exit", done)
    return Effect.sync(() => child.off("exit", done))
  })

const killed = (child: ChildProcess) =>
  Effect.sync(() => {
    if (child.exitCode === null && child.signalCode === null) {
      child.kill("SIGKILL")
    }
  })

const left = (child: ChildProcess) => Effect.andThen(Effect.sync(() => void child.kill("SIGTERM")), exited(child))

type Env = Readonly<Record<string, string>>

/** `probe` submits a job: a worker that has run one is up. */
export const worker = Effect.fnUntraced(function*(
  env: Env,
  probe: Effect.Effect<void, BenchFailed>
): Effect.fn.Return<Worker, BenchFailed, Scope.Scope> {
  const child = yield* Effect.acquireRelease(
    Effect.sync(() =>
      fork(join(programs, "worker.js"), [], { env, execArgv: [], stdio: ["ignore", "ignore", "inherit", "ipc"] })
    ),
    (child) => Effect.andThen(Effect.timeoutOption(left(child), leaveWithin), killed(child))
  )
  let report: Report = { handled: 0, lastMs: 0, latencies: [] }
  let latencies: Array<number> = []
  let asked: Array<(usage: Usage) => void> = []
  child.on("message", (message: Report | Usage) => {
    if ("handled" in message) {
      report = message
      latencies.push(...message.latencies)
    } else {
      // An answer may be followed by the next question before this one is over.
      const answers = asked
      asked = []
      answers.forEach((answer) => answer(message))
    }
  })
  const usage = Effect.callback<Usage>((resume) => {
    asked.push((usage) => resume(Effect.succeed(usage)))
    child.send({}, () => {})
  })
  yield* Effect.gen(function*() {
    // More than once: other workers may take them.
    while (report.handled === 0 && child.exitCode === null) {
      yield* probe
      yield* Effect.sleep(50)
    }
  }).pipe(Effect.timeoutOrElse({
    duration: startWithin,
    orElse: () => Effect.fail(new BenchFailed({ message: `a worker did not come up within ${startWithin}` }))
  }))
  if (child.exitCode !== null) {
    return yield* new BenchFailed({ message: `a worker ended with ${child.exitCode}` })
  }
  return {
    handled: Effect.sync(() => report.handled),
    lastMs: Effect.sync(() => report.lastMs),
    takeLatencies: Effect.sync(() => {
      const taken = latencies
      latencies = []
      return taken
    }),
    cpuMs: Effect.map(usage, ({ cpuMs }) => cpuMs),
    rssMb: Effect.map(usage, ({ rssMb }) => rssMb),
    kill: Effect.andThen(killed(child), exited(child)),
    stop: Effect.timeoutOption(left(child), stopWithin)
  }
})

const answers = (port: number, path: string) =>
  Effect.promise(() => fetch(`http://127.0.0.1:${port}${path}`).then((response) => response.ok, () => false))

const freePort = Effect.callback<number>((resume) => {
  const server = createServer()
  server.listen(0, "127.0.0.1", () => {
    const address = server.address()
    server.close(() => resume(Effect.succeed(typeof address === "object" && address !== null ? address.port : 0)))
  })
})

const listening = (start: (port: number) => ChildProcess, path: string) =>
  Effect.gen(function*() {
    const port = yield* freePort
    const child = yield* Effect.acquireRelease(Effect.sync(() => start(port)), killed)
    yield* Effect.gen(function*() {
      while (!(yield* answers(port, path))) {
        yield* Effect.sleep(50)
      }
    }).pipe(Effect.timeoutOrElse({
      duration: startWithin,
      orElse: () => Effect.fail(new BenchFailed({ message: `a server did not answer within ${startWithin}` }))
    }))
    const pid = child.pid ?? 0
    return { port, cpuMs: Effect.sync(() => statOf(pid)?.ownMs ?? Number.NaN) }
  })

export const server = (env: Env) =>
  listening((port) =>
    spawn(process.execPath, [join(programs, "server.js")], {
      env: { ...env, DEADMAN_PORT: String(port) },
      stdio: ["ignore", "ignore", "inherit"]
    }), "/ready")

const helloSource = `import { createServer } from "node:http"
createServer((request, response) => {
  request.resume().on("end", () => {
    response.writeHead(201, { "content-type": "application/json" }).end('{"hello":"world"}')
  })
}).listen(Number(process.env.PORT), "127.0.0.1")`

export const hello = listening((port) =>
  spawn(process.execPath, ["--input-type=module", "-e", helloSource], {
    env: { PORT: String(port) },
    stdio: ["ignore", "ignore", "inherit"]
  }), "/")

/** One connection that sends its next request when its last was answered. Answers that are not 2xx fail it. */
const client = (load: HttpLoad, next: () => boolean) =>
  Effect.callback<void, BenchFailed>((resume) => {
    const request = Buffer.from(
      `${load.method} ${load.path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n` +
        `content-length: ${Buffer.byteLength(load.body)}\r\n\r\n${load.body}`
    )
    const socket: Socket = connect({ host: "127.0.0.1", port: load.port, noDelay: true })
    const fail = (message: string) => {
      socket.destroy()
      resume(Effect.fail(new BenchFailed({ message })))
    }
    const send = () => {
      if (next()) {
        socket.write(request)
      } else {
        socket.end()
        resume(Effect.void)
      }
    }
    let answer = ""
    socket.setEncoding("latin1")
    socket.on("connect", send)
    socket.on("error", (error) => fail(`a connection broke: ${error.message}`))
    socket.on("close", () => resume(Effect.fail(new BenchFailed({ message: "the server closed a connection" }))))
    socket.on("data", (chunk: string) => {
      answer += chunk
      const head = answer.indexOf("\r\n\r\n")
      if (head < 0) {
        return
      }
      const length = /\r\ncontent-length: (\d+)/i.exec(answer)
      const whole = length === null ? answer.endsWith("\r\n0\r\n\r\n") : answer.length >= head + 4 + Number(length[1])
      if (whole) {
        if (!answer.startsWith("HTTP/1.1 2")) {
          return fail(`a request was answered ${answer.slice(0, 200)}`)
        }
        answer = ""
        send()
      }
    })
    return Effect.sync(() => socket.destroy())
  })

export const http = (load: HttpLoad): Effect.Effect<void, BenchFailed> =>
  Effect.suspend(() => {
    let left = load.requests
    return Effect.all(Array.from({ length: load.clients }, () => client(load, () => left-- > 0)), {
      concurrency: "unbounded",
      discard: true
    })
  })
