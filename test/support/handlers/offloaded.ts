/** Handlers whose work is done in threads. */
import { Schema } from "effect"
import * as Job from "../../../src/programs/Job.ts"

const crunch = Job.define({
  type: "crunch",
  payload: Schema.Struct({ do: Schema.String, ms: Schema.optionalKey(Schema.Int) })
})

export const handlers = [Job.offload(crunch, new URL("crunch.js", import.meta.url))]
