/**
 * Sends an e-mail through a provider that knows idempotency keys, so that a job which runs twice sends one.
 *
 * The provider is one of the example's own: it loses its first answer, as networks do.
 */
// #region provider
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"

const delivered = new Map<string, string>()
let requests = 0
const provider = createServer((request, response) => {
  let body = ""
  request.on("data", (chunk) => (body += chunk)).on("end", () => {
    requests += 1
    delivered.set(String(request.headers["idempotency-key"]), JSON.parse(body).to)
    if (requests === 1) response.destroy()
    else response.end(JSON.stringify({ accepted: true }))
  })
})
await new Promise<void>((resolve) => provider.listen(0, "127.0.0.1", resolve))
const address = `http://127.0.0.1:${(provider.address() as AddressInfo).port}/mail`
// #endregion

// #region email
import { Deadman, Job } from "deadman"
import { Schema } from "effect"

const send = Job.define({
  type: "mail.send",
  payload: Schema.Struct({ to: Schema.String, subject: Schema.String }),
  maxAttempts: 8,
  backoff: { kind: "fixed", delayMs: 200 },
  timeoutMs: 10_000
})

const sender = send.handle(async (mail, { job, signal }) => {
  const response = await fetch(address, {
    method: "POST",
    headers: { "content-type": "application/json", "idempotency-key": job.key }, // the same for every delivery
    body: JSON.stringify(mail),
    signal
  })
  if (response.status === 422) throw new Job.Rejected("the provider will never take this")
  if (!response.ok) throw new Error(`the provider answered ${response.status}`)
})
// #endregion

// #region run
const deadman = await Deadman.start({ handlers: [sender] })
const ended = await deadman.wait(await deadman.submit(send, { to: "ada@example.org", subject: "Welcome" }))
console.log(ended.state, "after", ended.attempts, "failure,", requests, "requests,", delivered.size, "e-mail")
await deadman.stop()
provider.close()
// #endregion
