/** A handler module with a mistake: two handlers of one type. */
import { Schema } from "effect"
import * as Job from "../../../src/programs/Job.ts"

const twice = Job.define({ type: "twice", payload: Schema.Unknown })

export const handlers = [twice.handle(() => 1), twice.handle(() => 2)]
