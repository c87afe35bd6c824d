import { assert, it } from "@effect/vitest"
import * as Handlers from "../../../src/programs/worker/Handlers.ts"

it("a handler may be of any type that a job can have, and one of none is told what such a type is", () => {
  const handler = () => null
  assert.isNull(Handlers.fault("t".repeat(128), handler))
  assert.include(Handlers.fault("t".repeat(129), handler), "1 to 128 characters")
  assert.include(Handlers.fault("send mail", handler), "\"send mail\" is not a type a job can have")
})
