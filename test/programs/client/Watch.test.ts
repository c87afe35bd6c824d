/** What a program says of all jobs there are, where no server is there to say it. */
import { assert, it, vi } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { Deadman } from "../../../src/programs/deadman.ts"
import { freshDatabase } from "../../support/Database.ts"
import { eventually } from "../../support/Eventually.ts"

it.live(
  "a program that does chores warns of jobs that nobody has a handler for, and its gauges show how long they wait",
  () =>
    Effect.gen(function*() {
      const databaseUrl = Redacted.value((yield* freshDatabase).url)
      const started = (options: Deadman.StartOptions) =>
        Effect.acquireRelease(
          Effect.promise(() => Deadman.start({ databaseUrl, ...options })),
          (deadman) => Effect.promise(() => deadman.stop())
        )
      const web = yield* started({ keeper: false, logLevel: "none" })
      yield* Effect.promise(() => web.submit("nobody"))
      const said: Array<string> = []
      yield* Effect.acquireRelease(
        Effect.sync(() => vi.spyOn(process.stderr, "write").mockImplementation((text) => said.push(String(text)) > 0)),
        (spy) => Effect.sync(() => spy.mockRestore())
      )
      const deadman = yield* started({ handlers: { known: () => null } })
      const ofNobody = Effect.sync(() => said.filter((line) => line.includes("1 job of type nobody waits")))
      yield* eventually("it is said", Effect.map(ofNobody, ({ length }) => length > 0))
      assert.include((yield* ofNobody)[0], "no process has a handler for it")

      const text = yield* Effect.promise(() => deadman.metrics())
      const value = (series: string) =>
        Number(text.split("\n").find((line) => line.startsWith(`${series} `))?.split(" ")[1])
      assert.strictEqual(value(`deadman_jobs{state="pending"}`), 1)
      assert.isAbove(value("deadman_oldest_ready_ms"), 1_000)
    }).pipe(Effect.scoped),
  180_000
)
