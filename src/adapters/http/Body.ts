/** Reads a body into text, within a bound. */
import { isUtf8 } from "node:buffer"
import type { IncomingMessage } from "node:http"
import * as ApiError from "./ApiError.ts"

const notUtf8 = ApiError.make("invalid_json", "The body is not valid UTF-8.")

export const tooLarge = (maxBytes: number): ApiError.ApiError =>
  ApiError.make("too_large", `The body has more than ${maxBytes} bytes.`)

export const toText = (bytes: Buffer): string | ApiError.ApiError => isUtf8(bytes) ? bytes.toString("utf8") : notUtf8

/** Calls `done` once, with the text or the reason why there is none; never if the client goes away before. */
export const read = (
  request: IncomingMessage,
  maxBytes: number,
  done: (text: string | ApiError.ApiError) => void
): void => {
  if (Number(request.headers["content-length"] ?? 0) > maxBytes) {
    done(tooLarge(maxBytes))
    return
  }
  let first: Buffer | null = null
  let rest: Array<Buffer> | null = null
  let bytes = 0
  let over = false
  request.on("data", (chunk: Buffer) => {
    if (over) {
      return
    }
    bytes += chunk.length
    if (bytes > maxBytes) {
      over = true
      rest = null
      first = null
      done(tooLarge(maxBytes))
    } else if (first === null) {
      first = chunk
    } else {
      rest ??= [first]
      rest.push(chunk)
    }
  })
  request.on("end", () => {
    if (!over) {
      done(first === null ? "" : toText(rest === null ? first : Buffer.concat(rest)))
    }
  })
}
