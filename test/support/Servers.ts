/** The built server as a process on a port of its own, with a client of it. It runs no jobs unless its variables say so. */
import { type Duration, Effect } from "effect"
import * as ApiClient from "./ApiClient.ts"
import { freePort } from "./FreePort.ts"
import * as Processes from "./Processes.ts"

export interface Server {
  readonly program: Processes.Program
  readonly port: number
  readonly api: ApiClient.ApiClient
}

type Env = Readonly<Record<string, string>>

/** Started, and not waited for. */
export const start = Effect.fn("Servers.start")(function*(env: Env) {
  const port = yield* freePort
  const program = yield* Processes.start("server", {
    DEADMAN_PORT: String(port),
    DEADMAN_WORKER_THREADS: "0",
    ...env
  })
  return { program, port, api: ApiClient.make(port) } satisfies Server
})

export const ready = ({ api, program }: Server, within?: Duration.Input) =>
  Processes.eventually(
    () => `the server is ready; it said:\n${program.output().slice(-3_000)}`,
    Effect.map(api.send("GET", "/ready"), ({ status }) => status === 200),
    within
  )

export const started = (env: Env, within?: Duration.Input) => Effect.tap(start(env), (server) => ready(server, within))
