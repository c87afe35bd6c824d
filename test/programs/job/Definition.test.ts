/** A job type on both sides: what a submit and a worker do with its Schemas. */
import { assert, describe, it } from "@effect/vitest"
import { Context, DateTime, Effect, Layer, Result, Schema, SchemaGetter } from "effect"
import { CurrentJob } from "../../../src/ports/CurrentJob.ts"
import { define, DefinitionInvalid, JobValueRefused } from "../../../src/programs/job/Definition.ts"
import type { TypedHandler } from "../../../src/programs/job/TypedHandler.ts"
import { again, Rejected } from "../../../src/programs/worker/HandlerApi.ts"
import * as Handlers from "../../../src/programs/worker/Handlers.ts"
import { make, pass } from "../../support/WorkerWorld.ts"

const order = define({
  type: "order.place",
  payload: Schema.Struct({
    customer: Schema.NonEmptyString,
    placedAt: Schema.Date,
    items: Schema.Array(Schema.Struct({ sku: Schema.String, amount: Schema.Int }))
  }),
  result: Schema.Struct({ total: Schema.Int, shippedAt: Schema.Date }),
  maxAttempts: 3,
  backoff: { kind: "fixed", delayMs: 0 },
  timeoutMs: 5_000,
  queue: "orders",
  priority: 5
})

const placedAt = DateTime.toDate(DateTime.makeUnsafe("2026-11-29T10:00:00Z"))
const placed = { customer: "ada", placedAt, items: [{ sku: "a", amount: 2 }] }
const json = JSON.stringify({ customer: "ada", placedAt: placedAt.toISOString(), items: [{ sku: "a", amount: 2 }] })

const handlersOf = (...handlers: ReadonlyArray<TypedHandler>) =>
  Effect.map(
    Effect.orDie(Handlers.makeTyped(handlers)),
    ({ get, types }) => Object.fromEntries(types.map((type) => [type, get(type)!]))
  )

describe("a job definition", () => {
  it("carries its defaults, writes a payload as JSON and reads it back", () => {
    assert.deepStrictEqual(order.defaults, {
      maxAttempts: 3,
      backoff: { kind: "fixed", delayMs: 0 },
      timeoutMs: 5_000,
      queue: "orders",
      priority: 5
    })
    const encoded = Result.getOrThrow(order.encode(placed))
    assert.strictEqual(JSON.stringify(encoded), json)
    assert.deepStrictEqual(Result.getOrThrow(order.decode(JSON.parse(json))), placed)
    const result = { total: 3, shippedAt: placedAt }
    assert.deepStrictEqual(
      Result.getOrThrow(order.decodeResult(JSON.parse(JSON.stringify(Result.getOrThrow(order.encodeResult(result)))))),
      result
    )
  })

  it("says what is no Schema, no option, and no handler, where no types would", () => {
    const payload = Schema.String
    const wrong: ReadonlyArray<readonly [options: unknown, words: RegExp]> = [
      [undefined, /^a job type is an object/],
      ["mail.send", /^a job type is an object/],
      [{ type: "x" }, /^the job type "x" has no Schema of its payload/],
      [{ type: "x", payload: { name: "string" } }, /^the job type "x" has no Schema of its payload/],
      [{ type: "x", payload, result: "string" }, /^the job type "x" has a result that is no Schema/],
      [{ type: "x", payload, maxAttempt: 3 }, /^the job type "x" has maxAttempt, which is no option/],
      [{ payload }, /wrong type/]
    ]
    for (const [options, words] of wrong) {
      assert.throws(() => define(options as never), DefinitionInvalid, words)
    }
    assert.throws(
      () => order.handle("later" as never),
      TypeError,
      /"order.place" is a function of its payload, not string/
    )
    assert.doesNotThrow(() => define({ type: "x", payload, result: undefined as never }))
  })

  it("refuses a payload that does not fit, and names each place", () => {
    const refused = Result.getOrThrow(Result.flip(order.encode({
      ...placed,
      customer: "",
      items: [{ sku: "a", amount: 1 }, { sku: "b", amount: 1.5 }]
    })))
    assert.instanceOf(refused, JobValueRefused)
    assert.deepStrictEqual(refused.faults.map(({ path }) => path), ["payload.customer", "payload.items[1].amount"])
    assert.include(refused.message, "the payload does not fit the job type \"order.place\": payload.customer: ")
    const missing = Result.getOrThrow(Result.flip(order.decode({ customer: "ada" })))
    assert.deepStrictEqual(missing.faults.map(({ path }) => path), ["payload.placedAt", "payload.items"])
    const nothing = Result.getOrThrow(Result.flip(order.decode(null)))
    assert.deepStrictEqual(nothing.faults.map(({ path }) => path), ["payload"])
  })

  it("with a Schema that waits is refused rather than run", () => {
    const slow = define({
      type: "slow",
      payload: Schema.String.pipe(Schema.decode({
        decode: SchemaGetter.transformEffect((text: string) => Effect.promise(() => Promise.resolve(text))),
        encode: SchemaGetter.passthrough()
      }))
    })
    const refused = Result.getOrThrow(Result.flip(slow.decode("x")))
    assert.include(refused.message, "must neither wait nor throw")
  })

  it.each(
    [
      [{ type: "send mail" }, "type"],
      [{ type: "" }, "type"],
      [{ type: "x", queue: "a queue" }, "queue"],
      [{ type: "x", priority: 1.5 }, "priority"],
      [{ type: "x", maxAttempts: 0 }, "maxAttempts"],
      [{ type: "x", backoff: { kind: "fixed", delayMs: -1 } }, "backoff"],
      [{ type: "x", timeoutMs: 0 }, "timeoutMs"],
      [{ type: "x", retainMs: -1 }, "retainMs"]
    ] as const
  )("%j is thrown where it is made", (options, field) => {
    assert.throws(() => define({ payload: Schema.Unknown, ...options }), DefinitionInvalid, `a wrong ${field}: `)
  })
})

it("a definition may keep its jobs for a month, which as an instant would look like seconds", () => {
  assert.doesNotThrow(() => define({ type: "x", payload: Schema.Unknown, retainMs: 30 * 86_400_000 }))
})

describe("a typed handler", () => {
  it.effect("gets the decoded payload in every form, and its result is kept as JSON", () =>
    Effect.gen(function*() {
      const world = yield* make()
      const seen: Array<unknown> = []
      const total = (payload: { readonly items: ReadonlyArray<unknown>; readonly placedAt: Date }) => {
        seen.push(payload)
        return { total: payload.items.length, shippedAt: payload.placedAt }
      }
      const forms = {
        plain: order.handle(total),
        async: order.handle((payload) => Promise.resolve(total(payload))),
        effect: order.handle((payload) => Effect.sync(() => total(payload)))
      }
      for (const [name, handler] of Object.entries(forms)) {
        const pool = yield* world.start(yield* handlersOf(handler))
        const id = yield* world.submit("order.place", { payload: json })
        yield* pass(500)
        const job = yield* world.job(id)
        assert.strictEqual(job.state, "completed", name)
        assert.deepStrictEqual(job.result, { total: 1, shippedAt: placedAt.toISOString() })
        yield* pool.stop
      }
      assert.deepStrictEqual(seen, [placed, placed, placed])
    }))

  it.effect("a payload that does not decode before the run is rejected, and the handler is not called", () =>
    Effect.gen(function*() {
      const world = yield* make()
      let called = 0
      yield* world.start(
        yield* handlersOf(order.handle(() => {
          called += 1
          return again(0)
        }))
      )
      const id = yield* world.submit("order.place", { payload: "{\"customer\":\"ada\",\"items\":[{\"sku\":1}]}" })
      yield* pass(500)
      const job = yield* world.job(id)
      assert.deepStrictEqual([job.state, job.reason, job.attempts, called], ["dead", "rejected", 1, 0])
      assert.include(job.errors[0]?.message, "payload.items[0].sku")
    }))

  it.effect("a result that does not fit is a failed attempt, in every form", () =>
    Effect.gen(function*() {
      const world = yield* make()
      const wrong = { total: 1.5, shippedAt: placedAt }
      const forms = [
        order.handle(() => wrong),
        order.handle(() => Promise.resolve(wrong)),
        order.handle(() => Effect.succeed(wrong))
      ]
      for (const handler of forms) {
        const pool = yield* world.start(yield* handlersOf(handler))
        const id = yield* world.submit("order.place", { payload: json, maxAttempts: 1 })
        yield* pass(500)
        const job = yield* world.job(id)
        assert.strictEqual(job.reason, "attempts_exhausted")
        assert.strictEqual(job.errors[0]?.name, "JobValueRefused")
        assert.include(job.errors[0]?.message, "result.total")
        yield* pool.stop
      }
    }))

  it.effect("may say again and reject, returned, thrown, failed with and yielded", () =>
    Effect.gen(function*() {
      const world = yield* make()
      const later = define({ type: "later", payload: Schema.Literals(["return", "throw", "async", "fail", "yield"]) })
      const never = define({ type: "never", payload: Schema.Literals(["throw", "async", "fail", "yield"]) })
      yield* world.start({
        ...(yield* handlersOf(
          later.handle((how, { job }): unknown => {
            if (job.delivery > 1) {
              return `${job.attempt}/${job.delivery}`
            }
            switch (how) {
              case "return":
                return again(0)
              case "throw":
                throw again(0)
              case "async":
                return Promise.resolve(again(0))
              case "fail":
                return Effect.fail(again(0))
              case "yield":
                return Effect.gen(function*() {
                  return yield* again(0)
                })
            }
          }),
          never.handle((how): unknown => {
            switch (how) {
              case "throw":
                throw new Rejected("no")
              case "async":
                return Promise.reject(new Rejected("no"))
              case "fail":
                return Effect.fail(new Rejected("no"))
              case "yield":
                return Effect.gen(function*() {
                  return yield* new Rejected("no", { cause: new Error("because") })
                })
            }
          })
        ))
      })
      const agains = yield* Effect.forEach(["return", "throw", "async", "fail", "yield"], (how) =>
        world.submit("later", { payload: JSON.stringify(how) }))
      const nevers = yield* Effect.forEach(["throw", "async", "fail", "yield"], (how) =>
        world.submit("never", { payload: JSON.stringify(how) }))
      yield* pass(2_000)
      for (const id of agains) {
        const job = yield* world.job(id)
        assert.deepStrictEqual([job.state, job.result, job.attempts], ["completed", "1/2", 0])
      }
      for (const id of nevers) {
        const job = yield* world.job(id)
        assert.deepStrictEqual([job.state, job.reason, job.errors[0]?.name], ["dead", "rejected", "Rejected"])
      }
      assert.strictEqual((yield* world.job(nevers[3]!)).errors[0]?.message, "no: because")
    }))

  it.effect("an Effect reads its job and finds what its worker was given", () =>
    Effect.gen(function*() {
      class Prefix extends Context.Service<Prefix, string>()("deadman/test/programs/job/Definition.test/Prefix") {}
      const hello = define({ type: "hello", payload: Schema.String, result: Schema.String })
      const handler = hello.handle((name) =>
        Effect.gen(function*() {
          const { claim, job } = yield* CurrentJob
          const prefix = yield* Prefix
          return `${prefix} ${name} ${job.attempt} ${job.delivery} ${job.key === job.id} ${claim.epoch}`
        })
      )
      const world = yield* make()
      const context = yield* Layer.build(
        Handlers.layerTyped([handler]).pipe(Layer.provide(Layer.succeed(Prefix, "hello")))
      )
      const { get } = Context.get(context, Handlers.Handlers)
      yield* world.start({ hello: get("hello")! })
      const id = yield* world.submit("hello", { payload: "\"ada\"" })
      yield* pass(500)
      assert.strictEqual((yield* world.job(id)).result, "hello ada 1 1 true 1")
    }))

  it.effect("two handlers of one type, and what is no handler, are refused", () =>
    Effect.gen(function*() {
      const one = order.handle(() => again(0))
      const two = yield* Effect.flip(Handlers.makeTyped([one, order.handle(() => again(0))]))
      assert.include(two.message, "there are two handlers for \"order.place\"")
      const none = yield* Effect.flip(Handlers.makeTyped([order as never]))
      assert.include(none.message, "make it with handle() of its definition")
    }))
})
