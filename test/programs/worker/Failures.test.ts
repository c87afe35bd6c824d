/** What the log says of runs that failed: what was thrown, with its stack, and never a flood of it. */
import { assert, it } from "@effect/vitest"
import { Effect, Logger, References } from "effect"
import { Rejected } from "../../../src/programs/worker/HandlerApi.ts"
import { make, pass } from "../../support/WorkerWorld.ts"

interface Line {
  readonly message: string
  readonly level: string
  readonly rest: Readonly<Record<string, unknown>>
}

const listening = () => {
  const lines: Array<Line> = []
  const layer = Logger.layer([
    Logger.make(({ fiber, logLevel, message }) =>
      void lines.push({
        message: String(message),
        level: logLevel,
        rest: fiber.getRef(References.CurrentLogAnnotations)
      })
    )
  ])
  return { lines, layer, of: (start: string) => lines.filter(({ message }) => message.startsWith(start)) }
}

const thrower = () => {
  throw new Error("the bank is away")
}

it.effect("a run that failed is in the log, with where it was thrown and whether it is tried again", () => {
  const log = listening()
  return Effect.gen(function*() {
    const world = yield* make()
    const plain = yield* world.submit("plain", { maxAttempts: 1 })
    yield* world.submit("promised")
    yield* world.submit("effectful")
    yield* world.submit("rejecting")
    yield* world.submit("slow", { timeoutMs: 100 })
    yield* world.submit("odd")
    yield* world.submit("wordy")
    yield* world.submit("well")
    yield* world.start({
      plain: thrower,
      promised: () => Promise.resolve().then(thrower),
      effectful: () => Effect.sync(thrower),
      rejecting: () => {
        throw new Rejected("no such customer")
      },
      slow: () => Effect.never,
      odd: () => {
        throw new Proxy({}, {
          get: () => {
            throw new Error("do not look")
          }
        })
      },
      wordy: () => {
        throw new Error(`look\n    at ${"x".repeat(1_000_000)}`)
      },
      well: () => 1
    })
    yield* pass(500)
    const told = (type: string) => log.of("a run ").filter(({ rest }) => rest["type"] === type)
    const [once] = told("plain")
    assert.strictEqual(once?.message, "a run failed, and it was the last one")
    assert.strictEqual(once?.level, "Warn")
    assert.deepInclude(once?.rest, { job: plain, attempt: 1, max_attempts: 1 })
    for (const type of ["plain", "promised", "effectful"]) {
      assert.match(
        String(told(type)[0]?.rest["cause"]),
        /^Error\n\s+at thrower .*Failures\.test\.ts/,
        type
      )
    }
    assert.strictEqual(told("promised")[0]?.message, "a run failed and is tried again")
    assert.strictEqual(told("rejecting")[0]?.message, "a run was rejected: its job is not tried again")
    assert.match(String(told("rejecting")[0]?.rest["cause"]), /^Rejected\n\s+at /)
    assert.strictEqual(told("slow")[0]?.rest["cause"], "Timeout")
    assert.strictEqual(told("odd").length > 0, true)
    assert.match(String(told("wordy")[0]?.rest["cause"]), /^Error\n\s+at [^x].*Failures\.test\.ts/)
    assert.isTrue(log.of("a run ").every(({ rest }) => !String(rest["cause"]).includes("xxx")), "what a message says")
    assert.deepStrictEqual(told("well"), [])
  }).pipe(Effect.provide(log.layer))
})

it.effect("ten lines in ten seconds are enough, and the next one says how many there would have been", () => {
  const log = listening()
  return Effect.gen(function*() {
    const world = yield* make()
    for (let n = 0; n < 25; n++) {
      yield* world.submit("plain", { maxAttempts: 1 })
    }
    yield* world.start({ plain: thrower }, { slots: 4 })
    yield* pass(2_000)
    assert.lengthOf(log.of("a run "), 10)
    yield* pass(10_000)
    yield* world.submit("plain", { maxAttempts: 1 })
    yield* pass(2_000)
    const lines = log.of("a run ")
    assert.lengthOf(lines, 11)
    assert.strictEqual(lines[10]?.rest["not_logged"], 15)
    assert.isFalse("not_logged" in (lines[0]?.rest ?? {}))
  }).pipe(Effect.provide(log.layer))
})
