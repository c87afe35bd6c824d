/** Postgres from the programs that come with npm, on a fixed port and with throwaway data. */
import { Effect, Option, Redacted } from "effect"
import { existsSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as Cluster from "../../src/adapters/embedded/Cluster.ts"
import * as EmbeddedPostgres from "../../src/adapters/embedded/EmbeddedPostgres.ts"
import { type EmbeddedPostgresFailed } from "../../src/adapters/embedded/EmbeddedPostgresFailed.ts"
import * as Postmaster from "../../src/adapters/embedded/Postmaster.ts"
import * as Exchange from "./Exchange.ts"
import * as Ports from "./Ports.ts"
import { type Service } from "./Service.ts"
import { attempt, ServiceFailed } from "./ServiceFailed.ts"

/** What the embedded Postgres says is said to people already. */
export const worded = <A, R>(effect: Effect.Effect<A, EmbeddedPostgresFailed | ServiceFailed, R>) =>
  Effect.mapError(effect, ({ message }) => new ServiceFailed({ message }))

/** A request for TLS: Postgres answers it with one letter. */
const tls = Buffer.from([0, 0, 0, 8, 4, 210, 22, 47])

export const answers = (port: number): Effect.Effect<boolean> =>
  Exchange.ask(port, tls, (said) => ({ yes: said[0] === 0x4e || said[0] === 0x53 })).pipe(
    Effect.map(Option.match({ onNone: () => false, onSome: ({ yes }) => yes }))
  )

export const service = (dataDir: string, port: number): Service => {
  const log = join(dataDir, "postgres.log")
  const open = worded(EmbeddedPostgres.open({ dataDir, settings: { port: String(port) } }))
  const running = Effect.suspend(() =>
    existsSync(dataDir)
      ? Effect.flatMap(open, (cluster) => worded(Postmaster.running(cluster)))
      : Effect.succeedNone
  )
  return {
    name: "postgres",
    prepare: Effect.void,
    up: Effect.gen(function*() {
      const cluster = yield* open
      if (Option.isNone(yield* worded(Postmaster.running(cluster)))) {
        yield* Ports.mustBeFree(port, "DEADMAN_SERVICES_POSTGRES_PORT")
        yield* attempt(`write to ${dataDir}`, () => writeFileSync(join(dataDir, "port"), `${port}\n`))
      }
      yield* worded(Cluster.ensure(cluster))
      const { started } = yield* worded(Postmaster.ensure(cluster))
      return started ? "started" : "already up"
    }),
    down: Effect.gen(function*() {
      if (!existsSync(dataDir)) return false
      const ran = Option.isSome(yield* running)
      yield* worded(Postmaster.stop(yield* open))
      yield* attempt(`delete ${dataDir}`, () => rmSync(dataDir, { recursive: true, force: true }))
      return ran
    }),
    status: Effect.gen(function*() {
      const found = yield* running
      const version = Option.isSome(found) ? (yield* open).binaries.version : "-"
      const pid = Option.map(found, ({ pid }) => pid)
      const yes = Option.isSome(found) && (yield* answers(found.value.port))
      return { state: Option.isNone(found) ? "down" : yes ? "up" : "not answering", version, port, pid, log }
    }),
    variable: Effect.gen(function*() {
      const password = yield* worded(Cluster.password(yield* open))
      return ["DEADMAN_DATABASE_URL", Redacted.value(EmbeddedPostgres.urlOf(port, password))] as const
    })
  }
}
