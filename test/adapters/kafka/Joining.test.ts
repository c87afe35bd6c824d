/** A worker that is not in its group yet: its wakes do not wait for that. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Queue } from "effect"
import * as TransportKafka from "../../../src/adapters/kafka/TransportKafka.ts"
import * as TransportMemory from "../../../src/adapters/memory/TransportMemory.ts"
import { Transport } from "../../../src/ports/Transport.ts"
import * as Processes from "../../support/Processes.ts"

it.live("a worker hears wakes while no broker lets it into its group", () =>
  Effect.gen(function*() {
    const port = yield* Processes.freePort
    const carried = TransportKafka.layer({ brokers: [`127.0.0.1:${port}`] }).pipe(Layer.provide(TransportMemory.layer))
    const heard = yield* Effect.gen(function*() {
      const transport = yield* Transport
      const { wakes } = yield* transport.subscribe({ worker: true })
      yield* transport.wake([{ _tag: "Ready" }])
      return yield* Queue.take(wakes)
    }).pipe(Effect.provide(carried), Effect.scoped, Effect.timeoutOption("2 seconds"))
    assert.strictEqual(heard._tag, "Some", "it was told within the time in which it would have waited for the group")
  }))
