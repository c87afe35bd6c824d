/**
 * deploy/compose.yaml and deploy/Dockerfile promise what the rest relies on.
 *
 * No engine runs them here: this is a reading, not a run.
 */
import { assert, describe, it } from "@effect/vitest"
import { readFileSync } from "node:fs"
import { parse } from "yaml"
import * as Topics from "../../deploy/services/Topics.ts"

interface Container {
  readonly image?: string
  readonly command?: ReadonlyArray<string>
  readonly environment?: Readonly<Record<string, string | null>>
  readonly ports?: ReadonlyArray<string>
  readonly healthcheck?: { readonly test: ReadonlyArray<string> }
  readonly depends_on?: Readonly<Record<string, { readonly condition: string }>>
  readonly volumes?: ReadonlyArray<string>
  readonly stop_grace_period?: string
  readonly profiles?: ReadonlyArray<string>
}

interface Compose {
  readonly services: Readonly<Record<string, Container>>
  readonly volumes: Readonly<Record<string, unknown>>
}

const { services, volumes }: Compose = parse(readFileSync("deploy/compose.yaml", "utf8"), { merge: true })
const dockerfile = readFileSync("deploy/Dockerfile", "utf8")

describe("compose.yaml", () => {
  it.each([
    ["postgres", "127.0.0.1:${DEADMAN_SERVICES_POSTGRES_PORT:-55432}:5432"],
    ["redis", "127.0.0.1:${DEADMAN_SERVICES_REDIS_PORT:-56379}:6379"],
    ["kafka", "127.0.0.1:${DEADMAN_SERVICES_KAFKA_PORT:-59092}:59092"]
  ])("publishes %s to this machine only, on its port, with a health check and throwaway data", (name, port) => {
    const container = services[name]
    assert.deepStrictEqual(container?.ports, [port])
    assert.isNotEmpty(container?.healthcheck?.test)
    const [volume] = (container?.volumes?.[0] ?? "").split(":")
    assert.include(Object.keys(volumes), volume)
    assert.match(container?.image ?? "", /:\d+\.\d+(\.\d+)?$/, "pin the image")
  })

  it("gives Postgres 300 connections", () => {
    assert.include(services["postgres"]?.command ?? [], "max_connections=300")
  })

  it("tells containers and the host different names of Kafka", () => {
    const kafka = services["kafka"]?.environment ?? {}
    const listeners = (kafka["KAFKA_LISTENERS"] ?? "").split(",")
    const advertised = (kafka["KAFKA_ADVERTISED_LISTENERS"] ?? "").split(",")
    assert.include(listeners, "HOST://:59092")
    assert.include(advertised, "HOST://127.0.0.1:${DEADMAN_SERVICES_KAFKA_PORT:-59092}")
    assert.include(advertised, "INTERNAL://kafka:9092")
    assert.strictEqual(kafka["KAFKA_PROCESS_ROLES"], "broker,controller")
    assert.strictEqual(kafka["KAFKA_AUTO_CREATE_TOPICS_ENABLE"], "false")
    assert.strictEqual(kafka["KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR"], "1")
  })

  it("creates the topics of Deadman once Kafka is healthy", () => {
    const { command, depends_on: needs } = services["topics"] ?? {}
    assert.strictEqual(needs?.["kafka"]?.condition, "service_healthy")
    const created = [...(command?.[0] ?? "").matchAll(/^create (\S+) (\d+)$/gm)]
      .map(([, topic, partitions]) => ({ topic, numPartitions: Number(partitions) }))
    assert.deepStrictEqual(created, [...Topics.topics])
  })

  it.each(["server", "worker"])("starts %s only on demand, on the three, with time to drain", (name) => {
    const container = services[name]
    assert.deepStrictEqual(container?.profiles, ["app"])
    assert.strictEqual(container?.depends_on?.["topics"]?.condition, "service_completed_successfully")
    assert.strictEqual(container?.environment?.["DEADMAN_KAFKA_BROKERS"], "kafka:9092")
    assert.isAbove(Number.parseInt(container?.stop_grace_period ?? "", 10), 10)
  })
})

describe("Dockerfile", () => {
  const stages = dockerfile.split(/^FROM /m).slice(1)
  const last = stages.at(-1) ?? ""

  it("installs only what the programs need, without scripts", () => {
    assert.match(stages[1] ?? "", /^RUN npm install --omit=dev --ignore-scripts/m)
    assert.notInclude(last.replace(/#.*$/gm, ""), "npm")
  })

  it("runs node as the first process, as an ordinary user, with a health check", () => {
    assert.match(last, /^USER node$/m)
    const command = /^CMD (\[.*\])$/m.exec(last)?.[1] ?? "[]"
    assert.deepStrictEqual(JSON.parse(command), ["node", "dist/server.js"])
    const check: ReadonlyArray<string> = JSON.parse(/HEALTHCHECK[^[]*(\[.*\])$/m.exec(last)?.[1] ?? "[]")
    assert.strictEqual(check[0], "node")
    // It is a program: at least it has to be one for the parser.
    assert.doesNotThrow(() => new Function(check[2] ?? "throw"))
  })
})
