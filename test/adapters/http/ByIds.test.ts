import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { ServerAddress } from "../../../src/adapters/http/Server.ts"
import * as JobStoreMemory from "../../../src/adapters/memory/JobStoreMemory.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import * as ApiClient from "../../support/ApiClient.ts"
import * as Subject from "./Subject.ts"

const reads: Array<number> = []

const counting = Layer.effect(
  JobStore,
  Effect.map(JobStore, (store) =>
    JobStore.of({
      ...store,
      get: (ids) => {
        reads.push(ids.length)
        return store.get(ids)
      }
    }))
).pipe(Layer.provideMerge(JobStoreMemory.layer))

it.layer(Subject.layer({ store: counting }), { excludeTestServices: true })("Jobs by their ids", (it) => {
  it.effect("are read a few at a time, and shown newest first, each once", () =>
    Effect.gen(function*() {
      const { send } = yield* Effect.map(ServerAddress, ({ port }) => ApiClient.make(port))
      const made = yield* send("POST", "/jobs/batch", Array.from({ length: 60 }, () => ({ type: "one" })))
      const ids = (made.body.jobs as ReadonlyArray<{ readonly id: string }>).map(({ id }) => id)
      reads.length = 0
      const { body } = yield* send("GET", `/jobs?id=${[...ids, ...ids.slice(0, 9)].join(",")}`)
      assert.deepStrictEqual(body.jobs.map(({ id }: { readonly id: string }) => id), ids.toSorted().toReversed())
      assert.deepStrictEqual(reads, [25, 25, 10])
    }))
})
