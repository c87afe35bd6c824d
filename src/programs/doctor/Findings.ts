/**
 * What is wrong with what a look has found, and what to do about it.
 *
 * Facts in, findings out: nothing is asked here. `bad` is what will hurt, or does already; `worth a look` is what may
 * be meant so. Every one of both says what to do.
 */
import type { KafkaFacts, PostgresFacts, RedisFacts, SchemaFacts } from "../../ports/Checkups.ts"
import * as Text from "../cli/Text.ts"
import * as Words from "../process/Words.ts"

export interface Finding {
  readonly level: "good" | "worth a look" | "bad"
  /** Which part: `postgres`, `redis`, `kafka`, `server`, `jobs`, `processes`. */
  readonly about: string
  /** Stable, for programs. */
  readonly code: string
  readonly text: string
  /** What to do; `null` where all is well. */
  readonly advice: string | null
}

const good = (about: string, code: string, text: string): Finding => ({
  level: "good",
  about,
  code,
  text,
  advice: null
})
const look = (about: string, code: string, text: string, advice: string): Finding => ({
  level: "worth a look",
  about,
  code,
  text,
  advice
})
const bad = (about: string, code: string, text: string, advice: string): Finding => ({
  level: "bad",
  about,
  code,
  text,
  advice
})

/** The first and the last major version that were tried. */
const serverMin = 15
const serverMax = 18
const skewWorthMs = 1_000
const skewBadMs = 30_000
/** So many times as old as what is worth a look, a transaction is bad. */
const oldBadTimes = 60
const waitWorthMs = 60_000
/** From here on Postgres warns too. */
const notificationsMax = 0.5
/** Below so many, dead rows are no matter. */
const deadMin = 10_000

const rightsOf = (user: string) =>
  `As the owner: GRANT USAGE ON SCHEMA deadman TO "${user}"; ` +
  `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA deadman TO "${user}".`

const server = (facts: PostgresFacts): ReadonlyArray<Finding> => {
  const major = Math.floor(facts.versionNumber / 10_000)
  const max = Number(facts.settings["max_connections"] ?? 0)
  const findings: Array<Finding> = []
  if (major < serverMin) {
    findings.push(
      bad("postgres", "version", `Postgres ${facts.version} is too old`, `Upgrade it to ${serverMin} or newer.`)
    )
  } else if (major > serverMax) {
    findings.push(look(
      "postgres",
      "version",
      `Postgres ${facts.version} is newer than what was tried (${serverMin} to ${serverMax})`,
      "Try your load before you rely on it."
    ))
  } else {
    findings.push(good("postgres", "version", `Postgres ${facts.version}`))
  }
  if (!facts.keepsSettings) {
    findings.push(bad(
      "postgres",
      "pooler",
      "the settings of a session are not kept: this looks like a pooler in front of Postgres",
      "Connect to Postgres itself."
    ))
  }
  if (facts.isReplica || facts.settings["default_transaction_read_only"] === "on") {
    findings.push(bad("postgres", "read_only", "this Postgres takes no writes", "Name the primary in the address."))
  }
  const off = (name: string, code: string, text: string, advice: string) => {
    if (facts.settings[name] === "off") {
      findings.push(bad("postgres", code, text, advice))
    }
  }
  off("fsync", "fsync", "fsync is off: a crash of the machine loses and breaks data", "Set fsync = on.")
  off("full_page_writes", "full_page_writes", "full_page_writes is off: a crash may break pages", "Set it to on.")
  off(
    "autovacuum",
    "autovacuum",
    "autovacuum is off: dead rows of jobs are never cleaned up, and claims become slow",
    "Set autovacuum = on."
  )
  off(
    "track_counts",
    "track_counts",
    "track_counts is off: autovacuum does not see what to clean up",
    "Set track_counts = on."
  )
  off(
    "synchronous_commit",
    "synchronous_commit",
    "synchronous_commit is off: a crash of Postgres loses jobs that were answered 201",
    "Set synchronous_commit = on, unless that is meant."
  )
  if (max > 0 && facts.connections >= max * 0.9) {
    findings.push(bad(
      "postgres",
      "connections",
      `${facts.connections} of ${max} connections are in use`,
      "Raise max_connections, or run fewer processes: each takes up to 16."
    ))
  } else {
    findings.push(good("postgres", "connections", `${facts.connections} of ${max} connections are in use`))
  }
  if (facts.notifications > notificationsMax) {
    findings.push(bad(
      "postgres",
      "notifications",
      `the queue of notifications is full to ${Math.round(facts.notifications * 100)} %: ` +
        "some session listens and has left a transaction open",
      "End that transaction. While the queue is full jobs go on without wakes, and arrays of jobs with keys are refused."
    ))
  }
  return findings
}

const clock = ({ clockAheadMs, clockExactMs }: PostgresFacts): Finding => {
  const off = Math.max(Math.abs(clockAheadMs) - clockExactMs, 0)
  const text = `the clock of Postgres is ${Text.length(Math.abs(clockAheadMs))} ${
    clockAheadMs >= 0 ? "ahead of" : "behind"
  } this machine's`
  const advice = "Let both follow a time server (NTP). Jobs are due by the clock of Postgres; " +
    "times that you send are by yours."
  return off > skewBadMs
    ? bad("postgres", "clock", text, advice)
    : off > skewWorthMs
    ? look("postgres", "clock", text, advice)
    : good("postgres", "clock", `its clock and this machine's agree within ${off + clockExactMs} ms`)
}

const oldest = ({ oldest }: PostgresFacts, oldMs: number): Finding => {
  if (oldest === null || oldest.ageMs < oldMs) {
    return good("postgres", "oldest_transaction", "no transaction has been open for long")
  }
  const who = oldest.pid === 0 ? oldest.application : `process ${oldest.pid} (${oldest.application || "no name"})`
  const text = `a transaction has been open for ${Text.length(oldest.ageMs)}: ${who}, ${oldest.state}. ` +
    `While it is, no dead row is cleaned up`
  const advice = oldest.pid === 0
    ? `End it: ROLLBACK PREPARED '${oldest.application}'.`
    : `End it, or what holds it: SELECT pg_terminate_backend(${oldest.pid}).`
  return (oldest.ageMs > oldMs * oldBadTimes ? bad : look)("postgres", "oldest_transaction", text, advice)
}

const schemaVersion = (facts: PostgresFacts, known: number): Finding => {
  const found = facts.schemaVersion
  if (facts.missingRights.length > 0) {
    return bad(
      "postgres",
      "rights",
      `${facts.user} may not: ${facts.missingRights.slice(0, 3).join(", ")}${
        facts.missingRights.length > 3 ? `, and ${facts.missingRights.length - 3} more` : ""
      }`,
      rightsOf(facts.user)
    )
  }
  if (found === null) {
    return bad("postgres", "schema", "Deadman's schema is not there", "Run `deadman migrate`, or start a server.")
  }
  if (found < known) {
    return bad(
      "postgres",
      "schema",
      `the schema has version ${found} and this program needs ${known}`,
      "Run `deadman migrate`, or start a process of this version as a role that may."
    )
  }
  return found > known
    ? bad(
      "postgres",
      "schema",
      `the schema has version ${found} and this program knows ${known}`,
      "Use the newer program: an older one does not start on it."
    )
    : good("postgres", "schema", `the schema has version ${found}; ${facts.user} may do what it has to`)
}

const bloat = ({ tables }: SchemaFacts): Finding => {
  const worst = tables.filter(({ dead, live }) => dead > deadMin && dead > live)
    .sort((a, b) => b.dead - a.dead)[0]
  const total = tables.reduce((sum, { bytes }) => sum + bytes, 0)
  return worst === undefined
    ? good("postgres", "bloat", `Deadman's tables hold ${Text.bytes(total)}, dead rows are cleaned up`)
    : look(
      "postgres",
      "bloat",
      `deadman.${worst.name} has ${worst.dead} dead rows beside ${worst.live} (${Text.bytes(worst.bytes)})`,
      `Look for what keeps them (an old transaction, a replication slot), then: VACUUM (ANALYZE) deadman.${worst.name}.`
    )
}

const processes = (facts: SchemaFacts, version: string): ReadonlyArray<Finding> => {
  const { overdueLeases, processes, running, unannounced } = facts
  const findings: Array<Finding> = []
  const versions = [...new Set([version, ...processes.map((process) => process.version)])]
  const waiting = facts.waiting.reduce((sum, { jobs }) => sum + jobs, 0) + running
  if (!processes.some(({ role }) => role === "server")) {
    const advice = "Start one: `deadman server`. It takes jobs in, promotes, rescues and cleans up."
    findings.push((waiting > 0 ? bad : look)("processes", "no_server", "no server is running", advice))
  } else {
    const slots = processes.reduce((sum, process) => sum + process.slots, 0)
    findings.push(good(
      "processes",
      "processes",
      `${Words.counted(processes.length, "process", "processes")} with ${Words.counted(slots, "slot")}`
    ))
  }
  if (versions.length > 1) {
    findings.push(look(
      "processes",
      "versions",
      `different versions are running, this program's among them: ${versions.join(", ")}`,
      "Fine during an upgrade; bring them to one afterwards."
    ))
  }
  const stuck = processes.filter(({ runaways }) => runaways > 0)
  if (stuck.length > 0) {
    findings.push(look(
      "processes",
      "runaways",
      `handlers that did not end when they were told to: ${stuck.map(({ name }) => name).slice(0, 5).join(", ")}`,
      "Let them heed their signal; a restart of these processes frees the slots."
    ))
  }
  if (overdueLeases > 0) {
    findings.push(bad(
      "jobs",
      "overdue_leases",
      `${Words.counted(overdueLeases, "lease")} of workers gone quiet ${
        overdueLeases === 1 ? "waits" : "wait"
      } to be taken back`,
      "Servers do that: is one running, and what does its log say of the reaper?"
    ))
  }
  if (unannounced > 0) {
    findings.push(look(
      "jobs",
      "unannounced",
      `${Words.counted(unannounced, "dead job")} could not be announced yet`,
      "Servers do that: is one running, and does Kafka answer where there is one?"
    ))
  }
  return findings
}

const backlog = (facts: SchemaFacts): ReadonlyArray<Finding> => {
  const handled = new Set(facts.processes.flatMap(({ handlers }) => handlers))
  const findings: Array<Finding> = []
  for (const { jobs, oldestMsAgo, type } of facts.waiting) {
    if (!handled.has(type)) {
      findings.push(bad(
        "jobs",
        "unhandled",
        `${Words.counted(jobs, "job")} of type ${type} ${
          jobs === 1 ? "waits" : "wait"
        }, and no process has a handler for it`,
        "Start a worker whose DEADMAN_HANDLERS has it, or cancel them."
      ))
    } else if (oldestMsAgo !== null && oldestMsAgo > waitWorthMs) {
      findings.push(look(
        "jobs",
        "backlog",
        `${Words.counted(jobs, "job")} of type ${type} ${jobs === 1 ? "waits" : "wait"}, the oldest for ${
          Text.length(oldestMsAgo)
        }`,
        "Run more workers, or more slots (DEADMAN_WORKER_THREADS); or its queue is paused or limited."
      ))
    }
  }
  return findings.length > 0 ? findings : [good("jobs", "backlog", "nothing has been waiting for long")]
}

export const postgres = (
  facts: PostgresFacts,
  ours: { readonly version: string; readonly schema: number; readonly oldMs: number }
): ReadonlyArray<Finding> => [
  ...server(facts),
  schemaVersion(facts, ours.schema),
  clock(facts),
  oldest(facts, ours.oldMs),
  ...(facts.schema === null
    ? []
    : [bloat(facts.schema), ...processes(facts.schema, ours.version), ...backlog(facts.schema)])
]

export const redis = (facts: RedisFacts): ReadonlyArray<Finding> => {
  const findings = [good("redis", "version", `Redis ${facts.version}, ${facts.persistence}, ${facts.role}`)]
  if (Number(facts.version.split(".")[0]) < 6) {
    findings.push(look("redis", "old", `Redis ${facts.version} was never tried`, "Upgrade it to 7 or newer."))
  }
  if (facts.role !== "master") {
    findings.push(bad("redis", "replica", "this Redis is a replica: it takes no writes", "Name the primary."))
  }
  if (facts.evictionPolicy !== "noeviction") {
    findings.push(look(
      "redis",
      "eviction",
      `it may throw keys away when it is full (maxmemory-policy ${facts.evictionPolicy})` +
        (facts.evictedKeys > 0 ? `, and has thrown away ${facts.evictedKeys}` : ""),
      "Set maxmemory-policy noeviction. Nothing is lost either way; rescues and due jobs come later."
    ))
  }
  if (facts.maxMemoryBytes > 0 && facts.usedMemoryBytes > facts.maxMemoryBytes * 0.9) {
    findings.push(bad(
      "redis",
      "memory",
      `${Text.bytes(facts.usedMemoryBytes)} of ${Text.bytes(facts.maxMemoryBytes)} are in use`,
      "Raise maxmemory: full, it refuses leases, and Postgres has to do its work."
    ))
  }
  if (facts.lastSaveFailed) {
    findings.push(look(
      "redis",
      "save",
      "its last write to disk failed",
      "Look at its log and its disk; by default it refuses writes then."
    ))
  }
  return findings
}

const readyTopic = "jobs.ready"

export const kafka = (facts: KafkaFacts): ReadonlyArray<Finding> => {
  const findings = [good("kafka", "brokers", `${Words.counted(facts.brokers, "broker")}`)]
  for (const { leaderless, name, partitions, replicas, underReplicated } of facts.topics) {
    if (partitions === 0) {
      findings.push(
        look("kafka", "topic", `the topic ${name} is not there`, "Start a server or a worker: it creates the topic.")
      )
      continue
    }
    findings.push(
      good(
        "kafka",
        "topic",
        `${name}: ${Words.counted(partitions, "partition")}, ${Words.counted(replicas, "replica")}`
      )
    )
    if (leaderless > 0) {
      findings.push(bad(
        "kafka",
        "leaderless",
        `${Words.counted(leaderless, "partition")} of ${name} without a leader`,
        "Bring back the brokers that hold them; workers find their jobs in Postgres meanwhile."
      ))
    } else if (underReplicated > 0) {
      findings.push(look(
        "kafka",
        "under_replicated",
        `${Words.counted(underReplicated, "partition")} of ${name} with too few replicas in sync`,
        "Look at the brokers."
      ))
    }
    if (name === readyTopic && partitions === 1) {
      findings.push(look(
        "kafka",
        "partitions",
        `${name} has a single partition: one worker at a time gets deliveries`,
        "Give it 6 or more: kafka-topics --alter --topic jobs.ready --partitions 6."
      ))
    }
  }
  return findings
}

/** A service that is named and does not answer. */
export const away = (about: string, message: string, advice: string): Finding =>
  bad(about, "away", `does not answer: ${message}`, advice)

/** A service that answers, and cannot be used as it is configured: no waiting cures it. */
export const refused = (about: string, message: string, advice: string): Finding =>
  bad(about, "refused", `cannot be used: ${message}`, advice)

export const cleartext: Finding = look(
  "kafka",
  "cleartext",
  "the login goes over the network unencrypted",
  "Name a listener that speaks TLS in DEADMAN_KAFKA_BROKERS, and set DEADMAN_KAFKA_SSL=true."
)

export const note = look
export const fine = good
