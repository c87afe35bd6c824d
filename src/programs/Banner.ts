/** What a process says once it is up: who it is, what stands behind each port, and what to try first. */
import { Effect } from "effect"
import * as Logging from "./Logging.ts"
import * as Words from "./process/Words.ts"

export interface Banner {
  readonly program: "server" | "worker"
  readonly version: string
  readonly profile: string
  /** Of the embedded Postgres. */
  readonly dataDir: string | null
  /** As `/stats` lists it, and its jobs say; `null` for a process that runs none. */
  readonly worker: string | null
  readonly pid: number
  readonly adapters: Readonly<Record<string, string>>
  readonly handlers: ReadonlyArray<string>
  readonly slots: number
  /** Where it listens, if it does. */
  readonly address?: string
}

const handlersShown = 12

/** For people. */
export const lines = (banner: Banner): ReadonlyArray<string> => {
  const { adapters, address, dataDir, handlers, pid, profile, program, slots, version, worker } = banner
  const shown = handlers.slice(0, handlersShown).join(", ") + (handlers.length > handlersShown ? ", …" : "")
  const entry = (name: string, value: string) => `  ${name.padEnd(14)} ${value}`
  return [
    `Deadman ${version}, ${program}, profile ${profile}`,
    entry("process", worker === null ? String(pid) : `${pid}, called ${worker}`),
    ...(dataDir === null ? [] : [entry("data folder", dataDir)]),
    ...Object.entries(adapters).map(([port, adapter]) => entry(port, adapter)),
    slots === 0
      ? "  runs no jobs (DEADMAN_WORKER_THREADS=0)"
      : `  runs ${Words.counted(slots, "job")} at once: ${shown}`,
    ...(address === undefined ? [] : [
      entry("listens on", `${address} (what it can do: ${address}/docs)`),
      "Try:",
      `  curl -s ${address}/jobs -H 'content-type: application/json' -d '{"type":"sleep","payload":500}'`
    ])
  ]
}

export const say = Effect.fnUntraced(function*(banner: Banner) {
  if ((yield* Logging.formatFromEnv) === "pretty") {
    process.stdout.write(`${lines(banner).join("\n")}\n`)
    return
  }
  const { dataDir, program, ...rest } = banner
  yield* Effect.logInfo(`${program} is up`).pipe(
    Effect.annotateLogs({ ...rest, data_dir: dataDir, address: banner.address ?? null })
  )
})
