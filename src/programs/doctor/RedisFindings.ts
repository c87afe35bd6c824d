/** What is wrong with a Redis, and what to do about it. */
import type { RedisFacts } from "../../ports/Checkups.ts"
import * as Text from "../cli/Text.ts"
import { bad, type Finding, good, look } from "./Finding.ts"

export const of = (facts: RedisFacts): ReadonlyArray<Finding> => {
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
