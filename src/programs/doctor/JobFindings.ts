/** What is wrong with the processes and the jobs that Deadman's tables tell of, and what to do about it. */
import type { SchemaFacts } from "../../ports/Checkups.ts"
import * as Text from "../cli/Text.ts"
import * as Words from "../process/Words.ts"
import { bad, type Finding, good, look } from "./Finding.ts"

/** From here on a wait is worth a look. */
const waitWorthMs = 60_000

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

export const of = (facts: SchemaFacts, version: string): ReadonlyArray<Finding> => [
  ...processes(facts, version),
  ...backlog(facts)
]
