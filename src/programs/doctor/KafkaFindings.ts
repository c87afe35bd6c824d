/** What is wrong with a Kafka, and what to do about it. */
import type { KafkaFacts } from "../../ports/Checkups.ts"
import * as Words from "../process/Words.ts"
import { bad, type Finding, good, look } from "./Finding.ts"

/** With whatever this installation has put in front of it. */
const readyTopic = /jobs\.ready$/

export const of = (facts: KafkaFacts): ReadonlyArray<Finding> => {
  const findings = [good("kafka", "brokers", `${Words.counted(facts.brokers, "broker")}`)]
  if (facts.installations > 1) {
    findings.push(bad(
      "kafka",
      "shared",
      `${facts.installations} installations of Deadman are in the group ${facts.group}: each drops what the others publish, ` +
        "and jobs start a second late",
      "Give each of them a DEADMAN_KAFKA_PREFIX of its own; or, after a move to another database, restart the processes " +
        "from before it."
    ))
  }
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
    if (readyTopic.test(name) && partitions === 1) {
      findings.push(look(
        "kafka",
        "partitions",
        `${name} has a single partition: one worker at a time gets deliveries`,
        "Give it 6 or more: kafka-topics --alter --topic " + name + " --partitions 6."
      ))
    }
  }
  return findings
}

export const cleartext: Finding = look(
  "kafka",
  "cleartext",
  "the login goes over the network unencrypted",
  "Name a listener that speaks TLS in DEADMAN_KAFKA_BROKERS, and set DEADMAN_KAFKA_SSL=true."
)
