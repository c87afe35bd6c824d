/** Reads a body into text, within a bound. */
import { isUtf8 } from "node:buffer"
import type { IncomingMessage } from "node:http"
import * as ApiError from "./ApiError.ts"

const notUtf8 = ApiError.make("invalid_json", "The body is not valid UTF-8.")

export const tooLarge = (maxBytes: number): ApiError.ApiError =>
  ApiError.make("too_large", `The body has more than ${maxBytes} bytes.`)

/**
 * Bytes as they come, gathered in one buffer that doubles. Kept as they are, a body that is sent byte by byte would be
 * millions of objects: a hundred times its size.
 */
export interface Gathered {
  readonly add: (chunk: Buffer) => void
  /** All of them, whose memory is not used again. */
  readonly take: () => Buffer
  readonly bytes: () => number
}

const gatheredMin = 16_384
const none = Buffer.alloc(0)

export const gather = (): Gathered => {
  // Nearly always there is one chunk, which need not be copied.
  let only: Buffer | null = null
  let all = none
  let bytes = 0

  const copy = (chunk: Buffer) => {
    if (bytes + chunk.length > all.length) {
      const larger = Buffer.allocUnsafe(Math.max(gatheredMin, 2 * all.length, bytes + chunk.length))
      all.copy(larger, 0, 0, bytes)
      all = larger
    }
    chunk.copy(all, bytes)
    bytes += chunk.length
  }

  return {
    add: (chunk) => {
      if (only === null && bytes === 0) {
        only = chunk
        return
      }
      if (only !== null) {
        const first = only
        only = null
        copy(first)
      }
      copy(chunk)
    },
    take: () => {
      const taken = only ?? all.subarray(0, bytes)
      only = null
      all = none
      bytes = 0
      return taken
    },
    bytes: () => only?.length ?? bytes
  }
}

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
  const body = gather()
  let over = false
  request.on("data", (chunk: Buffer) => {
    if (over) {
      return
    }
    if (body.bytes() + chunk.length > maxBytes) {
      over = true
      body.take()
      done(tooLarge(maxBytes))
    } else {
      body.add(chunk)
    }
  })
  request.on("end", () => {
    if (!over) {
      done(toText(body.take()))
    }
  })
}
