/**
 * `deadman dev`, and the names of the programs that `cli.ts` loads before anything of this is asked.
 *
 * `dev` is the server with everything embedded: it says what to try, sets the environment and hands the process over.
 */
import { Config, Effect, Option, Schema } from "effect"
import { Command, Flag } from "effect/cli"
import { answering, usage } from "./CliRoot.ts"
import * as Strangers from "./Strangers.ts"

const nameFirst = (name: string) =>
  usage(`Write the name first: \`deadman ${name}\`, and what is meant for it behind it.`)

const endless = new Set(["dev", "server", "worker"])

const noJson = (name: string) =>
  usage(
    `\`deadman ${name}\` runs until it is told to stop and gives no answer, so leave --json out. ` +
      "DEADMAN_LOG_FORMAT=json makes its log lines JSON."
  )

const program = (name: string, description: string, what: string) =>
  Command.make(name, {}, () =>
    // Reached only where something stood before the name, or behind that of one that takes nothing.
    answering(({ json }) => Effect.fail(json && endless.has(name) ? noJson(name) : nameFirst(name)))).pipe(
      Command.withDescription(`${description}. ${what}`),
      Command.withShortDescription(description)
    )

const byVariables = "It takes no flags: DEADMAN_* variables say all (see the README)."
const byItself = "Its flags are its own: ask it with --help."

export const server = program("server", "Takes jobs in over HTTP, does the chores, and runs jobs", byVariables)
export const worker = program("worker", "Claims jobs and runs them until told to stop", byVariables)
export const chaos = program("chaos", "Hurts Deadman for a while, and proves that what it promises holds", byItself)
export const bench = program("bench", "Measures Deadman on this machine", byItself)

let next: (() => Promise<unknown>) | null = null

/** What is to be run in this process now, if anything. */
export const handedOver = () => next

const elsewhere = Strangers.known.filter((name) => /^DEADMAN_(DATABASE_URL|REDIS_.*|KAFKA_.*)$/.test(name))

const lines = (port: number, ignored: ReadonlyArray<string>): ReadonlyArray<string> => {
  const url = port === 8_080 ? "" : ` --url http://127.0.0.1:${port}`
  return [
    ...ignored.map((name) =>
      `${name} is set and left alone: dev has everything in itself (\`deadman server\` uses it)`
    ),
    "In another terminal:",
    `  deadman submit sleep 500 --wait${url}`,
    `  deadman tail${url}`,
    `  deadman list${url}`,
    `  deadman doctor`,
    "Ctrl-C stops it; the data stay.",
    ""
  ]
}

export const dev = Command.make(
  "dev",
  {
    port: Flag.Int("port").pipe(
      Flag.withDescription("Where it listens (default: DEADMAN_PORT, else 8080)"),
      Flag.withSchema(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 65_535 }))),
      Flag.withFallbackConfig(Config.Int("DEADMAN_PORT")),
      Flag.withDefault(8_080)
    ),
    dataDir: Flag.String("data-dir").pipe(
      Flag.withDescription("Where its Postgres keeps its data (default: DEADMAN_DATA_DIR, else .deadman)"),
      Flag.optional
    ),
    handlers: Flag.String("handlers").pipe(
      Flag.withDescription("Modules with handlers of yours, beside the demo handlers; commas between"),
      Flag.optional
    )
  },
  (flags) =>
    answering(Effect.fnUntraced(function*({ json }) {
      if (json) {
        return yield* noJson("dev")
      }
      // Whoever ends the process afterwards goes by the first word.
      if (process.argv[2] !== "dev") {
        return yield* nameFirst("dev")
      }
      yield* Effect.sync(() => {
        const env = process.env
        const ignored = elsewhere.filter((name) => (env[name] ?? "") !== "")
        ignored.forEach((name) => {
          delete env[name]
        })
        env["DEADMAN_PORT"] = String(flags.port)
        if (Option.isSome(flags.dataDir)) {
          env["DEADMAN_DATA_DIR"] = flags.dataDir.value
        }
        if (Option.isSome(flags.handlers)) {
          env["DEADMAN_HANDLERS"] = `built-in,${flags.handlers.value}`
        }
        process.stdout.write(`${lines(flags.port, ignored).join("\n")}\n`)
        next = () => import("./server.ts")
      })
    }))
).pipe(Command.withDescription("Everything in one process, for trying: server, workers, a Postgres, demo handlers"))
