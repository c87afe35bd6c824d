/** What a run measures: groups of rows, and how much each system is given to do. */

/** River comes last: it is left out where no Go can build it. */
const all = ["deadman", "graphile-worker", "pg-boss", "bullmq", "river"]
const forNode = all.filter((system) => system !== "river")
const onPostgres = forNode.filter((system) => system !== "bullmq")
const scaleProfile = ["deadman-scale", "deadman"]
const quick = (system) => system.startsWith("deadman") || system === "bullmq"

/**
 * A mode is `default`; `tuned`, with the best settings found for a drain; `latency`, with the best for pick-up; or
 * `notified`: `latency` for those whose defaults poll or wait, `default` for the others. Deadman has one for all.
 *
 * `jobs` may differ between systems, since a rate is a rate and nobody wants to wait.
 */
const each = (mode, options, systems = all) => systems.map((system) => ({ system, mode, options: options(system) }))

export const groupsOf = ({ idleSeconds, only, rounds, seconds, size, without }) => {
  const scaled = (jobs) => Math.max(200, Math.round(jobs * size))
  const shown = (jobs) => scaled(jobs).toLocaleString("en-GB")
  const jobs = (count) => `jobs=${scaled(count)}`
  const group = (suite, title, scenario, all, more = {}) => {
    const rows = all.filter(({ system }) => !without.includes(system))
    return { suite, title, scenario, rows, rounds, ...more }
  }
  const pickUp = (suite, title, rows, more = {}) =>
    group(suite, title, "pick-up", rows, { ratios: ["p50 ms", "p99 ms"], ...more })
  const paced = (rate, ...more) => [`rate=${rate}`, `seconds=${seconds}`, ...more]

  return [
    ...[64, 16, 1].map((width) =>
      group(
        "submit",
        `Single submits, ${width} concurrent`,
        "submit",
        each("default", (system) => [`width=${width}`, jobs(width === 1 ? 2_000 : quick(system) ? 40_000 : 5_000)])
      )
    ),
    group("submit", "Bulk, 1,000 at a time", "submit", each("default", () => ["bulk=1000", jobs(50_000)])),
    group(
      "drain",
      `Drain of ${shown(100_000)} jobs, never ANALYZEd; the peers at their best settings`,
      "drain",
      each("tuned", () => [jobs(100_000)])
    ),
    group(
      "drain-default",
      "Drain, everybody at default settings",
      "drain",
      each("default", (system) =>
        // It takes one job every two seconds.
        system === "pg-boss" ? ["jobs=1000", "cap=6"] : [jobs({ deadman: 100_000, bullmq: 15_000 }[system] ?? 5_000)])
    ),
    group(
      "drain-2",
      `Drain of ${shown(100_000)} jobs by 2 processes; the peers at their best settings`,
      "drain",
      each("tuned", () => [jobs(100_000), "processes=2"])
    ),
    pickUp("pick-up", "Pick-up at 50/s; pg-boss with NOTIFY, River tuned", each("notified", () => paced(50))),
    // Its p99 is thirty jobs of a run, most of them of the same few moments, and what those are is the machine's luck.
    pickUp(
      "pick-up",
      `Pick-up at 500/s; the peers tuned, pg-boss with NOTIFY; ${3 * rounds} rounds`,
      each("latency", () => paced(500)),
      { rounds: 3 * rounds }
    ),
    pickUp(
      "pick-up-future",
      `Pick-up at 50/s beside ${shown(1_000_000)} far-future jobs`,
      each("notified", () => paced(50, `future=${scaled(1_000_000)}`), onPostgres),
      { rounds: 1 }
    ),
    // The first second of a process, and some more.
    ...[40_000, 150_000].map((count) =>
      group(
        "scale",
        `Scale profile: single submits, 64 concurrent, ${shown(count)} by a new process`,
        "submit",
        each("default", () => [jobs(count)], scaleProfile)
      )
    ),
    group(
      "scale",
      `Scale profile: drain of a full topic of ${shown(60_000)}, from the first job; BullMQ tuned`,
      "drain",
      each("tuned", () => [jobs(60_000), "from=first"], ["deadman-scale", "bullmq", "deadman"])
    ),
    group(
      "scale",
      "Scale profile: end to end, 64 submitters and one worker; BullMQ tuned",
      "end-to-end",
      each(
        "tuned",
        (system) => [jobs(system === "bullmq-postgres" ? 3_000 : 25_000)],
        ["deadman-scale", "bullmq-postgres", "bullmq", "deadman"]
      )
    ),
    pickUp("scale", "Scale profile: pick-up at 50/s", each("default", () => paced(50), scaleProfile)),
    group("idle", "Idle", "idle", each("default", () => [`seconds=${idleSeconds}`], forNode), { ratios: ["CPU ms/s"] })
  ].filter(({ suite }) => only.includes(suite))
}
