import { assert, it } from "@effect/vitest"
import { ConfigProvider, Effect, Layer } from "effect"
import { Writable } from "node:stream"
import * as Logging from "../../src/programs/Logging.ts"

/** What `log` writes. */
const written = Effect.fnUntraced(function*(format: Logging.Format, log: Effect.Effect<void>) {
  let text = ""
  const stream = new Writable({
    write: (chunk, _, done) => {
      text += String(chunk)
      done()
    }
  })
  const env = ConfigProvider.layer(ConfigProvider.fromEnv({ env: { DEADMAN_LOG_FORMAT: format } }))
  const logging = Layer.provide(Logging.layer(stream as unknown as NodeJS.WriteStream), env)
  yield* Effect.provide(log, logging)
  return text
})

/** A new line, another line to some, and commands to a terminal: clear it, name its window, delete. */
const hostile = "a\nb\u2028c\u2029d\u009b2Je\u001b]0;f\u007f\u0085g"

for (const format of ["pretty", "json"] as const) {
  it.effect(`text of users is one line, and no command to a terminal (${format})`, () =>
    Effect.gen(function*() {
      const log = Effect.annotateLogs(Effect.logInfo(hostile), { job: hostile })
      const text = yield* written(format, log)
      assert.match(text, /^[^\p{Cc}\u2028\u2029]+\n$/u)
      if (format === "json") {
        assert.include(JSON.parse(text), { level: "info", message: hostile, job: hostile })
      }
    }))
}

it.effect("an error that comes with a message is its cause, and not the end of its sentence", () =>
  Effect.gen(function*() {
    const log = Effect.logWarning("reap: round failed, trying again", new Error("the store did not answer"))
    assert.include(JSON.parse(yield* written("json", log)), {
      message: "reap: round failed, trying again",
      cause: "the store did not answer"
    })
    assert.match(
      yield* written("pretty", log),
      /WARN {2}reap: round failed, trying again cause=the store did not answer$/m
    )
    // Alone it is what there is to say.
    assert.include(JSON.parse(yield* written("json", Effect.logError(new Error("broken")))), { message: "broken" })
  }))
