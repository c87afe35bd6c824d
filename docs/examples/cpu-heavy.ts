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

const deadman = await Deadman.start({ handlers: [counter], leaseMs: 500 })

const job = await deadman.submit(primes, { below: 6_000_000 })
const ended = await deadman.wait(job)
const tookMs = (ended.finishedAtMs ?? 0) - (ended.startedAtMs ?? 0)
console.log(ended.result, "primes, longer than a lease:", tookMs > 500, "and", ended.leaseLosses, "leases lost")
await deadman.stop()
// #endregion
