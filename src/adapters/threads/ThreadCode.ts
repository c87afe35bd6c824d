/**
 * What a thread runs: text rather than a module, because a bundle of the program has no file for it.
 *
 * It loads the module that it is told and calls what that exports. Errors go across with what the scheduler reads of
 * them, since a copy of an error has lost everything but its name, message and stack.
 */
export const threadCode = `
const { parentPort } = require("node:worker_threads")

const said = (error) => {
  if (typeof error !== "object" || error === null) return { name: "Error", message: String(error) }
  const text = (value) => typeof value === "string" ? value : undefined
  const cause = error.cause
  return {
    name: text(error.name) ?? "Error",
    tag: text(error._tag),
    message: text(error.message) ?? "",
    stack: text(error.stack),
    cause: typeof cause === "object" && cause !== null ? text(cause.message) : text(cause),
    retry: error.retry === false ? false : undefined,
    delayMs: error._tag === "deadman/Again" && typeof error.delayMs === "number" ? error.delayMs : undefined
  }
}

// A note that cannot be copied must not fail the run that makes it.
const plain = (value) => {
  try {
    return JSON.parse(JSON.stringify(value) ?? "null")
  } catch {
    return "[unreadable]"
  }
}

const text = (value) => {
  try {
    return String(value)
  } catch {
    return "[unreadable]"
  }
}

const isAgain = (value) => typeof value === "object" && value !== null && value._tag === "deadman/Again"

parentPort.on("message", async ({ run, url, name, payload, job, claim }) => {
  const send = (message) => parentPort.postMessage({ run, ...message })
  try {
    const module = await import(url)
    const handler = module[name]
    if (typeof handler !== "function") {
      throw new Error(url + " exports no function called " + name)
    }
    const value = await handler(payload, {
      job,
      claim,
      progress: (value) => send({ kind: "progress", value: plain(value) }),
      log: (line) => send({ kind: "log", line: text(line) })
    })
    if (isAgain(value)) throw value
    send({ kind: "value", value })
  } catch (error) {
    send({ kind: "error", error: said(error) })
  }
})
`
