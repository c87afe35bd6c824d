/** The tree of commands, and how the process ends. `cli.ts` loads it where no program is asked for. */
import { NodeServices } from "@effect/platform-node"
import { Console, Effect, Exit, Layer } from "effect"
import { CliConfig, CliOutput, Command, GlobalFlag, TerminalCapabilities } from "effect/cli"
import { cancel, get, list, resubmit, retry, stats } from "./CliJobs.ts"
import { bench, chaos, dev, handedOver, server, worker } from "./CliPrograms.ts"
import { queues } from "./CliQueues.ts"
import { endingOf, root } from "./CliRoot.ts"
import { schedules } from "./CliSchedules.ts"
import { doctor, migrate } from "./CliServices.ts"
import { submit } from "./CliSubmit.ts"
import { tail } from "./CliTail.ts"
import * as Main from "./Main.ts"
import { version } from "./Version.ts"

const deadman = root.pipe(
  Command.withSubcommands([
    { group: "Try it", commands: [dev] },
    { group: "Jobs", commands: [submit, get, list, tail, cancel, retry, resubmit] },
    { group: "Look after it", commands: [stats, queues, schedules, doctor, migrate] },
    { group: "Programs", commands: [server, worker, chaos, bench] }
  ])
)

/** A mistake is answered on stderr: stdout is for answers, and may be read by a program. */
const presenter = Effect.map(TerminalCapabilities.TerminalCapabilities, ({ canColor }) => {
  const formatter = CliOutput.defaultFormatter({ colors: canColor, globalFlags: "summary" })
  return CliOutput.layerPresenter({
    present: (event) => {
      switch (event._tag) {
        case "Help":
          return Console.log(formatter.formatHelpDoc(event.helpDoc))
        case "Version":
          return Console.log(event.version)
        case "InvalidInvocation":
          return Console.error([
            // Said twice, once by each part of the library.
            ...event.errors.map((error) =>
              formatter.formatCliError(error).replace("Schema validation failed: Expected ", "")
            ),
            `Usage: ${event.helpDoc.usage}`,
            `More: ${event.commandPath.join(" ")} --help`
          ].join("\n"))
      }
    }
  })
})

const builtIns = [GlobalFlag.Help, GlobalFlag.Version, GlobalFlag.Completions] as const

const services = Layer.mergeAll(
  NodeServices.layer,
  CliConfig.layer({ builtIns }),
  Layer.unwrap(presenter)
)

/** Whoever reads along may have seen enough: that is no failure of ours. */
const onPipeClosed = (error: NodeJS.ErrnoException) => {
  if (error.code === "EPIPE") {
    process.exit(0)
  }
  throw error
}

export const run = (args: ReadonlyArray<string>): void => {
  process.stdout.on("error", onPipeClosed)
  // What cannot be said there must not change how this ends.
  process.stderr.on("error", () => {})
  const program = Command.runWith(deadman, { version })(args).pipe(Effect.provide(services))
  if (args[0] !== "dev") {
    Main.once(program, endingOf)
    return
  }
  Effect.runFork(program).addObserver((exit) => {
    const next = handedOver()
    if (Exit.isSuccess(exit) && next !== null) {
      process.stdout.off("error", onPipeClosed)
      void next()
    } else {
      Main.end(exit, endingOf)
    }
  })
}
