/** Work that computes for longer than a heartbeat may wait, in a thread: this process stays alive beside it. */
// #region cpu
import { Deadman, Job } from "deadman"
import { Schema } from "effect"

const primes = Job.define({
  type: "primes.count",
  payload: Schema.Struct({ below: Schema.Int }),
  result: Schema.Int
})

const counter = Job.offload(primes, new URL("./primes.ts", import.meta.url))

const deadman = await Deadman.start({ handlers: [counter], leaseMs: 1_000 })
// #endregion

const job = await deadman.submit(primes, { below: 3_000_000 })
const ended = await deadman.wait(job)
console.log(ended.result, "primes,", ended.leaseLosses, "leases lost")
await deadman.stop()
