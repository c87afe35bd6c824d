/** `worker.mjs SYSTEM MODE`: the worker process of one run. It tells its parent what it was given, and when. */
import { now, selfCpu } from "./common.mjs"

const [name, mode] = process.argv.slice(2)
const system = await import(`./systems/${name}.mjs`)
let handled = 0
let first = 0
let last = 0
let latencies = []
let cpuAtGo = 0
let cpuAtFirst = 0
let armed = false
let reportEvery = 5

const report = () => {
  armed = false
  process.send({ kind: "handled", handled, first, last })
}
const worker = await system.worker(mode, (data) => {
  handled += 1
  last = now()
  if (first === 0) {
    first = last
    cpuAtFirst = selfCpu()
  }
  if (data.t !== undefined) latencies.push(last - data.t)
  if (!armed) {
    armed = true
    setTimeout(report, reportEvery)
  }
})

process.on("disconnect", () => process.exit(1))
process.on("message", async (message) => {
  if (message.kind === "go") {
    reportEvery = message.reportEvery ?? 5
    cpuAtGo = selfCpu()
    await worker.start()
    process.send({ kind: "started" })
  } else if (message.kind === "forget") {
    latencies = []
    process.send({ kind: "forgot", handled })
  } else if (message.kind === "usage") {
    process.send({ kind: "usage", cpu: selfCpu() - cpuAtGo, rss: process.memoryUsage().rss })
  } else if (message.kind === "stop") {
    const end = {
      kind: "end",
      handled,
      last,
      latencies,
      cpu: selfCpu() - cpuAtGo,
      cpuOfJobs: selfCpu() - cpuAtFirst,
      rss: process.resourceUsage().maxRSS / 1024
    }
    // Of a long run it is more than a pipe takes at once, and an exit would leave the rest unsent.
    await new Promise((resolve) => process.send(end, resolve))
    await Promise.race([worker.stop(), new Promise((resolve) => setTimeout(resolve, 3_000))]).catch(() => {})
    process.exit(0)
  }
})
process.send({ kind: "ready" })
