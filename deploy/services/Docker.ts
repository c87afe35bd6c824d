/**
 * The three servers by compose.yaml, for machines with a container engine.
 *
 * A client may be there without an engine, and then hang: it is asked under a deadline.
 */
import { Effect, Option } from "effect"
import { join } from "node:path"
import * as Kafka from "./Kafka.ts"
import * as Packages from "./Packages.ts"
import * as Redis from "./Redis.ts"
import { type Ports, root } from "./Settings.ts"

const deadline = 3_000

/** The engine's version, if there is one that answers, and a client that knows compose. */
export const engine: Effect.Effect<Option.Option<string>> = Effect.sync(() => {
  const version = Packages.saysOf("docker", ["info", "--format", "{{.ServerVersion}}"], deadline)?.trim() ?? ""
  return version !== "" && Packages.saysOf("docker", ["compose", "version"], deadline) !== undefined
    ? Option.some(version.split("\n")[0] ?? version)
    : Option.none()
})

const compose = (ports: Ports, limit: "15 minutes" | "2 minutes", ...args: ReadonlyArray<string>) =>
  Packages.run("docker", ["compose", "--file", join(root, "deploy", "compose.yaml"), ...args], {
    limit,
    env: {
      DEADMAN_SERVICES_POSTGRES_PORT: String(ports.postgres),
      DEADMAN_SERVICES_REDIS_PORT: String(ports.redis),
      DEADMAN_SERVICES_KAFKA_PORT: String(ports.kafka)
    }
  })

/** Waiting for all of them at once would take the end of the topics' container for a failure. */
export const up = (ports: Ports) =>
  Effect.andThen(
    compose(ports, "15 minutes", "up", "--detach", "--wait", "postgres", "redis", "kafka"),
    compose(ports, "2 minutes", "run", "--rm", "topics")
  )

export const down = (ports: Ports) => compose(ports, "2 minutes", "down", "--volumes", "--timeout", "15")

export const variables = (ports: Ports): ReadonlyArray<readonly [name: string, value: string]> => [
  ["DEADMAN_DATABASE_URL", `postgres://deadman:deadman@127.0.0.1:${ports.postgres}/deadman`],
  ["DEADMAN_REDIS_URL", `redis://127.0.0.1:${ports.redis}`],
  ["DEADMAN_KAFKA_BROKERS", `127.0.0.1:${ports.kafka}`]
]

/** What answers on the ports; pids and memory are the engine's business. */
export const lines = (ports: Ports) =>
  Effect.gen(function*() {
    const redis = yield* Redis.ask(ports.redis)
    const kafka = yield* Kafka.answers(ports.kafka)
    const file = join("deploy", "compose.yaml")
    const containers = Packages.saysOf(
      "docker",
      ["compose", "--file", join(root, file), "ps", "--all", "--format", "table"],
      deadline
    )
    return [
      `redis: ${Option.match(redis, { onNone: () => "down", onSome: ({ version }) => `up, ${version}` })}, ` +
      `port ${ports.redis}`,
      `kafka: ${kafka ? "up" : "down"}, port ${ports.kafka}`,
      containers?.trim() ?? "docker compose ps does not answer",
      `logs: docker compose --file ${file} logs`
    ]
  })
