/** What a process says once it is up: who it is, what stands behind each port, and what to try first. */
import { Effect } from "effect"
import * as Logging from "./Logging.ts"

export interface Banner {
  readonly program: "server" | "worker"
  readonly version: string
  readonly profile: string
  readonly adapters: Readonly<Record<string, string>>
  readonly handlers: ReadonlyArray<string>
  readonly slots: number
  /** Where it listens, if it does. */
  readonly address?: string
}

const handlersShown = 12

export const say = Effect.fnUntraced(function*(banner: Banner) {
  const format = yield* Logging.formatFromEnv
  const { adapters, address, handlers, profile, program, slots, version } = banner
  if (format === "json") {
    yield* Effect.logInfo(`${program} is up`).pipe(
      Effect.annotateLogs({ version, profile, adapters, handlers, slots, address: address ?? null })
    )
    return
  }
  const shown = handlers.slice(0, handlersShown).join(", ") + (handlers.length > handlersShown ? ", …" : "")
  const lines = [
    `Deadman ${version}, ${program}, profile ${profile}`,
    ...Object.entries(adapters).map(([port, adapter]) => `  ${port.padEnd(14)} ${adapter}`),
    slots === 0 ? "  runs no jobs (DEADMAN_WORKER_THREADS=0)" : `  runs ${slots} jobs at once: ${shown}`
  ]
  if (address !== undefined) {
    lines.push(
      `  listens on     ${address} (what it can do: ${address}/docs)`,
      "Try:",
      `  curl -s ${address}/jobs -H 'content-type: application/json' -d '{"type":"sleep","payload":500}'`
    )
  }
  process.stdout.write(`${lines.join("\n")}\n`)
})
