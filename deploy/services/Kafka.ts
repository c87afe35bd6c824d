/**
 * Apache Kafka in KRaft mode, one broker that is its own controller: jars from Maven Central, settings, topics.
 *
 * The jars are fetched once into the cache of the user, complete or not at all: they get their name by a rename.
 */
import { Effect, Option } from "effect"
import { randomBytes } from "node:crypto"
import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as Daemon from "./Daemon.ts"
import * as Exchange from "./Exchange.ts"
import * as Packages from "./Packages.ts"
import { attempt, ServiceFailed } from "./ServiceFailed.ts"

export const version = "4.4.0"

/** Without a binding for SLF4J the broker logs nothing. */
const artifacts = [
  ["org.apache.kafka", "kafka_2.13", version],
  ["org.apache.kafka", "kafka-tools", version],
  ["org.slf4j", "slf4j-simple", "1.7.36"]
]

const pom = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>deadman</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
${
  artifacts.map(([group, artifact, version]) =>
    `    <dependency><groupId>${group}</groupId><artifactId>${artifact}</artifactId><version>${version}</version></dependency>`
  ).join("\n")
}
  </dependencies>
</project>
`

const copy = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

const jarsOf = () => join(Packages.cache(), `kafka-${version}`)

const javaMajor = (): number => Number(/version "(\d+)/.exec(Packages.saysOf("java", ["-version"]) ?? "")?.[1] ?? 0)

const javaAdvice = "Kafka needs Java 17 or newer on the PATH: install it (Debian: apt-get install " +
  "default-jre-headless; macOS: brew install openjdk)"
const mavenAdvice =
  "Kafka's jars are fetched with Maven, and there is no mvn on the PATH: install it (Debian: apt-get " +
  "install maven; macOS: brew install maven)"

/** What is missing to start a Kafka right now, in words, or none. */
export const missing: Effect.Effect<Option.Option<string>> = Effect.sync(() =>
  javaMajor() < 17
    ? Option.some(javaAdvice)
    : existsSync(jarsOf())
    ? Option.none()
    : Option.some(
      `Kafka's jars have not been fetched into ${jarsOf()} yet: npm run services:up does that` +
        (Packages.saysOf("mvn", ["-v"]) === undefined ? `. ${mavenAdvice}` : "")
    )
)

const fetchJars = Effect.gen(function*() {
  yield* Effect.logInfo(`fetching Apache Kafka ${version} from Maven Central into ${jarsOf()}`)
  const draft = yield* attempt(`write to ${Packages.cache()}`, () => {
    mkdirSync(Packages.cache(), { recursive: true })
    const draft = mkdtempSync(`${jarsOf()}.`)
    writeFileSync(join(draft, "pom.xml"), pom)
    return draft
  })
  yield* Packages.run(
    "mvn",
    // A jar that does not have its checksum is refused, not warned about.
    ["-B", "-q", "-C", copy, `-DoutputDirectory=${join(draft, "jars")}`, "-DincludeScope=runtime"],
    { cwd: draft, limit: "10 minutes" }
  ).pipe(
    Effect.andThen(attempt(`write to ${Packages.cache()}`, () => {
      if (!existsSync(jarsOf())) renameSync(join(draft, "jars"), jarsOf())
    })),
    Effect.ensuring(Effect.sync(() => rmSync(draft, { recursive: true, force: true })))
  )
})

/** The folder of the jars, with Java, Maven and the jars brought here if need be and possible. */
export const jars: Effect.Effect<string, ServiceFailed> = Effect.gen(function*() {
  const noJava = javaMajor() < 17
  const noMaven = !existsSync(jarsOf()) && Packages.saysOf("mvn", ["-v"]) === undefined
  if (noJava || noMaven) {
    if (!Packages.canInstall()) return yield* new ServiceFailed({ message: noJava ? javaAdvice : mavenAdvice })
    yield* Packages.install([...(noJava ? ["default-jre-headless"] : []), ...(noMaven ? ["maven"] : [])])
    if (javaMajor() < 17) return yield* new ServiceFailed({ message: javaAdvice })
  }
  if (!existsSync(jarsOf())) yield* fetchJars
  return jarsOf()
})

export interface Settings {
  readonly port: number
  /** Only the broker itself talks to it. */
  readonly controllerPort: number
  /** On top of ours, as in server.properties. */
  readonly settings?: Readonly<Record<string, string>> | undefined
  /** Compiled once and never again: it starts with a third less work, and is slower when it has much to do. */
  readonly quick?: boolean | undefined
}

const propertiesOf = (data: string, { controllerPort, port, settings }: Settings) =>
  Object.entries({
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": `1@127.0.0.1:${controllerPort}`,
    "listeners": `PLAINTEXT://127.0.0.1:${port},CONTROLLER://127.0.0.1:${controllerPort}`,
    "advertised.listeners": `PLAINTEXT://127.0.0.1:${port}`,
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "log.dirs": data,
    // Topics are made on purpose: a misspelt one is an error, not a topic of one partition.
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    // After `kill -9` the controller waits out the dead broker's registration: 9 s by default.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    ...settings
  }).map(([name, value]) => `${name}=${value}\n`).join("")

const propertiesFile = (place: Daemon.Place) => join(place.folder, "server.properties")

const java = (jars: string, quick: boolean, ...args: ReadonlyArray<string>): Daemon.Command => ({
  program: "java",
  args: [
    // Without these the broker takes the time and the memory of a server that has the machine to itself.
    "-Xmx512m",
    "-XX:+UseSerialGC",
    ...(quick ? ["-XX:TieredStopAtLevel=1"] : []),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-cp",
    join(jars, "*"),
    ...args
  ]
})

/**
 * Gives `place` empty data, if it has none. It appears by a rename, because a tool whose starter was killed goes on:
 * what it makes then is a draft that nobody takes for data.
 */
const format = Effect.fn("Kafka.format")(function*(place: Daemon.Place, jars: string, settings: Settings) {
  const data = join(place.folder, "data")
  if (existsSync(data)) return
  const draft = yield* attempt(`write to ${place.folder}`, () => {
    for (const name of readdirSync(place.folder)) {
      if (name.startsWith("draft.")) rmSync(join(place.folder, name), { recursive: true, force: true })
    }
    const draft = mkdtempSync(join(place.folder, "draft."))
    writeFileSync(join(draft, "server.properties"), propertiesOf(join(draft, "data"), settings))
    return draft
  })
  const { args, program } = java(
    jars,
    true,
    "kafka.tools.StorageTool",
    "format",
    "-t",
    // It may not begin with a dash, or it is taken for an option.
    `A${randomBytes(16).toString("base64url").slice(1)}`,
    "-c",
    join(draft, "server.properties")
  )
  yield* Packages.run(program, args, { cwd: place.folder, limit: "2 minutes" })
  yield* attempt(`write to ${place.folder}`, () => {
    renameSync(join(draft, "data"), data)
    rmSync(draft, { recursive: true, force: true })
  })
})

/** ApiVersions, version 0, correlation id 7, no client id. */
const apiVersions = Buffer.from([0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 0xff, 0xff])

/** Whether a broker on this port answers what it can do, within a second. */
export const answers = (port: number): Effect.Effect<boolean> =>
  Exchange.ask(
    port,
    apiVersions,
    (said) => said.length < 10 ? undefined : { yes: said.readInt32BE(4) === 7 && said.readInt16BE(8) === 0 }
  ).pipe(Effect.map(Option.match({ onNone: () => false, onSome: ({ yes }) => yes })))

/** Starts it in `place`, whose folder exists and holds no live broker, and waits until it answers. */
export const start = Effect.fn("Kafka.start")(function*(place: Daemon.Place, jars: string, settings: Settings) {
  yield* attempt(
    `write to ${place.folder}`,
    () => writeFileSync(propertiesFile(place), propertiesOf(join(place.folder, "data"), settings), { mode: 0o600 })
  )
  yield* format(place, jars, settings)
  yield* Daemon.launch(place, java(jars, settings.quick ?? false, "kafka.Kafka", propertiesFile(place)))
  yield* Daemon.awaitReady(place, answers(settings.port), "2 minutes")
})
