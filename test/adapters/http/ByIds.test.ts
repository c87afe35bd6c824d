import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { ServerAddress } from "../../../src/adapters/http/Server.ts"
import * as ApiClient from "../../support/ApiClient.ts"
import * as FaultyStore from "../../support/FaultyStore.ts"
import * as Subject from "./Subject.ts"

it.layer(Subject.layerFaulty(), { excludeTestServices: true })("Jobs by their ids", (it) => {
  it.effect("are read a few at a time, and shown newest first, each once", () =>
    Effect.gen(function*() {
      const { reads } = yield* FaultyStore.Faults
      const { send } = yield* Effect.map(ServerAddress, ({ port }) => ApiClient.make(port))
      const made = yield* send("POST", "/jobs/batch", Array.from({ length: 60 }, () => ({ type: "one" })))
      const ids = (made.body.jobs as ReadonlyArray<{ readonly id: string }>).map(({ id }) => id)
      reads.length = 0
      const { body } = yield* send("GET", `/jobs?id=${[...ids, ...ids.slice(0, 9)].join(",")}`)
      assert.deepStrictEqual(body.jobs.map(({ id }: { readonly id: string }) => id), ids.toSorted().toReversed())
      assert.deepStrictEqual(reads.map(({ length }) => length), [25, 25, 10])
    }))
})
