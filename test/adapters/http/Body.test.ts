/** Bodies as they come, in chunks of any size. */
import { assert, describe, it } from "@effect/vitest"
import type { IncomingMessage } from "node:http"
import { PassThrough } from "node:stream"
import * as ApiError from "../../../src/adapters/http/ApiError.ts"
import * as Body from "../../../src/adapters/http/Body.ts"

/** What is read of a request that is sent in `chunks`. */
const read = (chunks: ReadonlyArray<Buffer>, maxBytes: number, headers = {}) => {
  const request = Object.assign(new PassThrough(), { headers })
  const said: Array<string | ApiError.ApiError> = []
  Body.read(request as unknown as IncomingMessage, maxBytes, (text) => said.push(text))
  for (const chunk of chunks) {
    request.emit("data", chunk)
  }
  request.emit("end")
  return said
}

const tooLarge = [Body.tooLarge(8)]

describe("Body", () => {
  it("reads a body in one chunk, in several, and in none", () => {
    for (const chunks of [[], ["{}"], ["{", "}"], ["", "{", "", "}", ""], Array.from("{\"a\":1}".repeat(5_000))]) {
      assert.deepStrictEqual(read(chunks.map((chunk) => Buffer.from(chunk)), 100_000), [chunks.join("")])
    }
    const halves = [Buffer.from([0xc3]), Buffer.from([0xa9])]
    assert.deepStrictEqual(read(halves, 8), ["\u00e9"])
    assert.instanceOf(read(halves.slice(1), 8)[0], ApiError.ApiError)
  })

  it("says once that there is too much, and holds on to nothing of it", () => {
    const four = Buffer.alloc(4, "x")
    assert.deepStrictEqual(read([four, four], 8), ["xxxxxxxx"])
    assert.deepStrictEqual(read([four, four, four, four], 8), tooLarge)
    assert.deepStrictEqual(read([Buffer.alloc(9)], 8), tooLarge)
    assert.deepStrictEqual(read([], 8, { "content-length": "9" }).slice(0, 1), tooLarge)
  })

  it("a body that comes byte by byte is not kept as a million objects", () => {
    // One chunk again and again, with other bytes in it: who keeps it as it is reads the last of them only.
    const request = Object.assign(new PassThrough(), { headers: {} })
    let text: unknown = null
    Body.read(request as unknown as IncomingMessage, 100_000, (said) => {
      text = said
    })
    request.emit("data", Buffer.from("first,"))
    const chunk = Buffer.alloc(1)
    const letters = "abcdefghijklmnopqrstuvwxyz".repeat(2_000)
    for (const letter of letters) {
      chunk.write(letter)
      request.emit("data", chunk)
    }
    request.emit("end")
    assert.strictEqual(text, `first,${letters}`)
  })
})
