/** What is wrong with a Postgres and with Deadman's schema in it, and what to do about it. */
import type { PostgresFacts, SchemaFacts } from "../../ports/Checkups.ts"
import * as Text from "../cli/Text.ts"
import { bad, type Finding, good, look } from "./Finding.ts"
import * as JobFindings from "./JobFindings.ts"

/** The first and the last major version that were tried. */
const serverMin = 15
const serverMax = 18
/** By which two clocks may differ. */
const skewWorthMs = 1_000
const skewBadMs = 30_000
/** So many times as old as what is worth a look, a transaction is bad. */
const oldBadTimes = 60
/** Transactions: of a busy queue, of minutes and of days. */
const heldWorth = 1_000_000
const heldBad = 100_000_000
const logWorthBytes = 1_073_741_824
const logBadBytes = 16 * logWorthBytes
/** Above what autovacuum lets it come to (`autovacuum_freeze_max_age`, 200 million) where nothing is in its way. */
const unfrozenWorth = 500_000_000
const unfrozenBad = 1_000_000_000
/** From here on Postgres warns too. */
const notificationsMax = 0.5
/** Below so many, dead rows are no matter. */
const deadMin = 10_000

const rightsOf = (user: string) =>
  `As the owner: GRANT USAGE ON SCHEMA deadman TO "${user}"; ` +
  `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA deadman TO "${user}".`

const majorOf = ({ versionNumber }: PostgresFacts): number => Math.floor(versionNumber / 10_000)

const server = (facts: PostgresFacts): ReadonlyArray<Finding> => {
  const major = majorOf(facts)
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
  if (facts.isOpen) {
    findings.push(look(
      "postgres",
      "cleartext",
      "the connection is not encrypted: who is in between reads jobs, and could change them",
      "Add sslmode=verify-full to DEADMAN_DATABASE_URL, and sslrootcert=FILE if its authority is your own."
    ))
  }
  const encoding = facts.settings["server_encoding"] ?? "UTF8"
  if (encoding !== "UTF8") {
    findings.push(bad(
      "postgres",
      "encoding",
      `the encoding of the database is ${encoding}: jobs with other characters are refused, and results lost`,
      "Move to a database WITH ENCODING 'UTF8', by pg_dump and pg_restore."
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
      "End that transaction. While the queue is full jobs go on without wakes, and start later."
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

/** What keeps dead rows, or the log, without a transaction of its own. */
const replicas = (facts: PostgresFacts): ReadonlyArray<Finding> =>
  facts.replicas.flatMap(({ active, isSlot, logBytes, name, transactions }) => {
    // Who reads from it is behind by something at any time.
    const idleBytes = active ? 0 : logBytes
    const keeps = [
      ...(transactions > heldWorth ? [`dead rows of the last ${transactions} transactions`] : []),
      ...(idleBytes > logWorthBytes ? [`${Text.bytes(logBytes)} of the log`] : [])
    ]
    return keeps.length === 0 ? [] : [
      (transactions > heldBad || idleBytes > logBadBytes ? bad : look)(
        "postgres",
        "replication",
        `${
          isSlot ? `the replication slot ${name}${active ? "" : ", which nobody uses,"}` : `the standby ${name}`
        } keeps ${keeps.join(" and ")}`,
        isSlot
          ? `Bring back who reads from it, or drop it: SELECT pg_drop_replication_slot('${name}').`
          : "End what reads there for so long, or set hot_standby_feedback = off on it."
      )
    ]
  })

/** At some two thousand million Postgres takes no more writes. */
const wraparound = ({ unfrozen }: PostgresFacts): ReadonlyArray<Finding> => {
  const text = `rows of ${unfrozen} transactions ago are not frozen yet: at 2,100 million Postgres takes no more writes`
  const advice =
    "Let autovacuum come through: end what holds it back (old and prepared transactions, replication slots), " +
    "and if it does not keep up, run VACUUM (FREEZE) in the database where age(datfrozenxid) is highest."
  return unfrozen > unfrozenBad
    ? [bad("postgres", "wraparound", text, advice)]
    : unfrozen > unfrozenWorth
    ? [look("postgres", "wraparound", text, advice)]
    : []
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

/** `ours`: this program's version, the schema it needs, and from which age on a transaction is worth a look. */
export const of = (
  facts: PostgresFacts,
  ours: { readonly version: string; readonly schema: number; readonly oldMs: number }
): ReadonlyArray<Finding> => [
  ...server(facts),
  // One that is too old is not to be migrated, as the advice would be.
  ...(facts.schemaVersion === null && majorOf(facts) < serverMin ? [] : [schemaVersion(facts, ours.schema)]),
  clock(facts),
  oldest(facts, ours.oldMs),
  ...replicas(facts),
  ...wraparound(facts),
  ...(facts.schema === null ? [] : [bloat(facts.schema), ...JobFindings.of(facts.schema, ours.version)])
]

/** Over TLS, and nobody looks at the certificate: what `sslmode=require` is. */
export const unverified: Finding = look(
  "postgres",
  "unverified",
  "the connection is encrypted, but nobody checks who answers (sslmode=require)",
  "Write sslmode=verify-full, and sslrootcert=FILE with the certificate of its authority unless it is a well-known one."
)
