/**
 * What a look at the services finds, for people: facts as they are, without a judgement.
 *
 * Each technology has a `Checkup` of its own that gathers them; `programs/doctor` says what is wrong with them.
 */

/** A table of ours, by the statistics of the server. */
export interface TableFacts {
  readonly name: string
  readonly live: number
  readonly dead: number
  readonly bytes: number
}

export interface OldTransaction {
  readonly ageMs: number
  readonly pid: number
  readonly application: string
  /** `idle in transaction` and the like, or a prepared transaction. */
  readonly state: string
}

/** A replication slot, or a standby that says which rows it still reads. */
export interface ReplicaFacts {
  readonly name: string
  readonly isSlot: boolean
  /** Of a slot: whether somebody uses it. */
  readonly active: boolean
  /** How many transactions ago the oldest row version was deleted that it keeps from being cleaned up. */
  readonly transactions: number
  /** Of a slot: the log that is kept for it. */
  readonly logBytes: number
}

export interface ProcessFacts {
  readonly name: string
  readonly role: string
  readonly version: string
  readonly handlers: ReadonlyArray<string>
  readonly slots: number
  readonly runaways: number
  readonly seenMsAgo: number
}

export interface WaitingType {
  readonly type: string
  readonly jobs: number
  /** Since when the oldest of those that may start now has been allowed to; `null` if none may. */
  readonly oldestMsAgo: number | null
}

/** What is known of the schema: only where it is there and this program's. */
export interface SchemaFacts {
  readonly tables: ReadonlyArray<TableFacts>
  readonly processes: ReadonlyArray<ProcessFacts>
  readonly waiting: ReadonlyArray<WaitingType>
  readonly running: number
  /** Leases that nobody has renewed for three of their lengths: a reaper would have taken them. */
  readonly overdueLeases: number
  /** Dead jobs whose notice has been due for a minute. */
  readonly unannounced: number
}

export interface PostgresFacts {
  readonly version: string
  /** 180001 and the like. */
  readonly versionNumber: number
  readonly settings: Readonly<Record<string, string>>
  readonly isReplica: boolean
  readonly keepsSettings: boolean
  /** Whether what is said goes unencrypted, and further than a network of one's own. */
  readonly isOpen: boolean
  readonly user: string
  readonly connections: number
  /** How full the server's queue of notifications is, from 0 to 1. */
  readonly notifications: number
  /** `null` where there is none yet. */
  readonly schemaVersion: number | null
  readonly missingRights: ReadonlyArray<string>
  /** How much the clock of Postgres is ahead of this machine's, and how exactly that is known. */
  readonly clockAheadMs: number
  readonly clockExactMs: number
  readonly oldest: OldTransaction | null
  readonly replicas: ReadonlyArray<ReplicaFacts>
  /** Transactions since the oldest row was frozen, of the database where that is longest ago; and the same of multixacts. */
  readonly unfrozen: number
  readonly schema: SchemaFacts | null
}

export interface RedisFacts {
  readonly version: string
  readonly role: string
  readonly evictionPolicy: string
  readonly maxMemoryBytes: number
  readonly usedMemoryBytes: number
  readonly evictedKeys: number
  readonly persistence: string
  readonly lastSaveFailed: boolean
  readonly roundTripMs: number
}

export interface TopicFacts {
  readonly name: string
  /** 0 where the topic is not there. */
  readonly partitions: number
  readonly replicas: number
  readonly leaderless: number
  readonly underReplicated: number
}

export interface KafkaFacts {
  readonly brokers: number
  readonly group: string
  /** Installations of Deadman in the group: one, or none at present. */
  readonly installations: number
  readonly topics: ReadonlyArray<TopicFacts>
}
