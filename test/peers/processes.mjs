/**
 * Who submits and who works, in one run.
 *
 * A system for Node submits in the measuring process itself, and works in a `worker.mjs`. A system in another language
 * brings a `program` for either, which is told the same words and answers them: a line of JSON on its standard input,
 * or output, is a message. Its submitting process is one of its own, so that what it uses can be told apart.
 */
import { fork } from "node:child_process"
import { createInterface } from "node:readline"
import { now, payload, pool, selfCpu, sleep } from "./common.mjs"

/** What `fork` gives a process of Node's, for one that is not. */
const byLines = (child) => {
  createInterface({ input: child.stdout }).on("line", (line) => child.emit("message", JSON.parse(line)))
  child.send = (message) => child.stdin.write(`${JSON.stringify(message)}\n`)
  // A process that is gone is heard of by its exit.
  child.stdin.on("error", () => {})
  return child
}

/** A process that is ready. One that ends before it is told to ends the run, with what it said. */
const running = async (child, onMessage = () => {}) => {
  const waiting = new Map()
  let stopping = false
  child.on("message", (message) => {
    onMessage(message)
    waiting.get(message.kind)?.(message)
  })
  const heard = (kind) => new Promise((resolve) => waiting.set(kind, resolve))
  const exited = new Promise((resolve) => child.on("exit", resolve))
  void exited.then((code) => {
    if (stopping) return
    process.stderr.write(`${child.spawnargs.slice(1).join(" ")} ended by itself: ${code ?? child.signalCode}\n`)
    process.exit(1)
  })
  process.on("exit", () => child.kill("SIGKILL"))
  await heard("ready")
  const ask = (message, kind) => {
    const answer = heard(kind)
    child.send(message)
    return answer
  }
  return {
    ask,
    stop: async () => {
      stopping = true
      const end = await ask({ kind: "stop" }, "end")
      await Promise.race([exited, sleep(5_000)])
      return end
    }
  }
}

export const worker = async (system, { mode, name }) => {
  const state = { handled: 0, first: 0, last: 0 }
  const child = system.program === undefined
    ? fork(new URL("./worker.mjs", import.meta.url), [name, mode], {
      stdio: ["ignore", "ignore", "inherit", "ipc"],
      execArgv: []
    })
    : byLines(system.program("work", { mode }))
  const { ask, stop } = await running(child, ({ first, handled, kind, last }) => {
    if (kind === "handled") Object.assign(state, { handled, first, last })
  })
  return { state, ask, stop }
}

const chunks = (total, size) =>
  Array.from(
    { length: Math.ceil(total / size) },
    (_, at) => Array.from({ length: Math.min(size, total - at * size) }, (_, n) => payload(at * size + n))
  )

/** Submits in this process. */
const here = (producer) => ({
  /** `width` submitters share `jobs` submits. */
  singles: (width, jobs) => pool(width, jobs, (n) => producer.add(payload(n))),
  bulk: async (jobs, size) => {
    for (const chunk of chunks(jobs, size)) await producer.addBulk(chunk)
  },
  /** One at a random instant of every step, whether or not the last one was answered. */
  paced: async (rate, jobs) => {
    const step = 1_000 / rate
    const start = now()
    const sent = []
    for (let n = 0; n < jobs; n++) {
      const wait = start + (n + Math.random()) * step - now()
      if (wait > 0.5) await sleep(wait)
      sent.push(producer.add({ ...payload(n), t: now() }))
    }
    await Promise.all(sent)
  },
  cpu: async () => selfCpu(),
  close: () => producer.close()
})

/** Has a program submit. */
const there = ({ ask, stop }) => ({
  singles: (width, jobs) => ask({ kind: "singles", width, jobs }, "submitted"),
  bulk: (jobs, size) => ask({ kind: "bulk", jobs, size }, "submitted"),
  paced: (rate, jobs) => ask({ kind: "paced", rate, jobs }, "submitted"),
  cpu: async () => (await ask({ kind: "usage" }, "usage")).cpu,
  close: stop
})

export const submitter = async (system, options) =>
  system.program === undefined
    ? here(await system.producer(options))
    : there(await running(byLines(system.program("submit", options))))
