/** What is said of facts that no test can bring about on a machine that others use too. */
import { assert, it } from "@effect/vitest"
import type { KafkaFacts, PostgresFacts, RedisFacts, SchemaFacts } from "../../../src/ports/Checkups.ts"
import type { Finding } from "../../../src/programs/doctor/Finding.ts"
import * as KafkaFindings from "../../../src/programs/doctor/KafkaFindings.ts"
import * as PostgresFindings from "../../../src/programs/doctor/PostgresFindings.ts"
import * as RedisFindings from "../../../src/programs/doctor/RedisFindings.ts"

const schema: SchemaFacts = {
  tables: [{ name: "job", live: 100, dead: 50, bytes: 8_192 }],
  processes: [
    { name: "s-1", role: "server", version: "1.0.0", handlers: ["mail"], slots: 4, runaways: 0, seenMsAgo: 100 }
  ],
  waiting: [{ type: "mail", jobs: 3, oldestMsAgo: 20 }],
  running: 0,
  overdueLeases: 0,
  unannounced: 0
}

const well: PostgresFacts = {
  version: "18.1",
  versionNumber: 180_001,
  settings: { max_connections: "100", fsync: "on", autovacuum: "on", synchronous_commit: "on" },
  isReplica: false,
  keepsSettings: true,
  isOpen: false,
  user: "app",
  connections: 12,
  notifications: 0.01,
  schemaVersion: 3,
  missingRights: [],
  clockAheadMs: 4,
  clockExactMs: 5,
  oldest: null,
  replicas: [],
  unfrozen: 180_000_000,
  schema
}

const ours = { version: "1.0.0", schema: 3, oldMs: 60_000 }

/** `code: level` of whatever is not well. */
const wrong = (findings: ReadonlyArray<Finding>): ReadonlyArray<string> =>
  findings.filter(({ level }) => level !== "good").map(({ code, level }) => `${code}: ${level}`)

const postgres = (change: Partial<PostgresFacts>) => wrong(PostgresFindings.of({ ...well, ...change }, ours))
const inSchema = (change: Partial<SchemaFacts>) => postgres({ schema: { ...schema, ...change } })

it("finds nothing where all is well, and advises on all that is not", () => {
  assert.deepStrictEqual(postgres({}), [])
  const all = [
    ...PostgresFindings.of({ ...well, versionNumber: 140_000, oldest: null }, ours),
    ...RedisFindings.of({ ...redis, role: "slave", evictionPolicy: "allkeys-lru" })
  ]
  for (const { advice, level } of all) {
    assert.strictEqual(advice === null, level === "good")
  }
})

it("judges the server", () => {
  assert.deepStrictEqual(postgres({ versionNumber: 140_005 }), ["version: bad"])
  assert.deepStrictEqual(postgres({ versionNumber: 140_005, schemaVersion: null }), ["version: bad"])
  assert.deepStrictEqual(postgres({ versionNumber: 190_000 }), ["version: worth a look"])
  assert.deepStrictEqual(postgres({ keepsSettings: false }), ["pooler: bad"])
  assert.deepStrictEqual(postgres({ isReplica: true }), ["read_only: bad"])
  assert.deepStrictEqual(postgres({ isOpen: true }), ["cleartext: worth a look"])
  assert.deepStrictEqual(postgres({ settings: { ...well.settings, server_encoding: "LATIN1" } }), ["encoding: bad"])
  assert.deepStrictEqual(postgres({ connections: 95 }), ["connections: bad"])
  assert.deepStrictEqual(postgres({ notifications: 0.6 }), ["notifications: bad"])
  assert.deepStrictEqual(postgres({ settings: { ...well.settings, fsync: "off", autovacuum: "off" } }), [
    "fsync: bad",
    "autovacuum: bad"
  ])
})

it("judges clocks by what is known of them", () => {
  assert.deepStrictEqual(postgres({ clockAheadMs: -2_000 }), ["clock: worth a look"])
  assert.deepStrictEqual(postgres({ clockAheadMs: 120_000 }), ["clock: bad"])
  // A slow way there is no wrong clock.
  assert.deepStrictEqual(postgres({ clockAheadMs: 2_000, clockExactMs: 1_500 }), [])
})

it("judges the schema before what is in it", () => {
  const none = { schema: null }
  assert.deepStrictEqual(postgres({ ...none, schemaVersion: null }), ["schema: bad"])
  assert.deepStrictEqual(postgres({ ...none, schemaVersion: 2 }), ["schema: bad"])
  assert.deepStrictEqual(postgres({ ...none, schemaVersion: 4 }), ["schema: bad"])
  assert.deepStrictEqual(postgres({ ...none, missingRights: ["INSERT on deadman.job"] }), ["rights: bad"])
})

it("judges transactions by their age", () => {
  const old = (ageMs: number) =>
    postgres({ oldest: { ageMs, pid: 7, application: "psql", state: "idle in transaction" } })
  assert.deepStrictEqual(old(59_000), [])
  assert.deepStrictEqual(old(61_000), ["oldest_transaction: worth a look"])
  assert.deepStrictEqual(old(3_700_000), ["oldest_transaction: bad"])
})

it("judges what keeps dead rows and the log without a transaction", () => {
  const slot = { name: "old_one", isSlot: true, active: false, transactions: 10, logBytes: 4_096 }
  const kept = (change: Partial<typeof slot>) => postgres({ replicas: [{ ...slot, ...change }] })
  assert.deepStrictEqual(kept({}), [])
  assert.deepStrictEqual(kept({ transactions: 2_000_000 }), ["replication: worth a look"])
  assert.deepStrictEqual(kept({ transactions: 200_000_000 }), ["replication: bad"])
  assert.deepStrictEqual(kept({ logBytes: 2e9 }), ["replication: worth a look"])
  assert.deepStrictEqual(kept({ logBytes: 40e9 }), ["replication: bad"])
  assert.deepStrictEqual(kept({ active: true, logBytes: 2e9 }), [])
  assert.deepStrictEqual(kept({ isSlot: false, active: true, transactions: 2_000_000, logBytes: 0 }), [
    "replication: worth a look"
  ])
  const finding = PostgresFindings.of(
    { ...well, replicas: [{ ...slot, transactions: 2_000_000, logBytes: 2e9 }] },
    ours
  ).find(({ code }) => code === "replication")
  assert.match(finding?.text ?? "", /slot old_one, which nobody uses, keeps dead rows .* and 1\.9 GiB of the log/)
})

it("judges how far the oldest row is from being lost to the counter of transactions", () => {
  assert.deepStrictEqual(postgres({ unfrozen: 490_000_000 }), [])
  assert.deepStrictEqual(postgres({ unfrozen: 600_000_000 }), ["wraparound: worth a look"])
  assert.deepStrictEqual(postgres({ unfrozen: 1_400_000_000 }), ["wraparound: bad"])
})

it("judges processes, backlog and leases", () => {
  const [server] = schema.processes
  assert.deepStrictEqual(inSchema({ processes: [], waiting: [] }), ["no_server: worth a look"])
  assert.deepStrictEqual(inSchema({ processes: [] }), ["no_server: bad", "unhandled: bad"])
  assert.deepStrictEqual(inSchema({ processes: [server!, { ...server!, version: "0.9.0" }] }), [
    "versions: worth a look"
  ])
  assert.deepStrictEqual(inSchema({ processes: [{ ...server!, runaways: 2 }] }), ["runaways: worth a look"])
  assert.deepStrictEqual(inSchema({ waiting: [{ type: "mail", jobs: 3, oldestMsAgo: 90_000 }] }), [
    "backlog: worth a look"
  ])
  assert.deepStrictEqual(inSchema({ waiting: [{ type: "fax", jobs: 1, oldestMsAgo: null }] }), ["unhandled: bad"])
  assert.deepStrictEqual(inSchema({ overdueLeases: 2, unannounced: 1 }), [
    "overdue_leases: bad",
    "unannounced: worth a look"
  ])
  assert.deepStrictEqual(inSchema({ tables: [{ name: "job", live: 5, dead: 20_000, bytes: 1 }] }), [
    "bloat: worth a look"
  ])
})

const redis: RedisFacts = {
  version: "7.0.15",
  role: "master",
  evictionPolicy: "noeviction",
  maxMemoryBytes: 0,
  usedMemoryBytes: 1_000,
  evictedKeys: 0,
  persistence: "snapshots, or none",
  lastSaveFailed: false,
  roundTripMs: 1
}

it("judges Redis", () => {
  assert.deepStrictEqual(wrong(RedisFindings.of(redis)), [])
  assert.deepStrictEqual(wrong(RedisFindings.of({ ...redis, role: "slave" })), ["replica: bad"])
  assert.deepStrictEqual(wrong(RedisFindings.of({ ...redis, evictionPolicy: "allkeys-lru" })), [
    "eviction: worth a look"
  ])
  assert.deepStrictEqual(wrong(RedisFindings.of({ ...redis, maxMemoryBytes: 1_050 })), ["memory: bad"])
  assert.deepStrictEqual(wrong(RedisFindings.of({ ...redis, version: "5.0.1", lastSaveFailed: true })), [
    "old: worth a look",
    "save: worth a look"
  ])
})

it("judges Kafka", () => {
  const topic = { name: "jobs.ready", partitions: 6, replicas: 3, leaderless: 0, underReplicated: 0 }
  const kafka = (change: Partial<KafkaFacts["topics"][number]>) =>
    wrong(KafkaFindings.of({ brokers: 3, group: "deadman", installations: 1, topics: [{ ...topic, ...change }] }))
  assert.deepStrictEqual(kafka({}), [])
  assert.deepStrictEqual(kafka({ name: "billing.jobs.ready", partitions: 1 }), ["partitions: worth a look"])
  assert.deepStrictEqual(wrong(KafkaFindings.of({ brokers: 3, group: "deadman", installations: 2, topics: [] })), [
    "shared: bad"
  ])
  assert.deepStrictEqual(kafka({ partitions: 0 }), ["topic: worth a look"])
  assert.deepStrictEqual(kafka({ partitions: 1 }), ["partitions: worth a look"])
  assert.deepStrictEqual(kafka({ leaderless: 1, underReplicated: 1 }), ["leaderless: bad"])
  assert.deepStrictEqual(kafka({ underReplicated: 2 }), ["under_replicated: worth a look"])
})
