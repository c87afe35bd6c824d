/** The client of a server as a service of Effect. `node client-effect.ts`, while a server runs at `DEADMAN_URL`. */
// #region effect
import { Http } from "deadman"
import { Effect } from "effect"

const program = Effect.gen(function*() {
  const client = yield* Http.Client
  const { job } = yield* client.submit({ type: "sleep", payload: 100 })
  const ended = yield* client.waitFor(job.id, { within: "1 minute" })
  yield* Effect.sync(() => console.log(ended.state))
})

const HttpLayer = Http.layer({
  url: process.env["DEADMAN_URL"] ?? Http.defaults.url,
  token: process.env["DEADMAN_API_TOKEN"]
})

await Effect.runPromise(program.pipe(Effect.provide(HttpLayer)))
// #endregion
