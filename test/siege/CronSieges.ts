/**
 * Schedules under siege: servers that are killed and frozen at random, while the ticks go on.
 *
 * A cron fires once a minute at most, so most of the ticks come from `every_ms`; both go through the same rows and
 * statements. What must come out is known beforehand, to the millisecond.
 */
import { Effect, Fiber, Random } from "effect"
import * as Processes from "../support/Processes.ts"
import * as Arena from "./Arena.ts"
import { law, type Report } from "./Findings.ts"

interface Options {
  readonly seconds: number
  readonly servers: number
  /** A fault comes so long after the one before, at most. */
  readonly everyMs: number
  readonly freezeMaxMs: number
}

/** Whatever is missed is made up for: so exactly one job per tick, however long all of them are away. */
const all = { type: "noop", missed: { all: 1_000 } }

const schedules: Readonly<Record<string, { readonly body: object; readonly tickMs: number }>> = {
  "every-ten-seconds": { body: { ...all, every_ms: 10_000 }, tickMs: 10_000 },
  "every-second": { body: { ...all, every_ms: 1_000 }, tickMs: 1_000 },
  "every-minute": { body: { ...all, cron: "* * * * *", zone: "Europe/Zurich" }, tickMs: 60_000 },
  // On time or not at all; a tick is on time for thirty seconds, and nobody is away for that long.
  "on-time": { body: { type: "noop", missed: "skip", every_ms: 5_000 }, tickMs: 5_000 }
}

interface Tick {
  readonly schedule: string
  readonly tick: number
  readonly jobs: number
  readonly lateMs: number
}

export const cron = Effect.fn("CronSieges.cron")(function*(options: Options) {
  const arena = yield* Arena.make({ leaseMs: 5_000, threads: 8 })
  const crew = yield* Effect.forEach(Array.from({ length: options.servers }), () => arena.server())
  yield* arena.worker("runner")
  const booked = new Map<string, number>()
  for (const [name, { body }] of Object.entries(schedules)) {
    const { api } = crew[booked.size % crew.length]!
    const answer = yield* api.send("PUT", `/schedules/${name}`, body)
    if (answer.status !== 201) {
      return yield* Effect.die(new Error(`PUT answered ${answer.status}: ${JSON.stringify(answer.body)}`))
    }
    booked.set(name, answer.body.next_fires_ms[0])
  }
  // Editing one that stays as it is must not move its ticks, however often.
  const editing = yield* Effect.forkChild(Effect.forever(Effect.gen(function*() {
    yield* Effect.sleep("700 millis")
    const at = yield* Random.nextIntBetween(0, crew.length - 1)
    yield* crew[at]!.api.send("PUT", "/schedules/every-second", schedules["every-second"]!.body)
  })))

  const untilMs = (yield* Arena.nowMs) + options.seconds * 1_000
  let kills = 0
  let freezes = 0
  while ((yield* Arena.nowMs) < untilMs) {
    yield* Effect.sleep(yield* Random.nextIntBetween(200, options.everyMs))
    const at = yield* Random.nextIntBetween(0, crew.length - 1)
    const { program } = crew[at]!
    if (yield* Random.nextBoolean) {
      kills += 1
      yield* program.signal("SIGKILL")
      yield* program.exit("10 seconds")
      crew[at] = yield* arena.server()
    } else {
      freezes += 1
      const forMs = yield* Random.nextIntBetween(500, options.freezeMaxMs)
      yield* program.signal("SIGSTOP")
      // It thaws by itself, so that two or all of them may be away at once.
      yield* Effect.forkChild(Effect.andThen(Effect.sleep(forMs), program.signal("SIGCONT")))
    }
  }
  yield* Fiber.interrupt(editing)
  yield* Effect.sleep(options.freezeMaxMs)
  for (const name of Object.keys(schedules)) {
    yield* Processes.eventually(
      `${name} is paused`,
      Effect.map(
        Effect.flatMap(
          Random.nextIntBetween(0, crew.length - 1),
          (at) => crew[at]!.api.send("POST", `/schedules/${name}/pause`)
        ),
        ({ status }) => status === 200
      )
    )
  }
  const ends = new Map(
    (yield* arena.rows<{ name: string; at: number }>(
      `SELECT name, updated_at_ms::float8 AS at FROM deadman.schedule`
    )).map(({ at, name }) => [name, at])
  )
  yield* Arena.drained(arena, "60 seconds")
  const found = yield* arena.rows<Tick>(
    `SELECT schedule, tick_ms::float8 AS tick, count(*)::int AS jobs, max(created_at_ms - tick_ms)::float8 AS "lateMs"
     FROM deadman.body WHERE schedule IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2`
  )
  const report = Object.entries(schedules).map(([name, { tickMs }]) => {
    const first = booked.get(name)!
    // Of one that was due at the very moment of the pause either is right.
    const end = ends.get(name)!
    const must = Array.from(
      { length: Math.max(0, Math.floor((end - 1_000 - first) / tickMs) + 1) },
      (_, n) => first + n * tickMs
    )
    const ticks = found.filter(({ schedule }) => schedule === name)
    const seen = new Set(ticks.map(({ tick }) => tick))
    return {
      name,
      must: must.length,
      missing: must.filter((tick) => !seen.has(tick)),
      twice: ticks.filter(({ jobs }) => jobs !== 1),
      strange: ticks.filter(({ tick }) => tick < first || tick > end || (tick - first) % tickMs !== 0),
      latestMs: Math.max(0, ...ticks.map(({ lateMs }) => lateMs))
    }
  })
  const total = report.reduce((sum, { must }) => sum + must, 0)
  const findings: ReadonlyArray<Arena.Finding> = [
    law(
      "every tick made a job",
      report.every(({ missing }) => missing.length === 0) && total > options.seconds,
      report.map(({ missing, must, name }) => `${name}: ${must - missing.length} of ${must}`).join("; ")
    ),
    law(
      "no tick made two",
      report.every(({ twice }) => twice.length === 0),
      JSON.stringify(report[0]!.twice.slice(0, 3))
    ),
    law(
      "no job is of a time that is no tick",
      report.every(({ strange }) => strange.length === 0),
      JSON.stringify(report.map(({ strange }) => strange[0]))
    ),
    law("both kinds of fault happened", kills > 0 && freezes > 0, `${kills} kills, ${freezes} freezes`),
    ...(yield* Arena.judgeAll(arena, []))
  ]
  return {
    findings,
    figures: {
      ...options,
      kills,
      freezes,
      ticks: Object.fromEntries(report.map(({ must, name }) => [name, must])),
      latest_ms: Object.fromEntries(report.map(({ latestMs, name }) => [name, latestMs]))
    }
  } satisfies Report
})
