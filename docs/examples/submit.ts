/** A process that only submits: a web server, a script. `node submit.ts`, while a worker runs. */
// #region submit
import { Deadman } from "deadman"
import { resize } from "./jobs.ts"

const deadman = await Deadman.start()

const job = await deadman.submit(resize, { url: "https://example.org/cat.png", width: 640 }, {
  priority: 10,
  tags: ["cats"],
  idempotencyKey: "cat-640"
})
const again = await deadman.submit(resize, { url: "https://example.org/cat.png", width: 640 }, {
  priority: 10,
  tags: ["cats"],
  idempotencyKey: "cat-640"
})
console.log(again.created, again.id === job.id)

const ended = await deadman.wait(job, { timeoutMs: 30_000 })
console.log(ended.state, ended.result)
// #endregion

// #region look
const look = await deadman.get(job)
console.log(look?.worker, look?.attempts, look?.logs[0]?.line)

const { jobs } = await deadman.list({ state: "completed", tag: "cats", limit: 10 })
console.log(jobs.length)
// #endregion

// #region refused
const refused = await deadman.submit(resize, { url: "https://example.org/cat.png", width: 99_999 })
  .catch((error: Error) => error.message)
console.log(refused) // … payload.width: …

await deadman.stop()
// #endregion
