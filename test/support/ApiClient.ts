/** A plain HTTP client for tests of the built programs: it knows the wire and nothing of the code behind it. */
import { Effect } from "effect"

export interface Answer {
  readonly status: number
  readonly headers: Headers
  /** The parsed JSON body, or the text where it is none. */
  // oxlint-disable-next-line typescript/no-explicit-any -- tests read what they expect; a wrong shape fails the assertion
  readonly body: any
}

export interface ApiClient {
  readonly base: string
  /** Status 0 stands for no answer at all: refused, reset, or longer than the timeout. */
  readonly send: (
    method: string,
    path: string,
    body?: unknown,
    headers?: Record<string, string>
  ) => Effect.Effect<Answer>
}

export const make = (port: number, options: { readonly timeoutMs?: number } = {}): ApiClient => {
  const base = `http://127.0.0.1:${port}`
  return {
    base,
    send: (method, path, body, headers = {}) =>
      Effect.promise((signal) =>
        fetch(base + path, {
          method,
          headers: body === undefined ? headers : { "content-type": "application/json", ...headers },
          signal: AbortSignal.any([signal, AbortSignal.timeout(options.timeoutMs ?? 15_000)]),
          ...(body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) })
        }).then((response) =>
          response.text().then((text): Answer => {
            try {
              return { status: response.status, headers: response.headers, body: JSON.parse(text) }
            } catch {
              return { status: response.status, headers: response.headers, body: text }
            }
          })
        ).catch((error: unknown): Answer => ({ status: 0, headers: new Headers(), body: String(error) }))
      )
  }
}
