/** The job types of the examples, for who submits and for who runs them. */
// #region jobs
import { Job } from "deadman"
import { Schema } from "effect"

export const resize = Job.define({
  type: "image.resize",
  payload: Schema.Struct({
    url: Schema.String,
    width: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 4_000 }))
  }),
  result: Schema.Struct({ bytes: Schema.Int }),
  maxAttempts: 5,
  backoff: { kind: "exponential", baseMs: 500, capMs: 60_000 },
  timeoutMs: 30_000
})
// #endregion
