/**
 * What a request must show before anything of it is read.
 *
 * A browser can be made to send requests to loopback by any page it has open: a foreign name that resolves to 127.0.0.1
 * is told by its Host, and a form that posts across sites by its Origin. There is no CORS, so nothing else gets through.
 */
import { Redacted } from "effect"
import { createHash, timingSafeEqual } from "node:crypto"
import type { IncomingMessage } from "node:http"
import * as ApiError from "./ApiError.ts"

export interface GuardOptions {
  readonly token: Redacted.Redacted | null
  /** Whether only this machine can reach us, by address. */
  readonly loopback: boolean
}

export const isLoopback = (host: string): boolean =>
  host === "localhost" || host === "::1" || host === "[::1]" || /^127(\.[0-9]{1,3}){3}$/.test(host)

const nameOf = (host: string): string => host.replace(/:[0-9]*$/, "").toLowerCase()

const digest = (text: string): Buffer => createHash("sha256").update(text).digest()

const hasBody = new Set(["POST", "PUT", "PATCH"])

export const pathOf = (url: string): string => {
  const end = url.indexOf("?")
  return end === -1 ? url : url.slice(0, end)
}

const hostError = ApiError.make(
  "host_not_allowed",
  "The Host header must name this machine (localhost or 127.0.0.1) while the server listens on loopback only."
)
const originError = ApiError.make("host_not_allowed", "Requests from pages of other origins are refused.")
const tokenError = ApiError.make("unauthorized", "Send the API token: `Authorization: Bearer <token>`.")

export const make = (options: GuardOptions): (request: IncomingMessage) => ApiError.ApiError | null => {
  // Digests are of one length, so that comparing them takes the same time whatever was sent.
  const expected = options.token === null ? null : digest(Redacted.value(options.token))
  const challenge = new ApiError.ApiError({ ...fieldsOf(tokenError), headers: { "www-authenticate": "Bearer" } })

  // Most requests come with the Host of the one before.
  let allowed: string | null = null

  return (request) => {
    const { authorization, host, origin } = request.headers
    if (options.loopback && (host === undefined || host !== allowed)) {
      if (host === undefined || !isLoopback(nameOf(host))) {
        return hostError
      }
      allowed = host
    }
    if (origin !== undefined && request.method !== "GET" && request.method !== "HEAD") {
      const from = /^https?:\/\/(.*)$/i.exec(origin)?.[1]
      if (from === undefined || from.toLowerCase() !== host?.toLowerCase()) {
        return originError
      }
    }
    if (expected !== null && pathOf(request.url ?? "") !== "/health") {
      const token = /^bearer +(.+)$/i.exec(authorization ?? "")?.[1] ?? ""
      if (!timingSafeEqual(digest(token), expected)) {
        return challenge
      }
    }
    return null
  }
}

const fieldsOf = ({ code, message }: ApiError.ApiError) => ({ code, message })

const mediaTypes = new Set(["application/json", "application/x-ndjson", "application/ndjson", "application/jsonl"])

/** What the body is, by its headers: `null` for an empty body. */
export const contentOf = (request: IncomingMessage): "json" | "ndjson" | null | ApiError.ApiError => {
  const { "content-encoding": encoding, "content-length": length, "content-type": type } = request.headers
  // As nearly all of them come.
  if (
    type === "application/json" && encoding === undefined && length !== undefined && length !== "0" &&
    request.method === "POST"
  ) {
    return "json"
  }
  if (!hasBody.has(request.method ?? "") || (length === "0" || (length === undefined && !isChunked(request)))) {
    return null
  }
  const [media = "", ...parameters] = (type ?? "").split(";").map((part) => part.trim().toLowerCase())
  const charset = parameters.find((part) => part.startsWith("charset="))?.slice(8).replaceAll("\"", "")
  if (!mediaTypes.has(media)) {
    return ApiError.make("unsupported_media_type", "Send JSON: `Content-Type: application/json`.")
  }
  if (charset !== undefined && charset !== "utf-8" && charset !== "utf8") {
    return ApiError.make("unsupported_media_type", "JSON is sent as UTF-8.")
  }
  if (encoding !== undefined && encoding.toLowerCase() !== "identity") {
    return ApiError.make("unsupported_media_type", "Compressed bodies are not read.")
  }
  return media === "application/json" ? "json" : "ndjson"
}

const isChunked = (request: IncomingMessage): boolean => request.headers["transfer-encoding"] !== undefined
