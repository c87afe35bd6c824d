/** The client of a server, over HTTP. `node client.ts`, while a server runs at `DEADMAN_URL`. */
// #region connect
import { connect } from "deadman"
import { resize } from "./jobs.ts"

const deadman = connect({
  url: process.env["DEADMAN_URL"] ?? "http://127.0.0.1:8080",
  token: process.env["DEADMAN_API_TOKEN"]
})

const job = await deadman.submit(resize, { url: "https://example.org/dog.png", width: 640 })
const ended = await deadman.wait(job, { timeoutMs: 60_000 })
if (ended.state === "completed") console.log(ended.result.bytes)

const named = await deadman.submit("sleep", 100, { tags: ["by-name"] }) // a type without a definition
console.log((await deadman.wait(named)).state)
// #endregion

// #region walk
await deadman.wait(await deadman.submit("always-fails", null, { maxAttempts: 1 }))

let resubmitted = 0
for await (const dead of deadman.walk({ state: "dead", type: "always-fails" })) {
  await deadman.resubmit(dead)
  resubmitted += 1
}
console.log("resubmitted", resubmitted)
// #endregion
