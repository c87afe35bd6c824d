/** HTTP byte by byte, for what no well-behaved client would send. */
import { Effect } from "effect"
import { connect } from "node:net"

export interface RawAnswer {
  /** 0: the connection closed without an answer. */
  readonly status: number
  readonly text: string
  // oxlint-disable-next-line typescript/no-explicit-any -- tests read what they expect; a wrong shape fails the assertion
  readonly body: any
}

const parsed = (text: string): RawAnswer => {
  const body = text.slice(text.indexOf("\r\n\r\n") + 4)
  const status = Number(/^HTTP\/1\.1 ([0-9]{3})/.exec(text)?.[1] ?? 0)
  try {
    return { status, text, body: JSON.parse(body) }
  } catch {
    return { status, text, body }
  }
}

/** Sends `bytes` and answers what came back until the other side closed, or for `withinMs`. */
export const send = (port: number, bytes: string | Buffer, withinMs = 5_000): Effect.Effect<RawAnswer> =>
  Effect.callback((resume) => {
    const socket = connect(port, "127.0.0.1")
    let text = ""
    const done = () => {
      socket.destroy()
      resume(Effect.succeed(parsed(text)))
    }
    socket.setTimeout(withinMs, done)
    socket.on("data", (chunk) => {
      text += chunk.toString()
    })
    socket.on("close", done)
    socket.on("error", () => {})
    socket.write(bytes)
    return Effect.sync(() => socket.destroy())
  })

export const request = (
  port: number,
  method: string,
  path: string,
  headers: ReadonlyArray<readonly [string, string]>,
  body = ""
): Effect.Effect<RawAnswer> => {
  const lines = [["Host", `127.0.0.1:${port}`], ["Connection", "close"], ...headers]
  const given = headers.some(([name]) => name.toLowerCase() === "content-length")
  const length = body === "" || given ? [] : [["Content-Length", String(Buffer.byteLength(body))]]
  const own = headers.some(([name]) => name.toLowerCase() === "host")
  const head = [...lines.slice(own ? 1 : 0), ...length].map(([name, value]) => `${name}: ${value}\r\n`).join("")
  return send(port, `${method} ${path} HTTP/1.1\r\n${head}\r\n${body}`)
}

export const json = ["Content-Type", "application/json"] as const
