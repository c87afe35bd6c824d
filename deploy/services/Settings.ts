/** Where the servers are: the folder of their data and records, and their ports. */
import { Config, Effect, Option, Schema } from "effect"
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs"
import { join, resolve } from "node:path"
import { fileURLToPath } from "node:url"
import { attempt } from "./ServiceFailed.ts"

export const root = fileURLToPath(new URL("../..", import.meta.url))

const Ways = Schema.Literals(["docker", "native"])

export interface Ports {
  readonly postgres: number
  readonly redis: number
  readonly kafka: number
}

export interface Settings {
  readonly folder: string
  readonly ports: Ports
  /** Asked for; else the machine decides. */
  readonly way: Option.Option<typeof Ways.Type>
}

const portOf = (name: string, port: number) =>
  Config.Port(`DEADMAN_SERVICES_${name}_PORT`).pipe(Config.withDefault(port))

/** What compose.yaml publishes, too. */
export const config: Config.Config<Settings> = Config.all({
  folder: Config.String("DEADMAN_SERVICES_DIR").pipe(
    Config.withDefault(".deadman/services"),
    Config.map((folder) => resolve(root, folder))
  ),
  ports: Config.all({
    postgres: portOf("POSTGRES", 55_432),
    redis: portOf("REDIS", 56_379),
    kafka: portOf("KAFKA", 59_092)
  }),
  way: Config.option(Config.schema(Ways, "DEADMAN_SERVICES"))
})

/** What the last start decided. Stopping and looking go by it, whatever the variables say by then. */
export const Started = Schema.Struct({
  way: Ways,
  ports: Schema.Struct({ postgres: Schema.Int, redis: Schema.Int, kafka: Schema.Int })
})
export type Started = typeof Started.Type

const fileOf = (folder: string) => join(folder, "services.json")
const decode = Schema.decodeUnknownOption(Schema.fromJsonString(Started))

export const started = (folder: string): Effect.Effect<Option.Option<Started>> =>
  Effect.sync(() => existsSync(fileOf(folder)) ? decode(readFileSync(fileOf(folder), "utf8")) : Option.none())

export const remember = (folder: string, started: Started) =>
  attempt(`write to ${folder}`, () => {
    mkdirSync(folder, { recursive: true, mode: 0o755 })
    writeFileSync(`${fileOf(folder)}.tmp`, `${JSON.stringify(started)}\n`)
    renameSync(`${fileOf(folder)}.tmp`, fileOf(folder))
  })
