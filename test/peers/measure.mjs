/** `measure.mjs SCENARIO SYSTEM MODE key=value…`: one run; prints its figures as one line of JSON. */
import { connectedCpu, now, percentile, serverCpu, settle, sleep, walBytes } from "./common.mjs"
import * as Processes from "./processes.mjs"

const [scenario, name, mode, ...pairs] = process.argv.slice(2)
const options = Object.fromEntries(pairs.map((pair) => pair.split("=")))
const number = (key, otherwise) => options[key] === undefined ? otherwise : Number(options[key])
const system = await import(`./systems/${name}.mjs`)

const submitterOf = (options) => Processes.submitter(system, { mode, ...options })
const workerOf = () => Processes.worker(system, { name, mode })

const emit = (figures) => process.stderr.write(`FIGURES ${JSON.stringify(figures)}\n`)

const perJob = (jobs, client, server, wal) => ({
  "client µs/job": client * 1_000 / jobs,
  "server µs/job": server * 1_000 / jobs,
  "WAL B/job": wal / jobs
})

const submit = async () => {
  const width = number("width", 64)
  const jobs = number("jobs", 10_000)
  const bulk = number("bulk", 0)
  await system.reset(mode)
  const submitter = await submitterOf({ width })
  await submitter.singles(width, width * 4)
  if (bulk > 0) await submitter.bulk(bulk, bulk)
  await settle()
  const wal = await walBytes()
  const server = serverCpu()
  const client = await submitter.cpu()
  const start = now()
  if (bulk > 0) await submitter.bulk(jobs, bulk)
  else await submitter.singles(width, jobs)
  const took = now() - start
  const used = await submitter.cpu() - client
  emit({ "jobs/s": jobs / took * 1_000, ...perJob(jobs, used, serverCpu() - server, await walBytes() - wal) })
  await submitter.close()
}

const drain = async () => {
  const jobs = number("jobs", 20_000)
  const processes = number("processes", 1)
  const capMs = number("cap", 60) * 1_000
  // Where some meet what is there as they start, everybody's time counts from the first job.
  const fromFirst = options.from === "first"
  await system.reset(mode)
  const workers = []
  // Deadman's are started first: they wait until they are told to go. The others begin at `start`.
  for (let n = 0; n < processes; n++) workers.push(await workerOf())
  const submitter = await submitterOf({ width: 4 })
  await submitter.bulk(jobs, 1_000)
  await submitter.close()
  await settle()
  const wal = await walBytes()
  const server = serverCpu()
  const start = now()
  for (const worker of workers) worker.ask({ kind: "go" }, "started")
  const handled = () => workers.reduce((sum, { state }) => sum + state.handled, 0)
  while (handled() < jobs && now() - start < capMs) await sleep(3)
  let ended = now()
  const whole = handled() >= jobs
  // Until the store itself has nothing left, so that batched endings are paid for.
  while (whole && now() - ended < 15_000) {
    if (await system.remaining() === 0) break
    await sleep(2)
  }
  ended = now()
  const messages = await system.acknowledged?.()
  const acknowledged = now()
  const done = handled()
  const used = serverCpu() - server
  const logged = await walBytes() - wal
  const ends = await Promise.all(workers.map((worker) => worker.stop()))
  const began = fromFirst ? Math.min(...workers.map(({ state }) => state.first)) : start
  const clients = ends.reduce((sum, { cpu, cpuOfJobs }) => sum + (fromFirst ? cpuOfJobs : cpu), 0)
  emit({
    "jobs/s": done / (ended - began) * 1_000,
    ...(messages === undefined
      ? {}
      : { "acknowledged/s": done / (acknowledged - began) * 1_000, "messages/job": messages / done }),
    ...perJob(Math.max(1, done), clients, used, logged),
    "RSS MB": Math.max(...ends.map(({ rss }) => rss))
  })
}

/** Submitters and a worker at once, until the store has nothing left. */
const endToEnd = async () => {
  const width = number("width", 64)
  const jobs = number("jobs", 20_000)
  await system.reset(mode)
  const submitter = await submitterOf({ width })
  const worker = await workerOf()
  await worker.ask({ kind: "go" }, "started")
  await system.ready?.()
  const warm = width * 16
  await submitter.singles(width, warm)
  while (worker.state.handled < warm || await system.remaining() > 0) await sleep(20)
  await settle()
  const wal = await walBytes()
  const server = serverCpu()
  const client = await submitter.cpu()
  const { cpu } = await worker.ask({ kind: "usage" }, "usage")
  const start = now()
  await submitter.singles(width, jobs)
  const submitted = now()
  while (worker.state.handled < warm + jobs && now() - start < 60_000) await sleep(3)
  while (await system.remaining() > 0 && now() - start < 60_000) await sleep(2)
  const ended = now()
  const own = await submitter.cpu() - client
  const used = serverCpu() - server
  const logged = await walBytes() - wal
  const done = worker.state.handled - warm
  const end = await worker.stop()
  await submitter.close()
  emit({
    "jobs/s": done / (ended - start) * 1_000,
    "submitted/s": jobs / (submitted - start) * 1_000,
    ...perJob(Math.max(1, done), own + end.cpu - cpu, used, logged)
  })
}

const pickUp = async () => {
  const rate = number("rate", 50)
  const seconds = number("seconds", 8)
  await system.reset(mode)
  if (options.future !== undefined) await system.seedFuture(number("future", 0))
  const submitter = await submitterOf({ width: 4 })
  const worker = await workerOf()
  await worker.ask({ kind: "go", reportEvery: 100 }, "started")
  await system.ready?.()
  for (let n = 0; n < 20; n++) {
    await submitter.singles(1, 1)
    await sleep(20)
  }
  await sleep(1_500)
  await settle()
  const { handled: before } = await worker.ask({ kind: "forget" }, "forgot")
  const server = serverCpu()
  const { cpu } = await worker.ask({ kind: "usage" }, "usage")
  const total = rate * seconds
  await submitter.paced(rate, total)
  const until = now() + number("cap", 15) * 1_000
  while (worker.state.handled - before < total && now() < until) await sleep(20)
  const used = serverCpu() - server
  const end = await worker.stop()
  await submitter.close()
  emit({
    "p50 ms": percentile(end.latencies, 50),
    "p95 ms": percentile(end.latencies, 95),
    "p99 ms": percentile(end.latencies, 99),
    "served": end.latencies.length / total,
    "client µs/job": (end.cpu - cpu) * 1_000 / total,
    "server µs/job": used * 1_000 / total
  })
}

const idle = async () => {
  const seconds = number("seconds", 30)
  await system.reset(mode)
  const worker = await workerOf()
  await worker.ask({ kind: "go" }, "started")
  // A worker of Deadman is calm when it has heard nothing for ten seconds.
  await sleep(12_000)
  await settle()
  const { cpu: before } = await worker.ask({ kind: "usage" }, "usage")
  const share = connectedCpu()
  const server = serverCpu()
  const start = now()
  await sleep(seconds * 1_000)
  const took = (now() - start) / 1_000
  const { cpu, rss } = await worker.ask({ kind: "usage" }, "usage")
  const used = share()
  const whole = serverCpu() - server
  await worker.stop()
  emit({
    "worker CPU ms/s": (cpu - before) / took,
    "its share of the server ms/s": used / took,
    "CPU ms/s": (cpu - before + used) / took,
    "whole server ms/s": whole / took,
    "RSS MB": rss / 1_048_576
  })
}

await { submit, drain, "end-to-end": endToEnd, "pick-up": pickUp, idle }[scenario]()
await system.done()
process.exit(0)
