/** A handler in a thread, with its options. `node offload.ts` */
// #region offload
import { Deadman, Job } from "deadman"
import { Schema } from "effect"

const hash = Job.define({
  type: "text.digest",
  payload: Schema.Struct({ text: Schema.String, rounds: Schema.Int }),
  result: Schema.String
})

const hasher = Job.offload(hash, new URL("./digest.ts", import.meta.url), { name: "digest", threads: 2 })
// #endregion

const deadman = await Deadman.start({ handlers: [hasher] })
const ended = await deadman.wait(await deadman.submit(hash, { text: "a secret", rounds: 20_000 }))
console.log(ended.state, ended.state === "completed" ? ended.result.length : ended.errors)
await deadman.stop()
