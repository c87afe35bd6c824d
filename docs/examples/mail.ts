/** One job type, and a handler of it in each of the three forms, run in memory. `node mail.ts` */
// #region define
import { Job } from "deadman"
import { Schema } from "effect"

export const sendMail = Job.define({
  type: "mail.send",
  payload: Schema.Struct({ to: Schema.String, at: Schema.Date }),
  result: Schema.Struct({ messageId: Schema.String }),
  maxAttempts: 5,
  backoff: { kind: "exponential", baseMs: 1_000, capMs: 60_000 },
  timeoutMs: 30_000,
  queue: "mail",
  priority: 5
})
// #endregion

/** What stands for a provider here. */
const deliver = (to: string, options: { readonly key: string; readonly signal: AbortSignal }): Promise<string> => {
  options.signal.throwIfAborted()
  return Promise.resolve(`${to} ${options.key}`)
}

// #region forms
import { CurrentJob } from "deadman"
import { Effect } from "effect"

const plain = sendMail.handle(({ to }, { job }) => ({ messageId: `${to} ${job.key}` }))

const patient = sendMail.handle(async ({ to }, { job, signal }) => {
  const messageId = await deliver(to, { key: job.key, signal })
  return { messageId }
})

const effectful = sendMail.handle(({ at, to }) =>
  Effect.gen(function*() {
    const { job, log } = yield* CurrentJob
    yield* log(`written on ${at.toISOString()}`)
    return { messageId: `${to} ${job.key}` }
  })
)
// #endregion

import * as Testing from "deadman/testing"

for (const [form, handler] of Object.entries({ plain, patient, effectful })) {
  const deadman = await Testing.start({ handlers: [handler] })
  const job = await deadman.submit(sendMail, { to: "ada@example.org", at: new Date("2026-01-31T09:00:00Z") })
  const ended = await deadman.wait(job)
  const { messageId } = ended.state === "completed" ? ended.result : { messageId: "" }
  console.log(form, ended.state, ended.queue, messageId === `ada@example.org ${job.id}`)
  await deadman.stop()
}
