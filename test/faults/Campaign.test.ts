/** The fault catalogue, entry 88: after a campaign of mixed faults every slot is there, and nothing has grown. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Random } from "effect"
import { readFileSync } from "node:fs"
import * as Processes from "../support/Processes.ts"
import { layer, Stage } from "./Stage.ts"

const residentMb = (pid: number) =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024

const env = { DEADMAN_MAX_LEASE_LOSSES: "100" }

it.layer(layer(env), { excludeTestServices: true, timeout: "2 minutes" })("fault catalogue, campaign", (it) => {
  it.effect(
    "88: kills, freezes and crashes for a while leave all capacity and no growth",
    () =>
      Effect.gen(function*() {
        const { capacity, clean, ended, postgres, rows, shared, submit, worker } = yield* Stage
        const { api, program } = yield* shared
        const survivor = yield* worker("survivor")
        let victim = yield* worker("victim")
        yield* ended(yield* submit(api, Array.from({ length: 200 }, () => ({ type: "noop" }))))
        const before = [program, survivor].map(({ pid }) => residentMb(pid))
        const taken: Array<string> = []
        const posting = yield* Effect.forkChild(Effect.forever(Effect.gen(function*() {
          const payload = yield* Random.nextIntBetween(0, 300)
          const type = (yield* Random.nextBoolean) ? "sleep" : "side-effect"
          const { body, status } = yield* api.send("POST", "/jobs", { type, payload })
          if (status === 201) {
            taken.push(String(body.id))
          }
          yield* Effect.sleep("30 millis")
        })))
        for (let round = 0; round < 3; round++) {
          yield* survivor.signal("SIGSTOP")
          yield* Effect.sleep("1500 millis")
          yield* survivor.signal("SIGCONT")
          yield* victim.signal("SIGKILL")
          victim = yield* worker("victim")
          yield* rows(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'deadman%'`)
          yield* Effect.sleep("1 second")
          yield* round % 2 === 0 ? postgres.freeze : postgres.stopImmediate
          yield* Effect.sleep("1500 millis")
          yield* round % 2 === 0 ? postgres.thaw : postgres.start
          yield* Effect.sleep("1 second")
        }
        yield* Processes.eventually("enough is taken", Effect.sync(() => taken.length > 100))
        yield* Fiber.interrupt(posting)
        yield* ended(taken)
        yield* clean(taken)
        yield* capacity(api, 8)
        for (const [n, { pid }] of [program, survivor].entries()) {
          assert.isBelow(residentMb(pid) - before[n]!, 100)
        }
      }),
    180_000
  )
})
