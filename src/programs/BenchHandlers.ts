/**
 * The handlers of the bench's workers, as the text of a module: `worker.js` loads it like a user's.
 *
 * It tells the bench over the channel between the two processes how many jobs it was given and when, at most every few
 * milliseconds and only while there is something to tell, so that an idle worker is idle.
 */
export const typeVariable = "DEADMAN_BENCH_TYPE"
export const workVariable = "DEADMAN_BENCH_WORK"

export interface Report {
  readonly handled: number
  readonly lastMs: number
  readonly latencies: ReadonlyArray<number>
}

export interface Usage {
  readonly cpuMs: number
  readonly rssMb: number
}

export const source = `
const nowMs = () => Number(process.hrtime.bigint()) / 1e6
let handled = 0, lastMs = 0, latencies = [], armed = false
const report = () => {
  armed = false
  process.send?.({ handled, lastMs, latencies })
  latencies = []
}
const count = (payload) => {
  handled += 1
  lastMs = nowMs()
  if (payload?.t !== undefined) latencies.push(lastMs - payload.t)
  if (!armed) {
    armed = true
    setTimeout(report, 5)
  }
}
process.on("message", () => {
  const { system, user } = process.cpuUsage()
  process.send?.({ cpuMs: (user + system) / 1e3, rssMb: process.resourceUsage().maxRSS / 1024 })
})
process.on("disconnect", () => process.exit(1))
const works = {
  "noop": async (job) => count(job.payload),
  "1ms": async (job) => {
    count(job.payload)
    await new Promise((resolve) => setTimeout(resolve, 1))
  }
}
export const handlers = { [process.env.${typeVariable}]: works[process.env.${workVariable}] }
`
