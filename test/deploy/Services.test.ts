/** `npm run services:*` as somebody at a shell meets it: real commands, real servers, on other ports. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Scope } from "effect"
import { spawn } from "node:child_process"
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { createServer } from "node:net"
import { tmpdir } from "node:os"
import { delimiter, join } from "node:path"
import * as Ports from "../../deploy/services/Ports.ts"
import * as ProcessIdentity from "../../src/adapters/embedded/ProcessIdentity.ts"
import { eventually } from "../support/Eventually.ts"
import * as TestServers from "../support/TestServers.ts"
import { freePort } from "../support/ThrowawayServer.ts"

interface Ended {
  readonly code: number | NodeJS.Signals
  readonly output: string
}

const temporary = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "deadman-services-"))),
  (folder) => Effect.sync(() => rmSync(folder, { recursive: true, force: true }))
)

const start = (word: string, env: Readonly<Record<string, string>>) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const child = spawn(process.execPath, ["deploy/services.ts", word], {
        env: { PATH: process.env["PATH"] ?? "", HOME: process.env["HOME"] ?? "", NO_COLOR: "1", ...env },
        stdio: ["ignore", "pipe", "pipe"]
      })
      let output = ""
      for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => output += String(chunk))
      const ended = new Promise<Ended>((resolve) => {
        child.on("close", (code, signal) => resolve({ code: code ?? signal ?? 0, output }))
      })
      return { child, ended }
    }),
    ({ child }) => Effect.sync(() => void child.kill("SIGKILL"))
  )

const run = (word: string, env: Readonly<Record<string, string>>): Effect.Effect<Ended> =>
  Effect.scoped(Effect.flatMap(start(word, env), ({ ended }) => Effect.promise(() => ended)))

/** A place with ports of its own; whatever runs in it is stopped when the scope ends. */
const place = Effect.gen(function*() {
  const folder = yield* temporary
  const dir = join(folder, "services")
  const [postgres, redis, kafka] = [yield* freePort, yield* freePort, yield* freePort]
  const env = {
    DEADMAN_SERVICES: "native",
    DEADMAN_SERVICES_DIR: dir,
    DEADMAN_SERVICES_POSTGRES_PORT: String(postgres),
    DEADMAN_SERVICES_REDIS_PORT: String(redis),
    DEADMAN_SERVICES_KAFKA_PORT: String(kafka)
  }
  yield* Effect.addFinalizer(() => run("down", env))
  return { folder, dir, env, ports: [postgres, redis, kafka] }
})

const pidsOf = (output: string): Readonly<Record<string, number>> =>
  Object.fromEntries(
    [...output.matchAll(/^(postgres|redis|kafka)\b.*?, pid (\d+)/gm)].map(([, name, pid]) => [name, Number(pid)])
  )

/** A zombie does not count: the first process of a container may never reap what became its child. */
const exists = (pid: number) => ProcessIdentity.startOf(pid) !== undefined

TestServers.describeWithKafka("services:up without an engine", () => {
  it.live(
    "completes a start that was killed, repeats nothing, and leaves nothing behind",
    () =>
      Effect.gen(function*() {
        const { dir, env, ports } = yield* place

        const scope = yield* Scope.make()
        const first = yield* Scope.provide(start("up", env), scope)
        yield* eventually(
          "Redis is on record",
          Effect.sync(() => existsSync(join(dir, "redis", "process.json"))),
          "1 minute"
        )
        first.child.kill("SIGKILL")
        assert.strictEqual((yield* Effect.promise(() => first.ended)).code, "SIGKILL")
        yield* Scope.close(scope, Exit.void)

        const second = yield* run("up", env)
        assert.strictEqual(second.code, 0, second.output)
        const pids = pidsOf(second.output)
        assert.sameMembers(Object.keys(pids), ["postgres", "redis", "kafka"], second.output)
        assert.match(second.output, /^redis \(already up\)/m, "the one whose starter was killed is kept")
        assert.match(second.output, /^export DEADMAN_DATABASE_URL=postgres:/m)

        const third = yield* run("up", env)
        assert.deepStrictEqual(pidsOf(third.output), pids)
        assert.lengthOf(third.output.match(/\(already up\)/g) ?? [], 3, third.output)

        const other = yield* run("up", { ...env, DEADMAN_SERVICES_REDIS_PORT: String(yield* freePort) })
        assert.strictEqual(other.code, 1)
        assert.include(other.output, "npm run services:down first")

        process.kill(pids["redis"] ?? 0, "SIGKILL")
        yield* eventually("Redis is gone", Effect.sync(() => !exists(pids["redis"] ?? 0)))
        const crashed = yield* run("status", env)
        assert.match(crashed.output, /^redis: down/m)
        assert.match(crashed.output, /^kafka: up, \d.* MiB/m)
        const again = yield* run("up", env)
        assert.match(again.output, /^redis \(started\)/m)

        const down = yield* run("down", env)
        assert.strictEqual(down.code, 0, down.output)
        assert.lengthOf(down.output.match(/: stopped/g) ?? [], 3, down.output)
        const left = [...Object.values(pids), ...Object.values(pidsOf(again.output))].filter(exists)
        assert.deepStrictEqual(left, [])
        assert.isFalse(existsSync(dir), "the folder is gone")
        for (const port of ports) assert.isTrue(yield* Ports.isFree(port))
        assert.include((yield* run("down", env)).output, "nothing was started")
      }).pipe(Effect.scoped),
    400_000
  )
})

/** A `docker` that writes down what it is asked, and answers as told. */
const fakeDocker = (folder: string, info: string) => {
  const bin = join(folder, "bin")
  mkdirSync(bin, { recursive: true })
  writeFileSync(
    join(bin, "docker"),
    `#!/bin/sh\necho "$@" >> ${join(folder, "asked")}\n[ "$1" = info ] && { ${info}; }\nexit 0\n`
  )
  chmodSync(join(bin, "docker"), 0o755)
  return bin
}

/** What a system always has, and nothing else. */
const barePath = (folder: string) => {
  const bin = fakeDocker(folder, "exec sleep 300")
  for (const name of ["sh", "awk", "ps", "ln", "rm", "id", "sleep"]) {
    const found = (process.env["PATH"] ?? "").split(delimiter).map((dir) => join(dir, name)).find(existsSync)
    if (found !== undefined) symlinkSync(found, join(bin, name))
  }
  return bin
}

describe("services without an engine", () => {
  it.live("leave alone a stranger who was given the pid on record", () =>
    Effect.gen(function*() {
      const { dir, env } = yield* place
      const ports = { postgres: 1, redis: 2, kafka: 3 }
      mkdirSync(join(dir, "redis"), { recursive: true })
      writeFileSync(join(dir, "services.json"), JSON.stringify({ way: "native", ports }))
      const stranger = yield* Effect.acquireRelease(
        Effect.sync(() => spawn("sleep", ["300"])),
        (child) => Effect.sync(() => void child.kill("SIGKILL"))
      )
      const record = { ...ProcessIdentity.self(), pid: stranger.pid, started: "1" }
      writeFileSync(join(dir, "redis", "process.json"), JSON.stringify(record))
      const down = yield* run("down", env)
      assert.strictEqual(down.code, 0, down.output)
      assert.include(down.output, "redis: was not running")
      assert.isTrue(exists(stranger.pid ?? 0))
    }).pipe(Effect.scoped), 180_000)

  it.live(
    "do not wait for a client that hangs, say what to install, and start the others",
    () =>
      Effect.gen(function*() {
        const { env: { DEADMAN_SERVICES: _, ...env }, folder } = yield* place
        const up = yield* run("up", { ...env, PATH: barePath(folder), XDG_CACHE_HOME: join(folder, "cache") })
        assert.strictEqual(up.code, 1, up.output)
        assert.include(up.output, "because no Docker engine answers")
        assert.match(up.output, /^kafka: failed: Kafka needs Java 17 or newer on the PATH: install it/m)
        assert.match(up.output, /^postgres \(started\): up/m)
      }).pipe(Effect.scoped),
    180_000
  )

  it.live("refuse a port that somebody else has", () =>
    Effect.gen(function*() {
      const { env, folder, ports: [port] } = yield* place
      yield* Effect.acquireRelease(
        Effect.sync(() => createServer().listen(port, "127.0.0.1")),
        (server) => Effect.sync(() => void server.close())
      )
      const up = yield* run("up", { ...env, PATH: barePath(folder), XDG_CACHE_HOME: join(folder, "cache") })
      assert.strictEqual(up.code, 1, up.output)
      assert.include(up.output, `postgres: failed: port ${port} of 127.0.0.1 is taken`)
    }).pipe(Effect.scoped), 180_000)
})

describe("services with an engine", () => {
  const fake = (folder: string, info: string) => ({
    DEADMAN_SERVICES: "docker",
    PATH: `${fakeDocker(folder, info)}${delimiter}${process.env["PATH"] ?? ""}`
  })
  const asked = (folder: string) => readFileSync(join(folder, "asked"), "utf8")

  it.live("are compose's, from the start to the end", () =>
    Effect.gen(function*() {
      const { dir, env, folder } = yield* place
      const docker = { ...env, ...fake(folder, "echo 28.0.0") }
      const up = yield* run("up", docker)
      assert.strictEqual(up.code, 0, up.output)
      assert.include(up.output, `redis://127.0.0.1:${env.DEADMAN_SERVICES_REDIS_PORT}`)
      assert.match(asked(folder), /compose\.yaml up --detach --wait postgres redis kafka\n.*run --rm topics\n/)
      assert.strictEqual((yield* run("status", docker)).code, 0)
      // What was started by the engine is stopped by the engine, whatever is asked for by now.
      const down = yield* run("down", { ...docker, DEADMAN_SERVICES: "native" })
      assert.strictEqual(down.code, 0, down.output)
      assert.match(asked(folder), /down --volumes/)
      assert.isFalse(existsSync(dir))
    }).pipe(Effect.scoped), 180_000)

  it.live("are not waited for when a client hangs", () =>
    Effect.gen(function*() {
      const { env, folder } = yield* place
      const up = yield* run("up", { ...env, ...fake(folder, "exec sleep 300") })
      assert.strictEqual(up.code, 1, up.output)
      assert.include(up.output, "docker info does not answer within 3 s")
    }).pipe(Effect.scoped), 180_000)
})
