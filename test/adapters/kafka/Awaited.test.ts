import { assert, it } from "@effect/vitest"
import * as Awaited from "../../../src/adapters/kafka/Awaited.ts"
import { JobType, queueDefault } from "../../../src/domain/Job.ts"
import { awaitedMs } from "../../../src/ports/Transport.ts"
import * as Ids from "../../support/Ids.ts"

const of = (name: string) => ({ id: Ids.jobId(), type: JobType.make(name), queue: queueDefault })

it("a type is awaited from when it is said until nobody has said it for a while", () => {
  const awaited = Awaited.make()
  assert.isFalse(awaited.some([of("a")], 0))
  awaited.heard([JobType.make("a")], 100)
  assert.isTrue(awaited.some([of("b"), of("a")], 100))
  assert.isFalse(awaited.some([of("b")], 100))
  awaited.heard([JobType.make("a")], 5_000)
  assert.isTrue(awaited.some([of("a")], 4_999 + awaitedMs))
  assert.isFalse(awaited.some([of("a")], 5_000 + awaitedMs))
})

it("more types than are kept are all types, until they are over", () => {
  const awaited = Awaited.make()
  awaited.heard(Array.from({ length: Awaited.typesMax + 10 }, (_, n) => JobType.make(`t${n}`)), 0)
  assert.isTrue(awaited.some([of("another")], awaitedMs - 1))
  assert.isFalse(awaited.some([of("another")], awaitedMs))
})

it("what is said again and again keeps nothing that is over", () => {
  const awaited = Awaited.make()
  const types = Array.from({ length: Awaited.typesMax }, (_, n) => JobType.make(`t${n}`))
  awaited.heard(types, 0)
  awaited.heard(types.slice(0, 1), 1_000)
  assert.isFalse(awaited.some([of("another")], awaitedMs))
  assert.isTrue(awaited.some([of("t0")], awaitedMs))
})

it("what is said when the others are over finds room", () => {
  const awaited = Awaited.make()
  awaited.heard(Array.from({ length: Awaited.typesMax }, (_, n) => JobType.make(`t${n}`)), 0)
  awaited.heard([JobType.make("new")], awaitedMs)
  assert.isTrue(awaited.some([of("new")], awaitedMs))
  assert.isFalse(awaited.some([of("t0")], awaitedMs))
})
