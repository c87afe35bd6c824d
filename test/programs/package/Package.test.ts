/**
 * The package as its users have it: packed, installed by npm into an empty project, type-checked and run there.
 *
 * Every example of docs/examples runs here, and so does every TypeScript block of the docs, which is a piece of one of
 * them (see test/house/Guide.test.ts). Those of docs/examples/transactions are run by test/examples.
 */
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Effect, Exit, Redacted, Scope } from "effect"
import { cpSync, existsSync, globSync, readFileSync, writeFileSync } from "node:fs"
import { join, resolve } from "node:path"
import * as Consumer from "../../support/Consumer.ts"
import { freshDatabase } from "../../support/Database.ts"
import { eventually } from "../../support/Eventually.ts"
import * as Processes from "../../support/Processes.ts"

const scope = Scope.makeUnsafe()
let consumer: Consumer.Consumer
let url = ""

const manifest = JSON.parse(readFileSync("package.json", "utf8"))
const { dependencies, devDependencies } = manifest

/** What the examples ask their readers to install. */
const clients = ["@effect/sql-pg", "pg", "@types/pg", "postgres", "drizzle-orm", "kysely"].map((name) =>
  `${name}@${devDependencies[name] ?? dependencies[name]}`
)

/** What the guide tells its readers to use. */
const [, shown = ""] =
  /^```json\n(\{\n {2}"compilerOptions"[\s\S]*?)^```$/m.exec(readFileSync("docs/guide.md", "utf8")) ?? []
const guided = JSON.parse(shown)

const strict = {
  compilerOptions: {
    ...guided.compilerOptions,
    noEmit: false,
    moduleDetection: "force",
    // Of what is exported without a type of its own, the type must have a name that can be written.
    declaration: true,
    emitDeclarationOnly: true,
    outDir: "types",
    exactOptionalPropertyTypes: true,
    noUncheckedIndexedAccess: true,
    skipLibCheck: false
  },
  include: ["**/*.ts"]
}

const wrong = `import { Deadman, Job } from "deadman"
import { Schema } from "effect"
const greet = Job.define({ type: "greet", payload: Schema.Struct({ name: Schema.String }), result: Schema.Int })
const deadman = await Deadman.start()
await deadman.submit(greet, { name: 1 })
greet.handle(() => "no number")
const ended = await deadman.wait(await deadman.submit(greet, { name: "Ada" }))
if (ended.state === "completed") ended.result.toUpperCase()
await deadman.submitAll([{ job: greet, payload: { name: "Ada" } }, { job: greet, payload: { name: 1 } }])
await deadman.schedule("greet", { cron: "0 3 * * *", job: greet, payload: { name: 1 } })
`

/** Whoever exports what a call answers, as TypeScript infers it, needs a name for each type in it. */
const inferred = `import { connect, Deadman, Effects, Job, Transaction } from "deadman"
import * as Testing from "deadman/testing"
import { handlers } from "./handlers.ts"
import { resize } from "./jobs.ts"
const payload = { url: "https://example.org/dog.png", width: 7 }
const entries = [{ job: resize, payload }, { job: "sleep", payload: 1 }, { job: resize, payload }]
export const deadman = () => Deadman.start({ handlers })
export const client = connect({ url: "http://127.0.0.1:8080" })
export const test = () => Testing.start({ handlers })
export class Calls {
  deadman = client
  submit() { return this.deadman.submit(resize, payload) }
  byName() { return this.deadman.submit("sleep", 1) }
  submitAll(jobs: ReadonlyArray<Deadman.Entry>) { return this.deadman.submitAll(jobs) }
  mixed() { return this.deadman.submitAll(entries) }
  async wait() { return (await this.deadman.wait(await this.submit())) }
  async result() { const ended = await this.wait(); return ended.state === "completed" ? ended.result : ended.reason }
  get(id: string) { return this.deadman.get(id) }
  async list() { return (await this.deadman.list({ state: "dead" })).jobs }
  async errors(id: string) { return (await this.deadman.get(id))?.errors }
  async events(id: string) { return (await this.deadman.get(id))?.events }
  async logs(id: string) { return (await this.deadman.get(id))?.logs }
  async state(id: string) { return (await this.deadman.get(id))?.state }
  cancel(id: string) { return this.deadman.cancel(id) }
  schedule() { return this.deadman.schedule("resize", { everyMs: 60_000, job: resize, payload }) }
  async schedules() { return (await this.deadman.schedules.list()).schedules }
  async queues() { return (await this.deadman.queues.list()).queues }
  stats() { return this.deadman.stats() }
  ready() { return this.deadman.ready() }
  async health() { return (await deadman()).ready() }
  async workers() { return (await this.deadman.stats()).workers }
  async submitted() { return (await Testing.start()).submitted(resize) }
  statement() { return Transaction.statement(resize, payload) }
}
export const shown = (job: Deadman.Job) => job.state
export const query: Effects.Query = async () => []
export const handler = resize.handle(() => ({ bytes: 1 }))
export const again = () => Job.again(1)
`

const submits = `import { Deadman } from "deadman"
import { resize } from "./jobs.ts"
const deadman = await Deadman.start()
const ended = await deadman.wait(await deadman.submit(resize, { url: "https://example.org/dog.png", width: 7 }))
console.log(ended.state, ended.result)
await deadman.stop()
`

beforeAll(() =>
  Consumer.make().then((made) => {
    consumer = made
    cpSync(resolve("docs/examples"), consumer.folder, { recursive: true })
    return Effect.runPromise(Scope.provide(freshDatabase, scope)).then((database) => {
      url = Redacted.value(database.url)
    })
  }), 240_000)

afterAll(() => {
  consumer?.remove()
  return Effect.runPromise(Scope.close(scope, Exit.void))
}, 180_000)

/** Runs an example on the database of this suite. */
const example = (file: string, env: Readonly<Record<string, string>> = {}) =>
  consumer.run(process.execPath, [file], { DEADMAN_DATABASE_URL: url, DATABASE_URL: url, ...env })

/** What was expected of a run and is not there: lines of its output, and exit code 0. */
const missing = ({ code, output }: Consumer.Ran, ...lines: ReadonlyArray<string>): ReadonlyArray<string> => {
  const said = output.split("\n")
  return code === 0
    ? lines.flatMap((line) => said.includes(line) ? [] : [`${line}, in:\n${output}`])
    : [`exit code 0, not ${code}:\n${output}`]
}

describe("the package", () => {
  it("holds the programs, the types, the guide and its examples, and nothing that users do not need", () => {
    const { files } = consumer
    for (
      const file of [
        "dist/deadman.js",
        "dist/testing.js",
        "dist/cli.js",
        "dist/server.js",
        "dist/worker.js",
        "dist/types/programs/deadman.d.ts",
        "dist/types/programs/testing.d.ts",
        "docs/guide.md",
        "docs/examples/first-job.ts",
        "README.md"
      ]
    ) {
      assert.include(files, file)
    }
    assert.deepStrictEqual(files.filter((file) => /\.map$|\.test\.|^(src|test|deploy)\//.test(file)), [])
  })

  it("installs with one effect, and without a Node or tools of ours", () => {
    const at = (name: string) => existsSync(join(consumer.folder, "node_modules", name))
    assert.deepStrictEqual(
      ["node", "esbuild", "vitest", "typescript", "oxlint"].filter(at),
      [],
      "these are for building Deadman"
    )
    assert.isTrue(at("effect"))
    const { dependencies: theirs, peerDependencies, scripts } = JSON.parse(
      readFileSync(join(consumer.folder, "node_modules/deadman/package.json"), "utf8")
    )
    assert.deepStrictEqual([peerDependencies.effect, theirs.effect], ["~4.1.0", undefined])
    // npm warns whoever installs a package with one of these.
    const atInstall = ["preinstall", "install", "postinstall", "prepare"]
    assert.deepStrictEqual(atInstall.filter((name) => name in scripts), [])
    assert.deepStrictEqual(
      globSync("node_modules/**/node_modules/effect/package.json", { cwd: consumer.folder }),
      [],
      "two copies of effect do not know each other's services"
    )
  })

  it(
    "runs a first job on a Postgres of its own, with nothing but Node and npm",
    () =>
      consumer.run(process.execPath, ["first-job.ts"]).then((ran) => {
        assert.deepStrictEqual(missing(ran, "completed Hello, Ada!"), [])
        assert.isTrue(existsSync(join(consumer.folder, ".deadman")))
      }),
    180_000
  )

  it(
    "and its first example is JavaScript as it stands",
    () => {
      cpSync(join(consumer.folder, "first-job.ts"), join(consumer.folder, "first-job.mjs"))
      return consumer.run(process.execPath, ["first-job.mjs"]).then((ran) =>
        assert.deepStrictEqual(missing(ran, "completed Hello, Ada!"), [])
      )
    },
    180_000
  )

  it("is a command", () =>
    consumer.run("npx", ["--no-install", "deadman", "--version"]).then((ran) => {
      assert.strictEqual(ran.code, 0, ran.output)
      assert.include(ran.output, manifest.version)
    }), 180_000)

  it(
    "can be required from CommonJS",
    () =>
      consumer.run(process.execPath, ["-e", `console.log(typeof require("deadman").Deadman.start)`]).then((ran) =>
        assert.deepStrictEqual(missing(ran, "function"), [])
      ),
    180_000
  )
})

describe("the examples", () => {
  beforeAll(
    () =>
      consumer.run("npm", ["install", ...clients, "--prefer-offline", "--no-audit", "--no-fund"]).then((ran) =>
        assert.strictEqual(ran.code, 0, ran.output)
      ),
    180_000
  )

  it("type-check in a strict project, and so do our types; what does not fit is an error", () => {
    writeFileSync(join(consumer.folder, "tsconfig.json"), JSON.stringify(strict))
    writeFileSync(join(consumer.folder, "wrong.ts"), wrong)
    writeFileSync(join(consumer.folder, "inferred.ts"), inferred)
    return consumer.run(process.execPath, [resolve("node_modules/typescript/bin/tsc"), "--pretty", "false"])
      .then(({ output }) => {
        const errors = output.split("\n").filter((line) => /^\S+\(\d+,\d+\): error/.test(line))
        // Other packages' declarations are theirs to mend.
        const ours = errors.filter((line) =>
          !line.startsWith("node_modules/") || line.startsWith("node_modules/deadman/")
        )
        assert.deepStrictEqual(ours.filter((line) => !line.startsWith("wrong.ts")), [])
        const found = ours.flatMap((line) => /^wrong\.ts\((\d+),/.exec(line)?.[1] ?? [])
        assert.deepStrictEqual([...new Set(found)], ["5", "6", "8", "9", "10"], output)
      })
  }, 180_000)

  it("a worker and a submitter are two processes, and the worker drains when it is told to stop", () => {
    const worker = consumer.start(process.execPath, ["worker.ts"], { DEADMAN_DATABASE_URL: url })
    return example("submit.ts").then((ran) => {
      assert.deepStrictEqual(missing(ran, "false true", "completed { bytes: 1920 }", "1"), [])
      assert.match(ran.output, /^worker-\S+ 0 attempt 1, delivery 1$/m)
      assert.include(ran.output, "payload.width")
      worker.child.kill("SIGTERM")
      return worker.ended
    }).then((ran) => assert.deepStrictEqual(missing(ran, "running jobs"), [])).finally(() =>
      worker.child.kill("SIGKILL")
    )
  }, 180_000)

  it(
    "probes.ts says that it is ready, and what it has counted, until it is told to stop",
    () =>
      Effect.runPromise(Processes.freePort).then((port) => {
        const probed = consumer.start(process.execPath, ["probes.ts"], {
          DEADMAN_DATABASE_URL: url,
          PROBES_PORT: String(port)
        })
        const at = `http://127.0.0.1:${port}`
        const ready = Effect.promise(() => fetch(`${at}/ready`).then(({ ok }) => ok, () => false))
        return Effect.runPromise(eventually("the program is ready", ready, "60 seconds"))
          .then(() => fetch(`${at}/metrics`))
          .then((answer) => {
            assert.match(answer.headers.get("content-type") ?? "", /^text\/plain; version=0\.0\.4/)
            return answer.text()
          })
          .then((text) => {
            assert.match(text, /^# TYPE deadman_claimed_total counter$/m, probed.output())
            probed.child.kill("SIGTERM")
            return probed.ended
          })
          .then(({ code, output }) => assert.strictEqual(code, 0, output))
          .finally(() => probed.child.kill("SIGKILL"))
      }),
    180_000
  )

  it("handlers.ts is run by the shipped worker as well", () => {
    const env = { DEADMAN_DATABASE_URL: url, DEADMAN_HANDLERS: "./handlers.ts", DEADMAN_LOG_FORMAT: "json" }
    const worker = consumer.start(process.execPath, ["node_modules/deadman/dist/cli.js", "worker"], env)
    writeFileSync(join(consumer.folder, "submits.ts"), submits)
    return example("submits.ts").then((ran) => {
      assert.deepStrictEqual(missing(ran, "completed { bytes: 21 }"), [])
      worker.child.kill("SIGTERM")
      return worker.ended
    }).then(({ code, output }) => assert.strictEqual(code, 0, output)).finally(() => worker.child.kill("SIGKILL"))
  }, 180_000)

  it(
    "email.ts sends one e-mail although the first answer was lost",
    () =>
      example("email.ts").then((ran) =>
        assert.deepStrictEqual(missing(ran, "completed after 1 failure, 2 requests, 1 e-mail"), [])
      ),
    180_000
  )

  it(
    "orders.ts has no job for an order that was rolled back",
    () =>
      example("orders.ts").then((ran) =>
        assert.deepStrictEqual(missing(ran, "1 order, 1 job, 1 shipped; the card was refused"), [])
      ),
    180_000
  )

  it(
    "nightly-report.ts is booked for the night, and its job runs",
    () =>
      example("nightly-report.ts").then((ran) => assert.deepStrictEqual(missing(ran, "next at 02:30", "ran true"), [])),
    180_000
  )

  it(
    "cpu-heavy.ts computes for longer than a lease and loses none",
    () =>
      example("cpu-heavy.ts").then((ran) =>
        assert.deepStrictEqual(missing(ran, "412849 primes, longer than a lease: true and 0 leases lost"), [])
      ),
    180_000
  )

  it(
    "with-effect.ts gives handlers their services",
    () =>
      example("with-effect.ts").then((ran) =>
        assert.deepStrictEqual(missing(ran, "welcome, ada@example.org", "completed"), [])
      ),
    180_000
  )

  it("ledger.ts is loaded by the shipped worker with its layer, and its SQL happens once", () => {
    const env = { DEADMAN_DATABASE_URL: url, DEADMAN_HANDLERS: "./ledger.ts", DEADMAN_LOG_FORMAT: "json" }
    const worker = consumer.start(process.execPath, ["node_modules/deadman/dist/cli.js", "worker"], env)
    return example("ledger-submit.ts").then((ran) => {
      assert.deepStrictEqual(
        missing(ran, "completed Already after 1 failure, 1 charge", "completed { delivered: true } true"),
        [],
        worker.output()
      )
      worker.child.kill("SIGTERM")
      return worker.ended
    }).then(({ code, output }) => assert.strictEqual(code, 0, output)).finally(() => worker.child.kill("SIGKILL"))
  }, 180_000)

  it.each([
    ["mail.ts", ["plain completed mail true", "patient completed mail true", "effectful completed mail true"]],
    ["payments.ts", ["completed Already after 1 failure, 1 payment", "completed { closed: true } true"]],
    ["bookings.ts", ["completed false after 1 failure, 1 booking", "completed { confirmed: true } true"]],
    ["offload.ts", ["completed 64"]]
  ])(
    "%s says what it should",
    (file, lines) => example(file).then((ran) => assert.deepStrictEqual(missing(ran, ...lines), [])),
    180_000
  )

  it(
    "own-tables.ts has its tables in the Postgres that came along",
    () =>
      consumer.run(process.execPath, ["own-tables.ts"]).then((ran) =>
        assert.deepStrictEqual(missing(ran, "completed 1"), [])
      ),
    180_000
  )

  it("client.ts and client-effect.ts ask a server", () =>
    Effect.runPromise(Processes.freePort).then((port) => {
      const server = consumer.start(process.execPath, ["node_modules/deadman/dist/cli.js", "server"], {
        DEADMAN_DATABASE_URL: url,
        DEADMAN_HANDLERS: "built-in ./handlers.ts",
        DEADMAN_PORT: String(port)
      })
      const at = `http://127.0.0.1:${port}`
      const ready = Effect.promise(() => fetch(`${at}/ready`).then(({ ok }) => ok, () => false))
      return Effect.runPromise(eventually("the server is ready", ready, "60 seconds"))
        .then(() => example("client.ts", { DEADMAN_URL: at }))
        .then((ran) => assert.deepStrictEqual(missing(ran, "1920", "completed", "resubmitted 1"), [], server.output()))
        .then(() => example("client-effect.ts", { DEADMAN_URL: at }))
        .then((ran) => assert.deepStrictEqual(missing(ran, "completed"), [], server.output()))
        .then(() => {
          server.child.kill("SIGTERM")
          return server.ended
        })
        .then(({ code, output }) => assert.strictEqual(code, 0, output))
        .finally(() => server.child.kill("SIGKILL"))
    }), 180_000)

  it(
    "handlers-test.ts is a test of node's own runner",
    () =>
      consumer.run(process.execPath, ["--test", "handlers-test.ts"]).then((ran) =>
        assert.strictEqual(ran.code, 0, ran.output)
      ),
    180_000
  )

  it("are all run above", () => {
    const text = readFileSync("test/programs/package/Package.test.ts", "utf8")
    const imported = new Set(["digest.ts", "handlers.ts", "jobs.ts", "ledger.ts", "primes.ts"])
    const examples = globSync("*.ts", { cwd: "docs/examples" }).filter((file) => !imported.has(file))
    assert.isNotEmpty(examples)
    assert.deepStrictEqual(examples.filter((file) => !text.includes(`"${file}"`)), [])
  })
})
