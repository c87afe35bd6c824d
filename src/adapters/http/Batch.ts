/**
 * `POST /jobs/batch`: an array, stored as a whole or not at all, or lines of NDJSON, each on its own.
 *
 * Lines are answered while more arrive, in the order in which they are known. What is under way is bounded, so a client
 * that does not read its answers is not read from either.
 */
import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { Effect, Semaphore, Stream } from "effect"
import { type HttpServerRequest, HttpServerResponse } from "effect/http"
import type { IncomingMessage } from "node:http"
import { batchJobsMax, batchMaxBytes } from "../../domain/Job.ts"
import { JobStore } from "../../ports/JobStore.ts"
import { type JobDraft, Submitter } from "../../ports/Submitter.ts"
import { bodyMaxBytes, ndjsonLinesMax } from "./Api.ts"
import * as ApiError from "./ApiError.ts"
import * as Body from "./Body.ts"
import * as Guard from "./Guard.ts"
import { keysOf } from "./HotSubmit.ts"
import * as Reply from "./Reply.ts"
import * as ReusedKey from "./ReusedKey.ts"
import * as SubmitBody from "./SubmitBody.ts"

const linesInFlight = 128
/** Of one request, answered or not, as long as its answers are not read: beyond that nothing more of it is read either. */
const linesBytesMax = 4 * 1_048_576

export const nodeRequestOf = (request: HttpServerRequest.HttpServerRequest): IncomingMessage =>
  NodeHttpServerRequest.toIncomingMessage(request) as IncomingMessage

export const readText = (
  request: HttpServerRequest.HttpServerRequest,
  maxBytes: number
): Effect.Effect<string, ApiError.ApiError> =>
  Effect.callback((resume) =>
    Body.read(
      nodeRequestOf(request),
      maxBytes,
      (text) => resume(text instanceof ApiError.ApiError ? Effect.fail(text) : Effect.succeed(text))
    )
  )

const submitArray = Effect.fnUntraced(function*(request: HttpServerRequest.HttpServerRequest) {
  const submitter = yield* Submitter
  const store = yield* JobStore
  const parsed = SubmitBody.parse(yield* readText(request, batchMaxBytes))
  if (parsed instanceof ApiError.ApiError) {
    return yield* parsed
  }
  const entries = parsed.value
  if (!Array.isArray(entries) || entries.length === 0 || entries.length > batchJobsMax) {
    return yield* ApiError.make("invalid_body", `The body must be an array of 1 to ${batchJobsMax} jobs.`)
  }
  const drafts = entries.map((entry, index) => SubmitBody.decode(entry, `[${index}].`, null))
  const wrong = drafts.find((draft) => draft instanceof ApiError.ApiError)
  if (wrong !== undefined) {
    return yield* wrong
  }
  const jobs = drafts.filter((draft): draft is JobDraft => !(draft instanceof ApiError.ApiError))
  const answers = yield* Effect.mapError(submitter.submitAll(jobs), Reply.unavailable)
  const replies = answers.map((answer, index) => ({
    aborted: answer._tag === "Aborted",
    reply: Reply.submitted(jobs[index]!, answer)
  }))
  const guilty = replies.findIndex(({ aborted, reply }) => !aborted && reply instanceof ApiError.ApiError)
  const reused = answers[guilty]
  const failure = reused?._tag === "KeyMismatch"
    ? yield* ReusedKey.explained(store, jobs[guilty]!, reused.id)
    : replies[guilty === -1 ? replies.findIndex(({ aborted }) => aborted) : guilty]?.reply
  if (failure instanceof ApiError.ApiError) {
    return yield* new ApiError.ApiError({
      code: failure.code,
      message: `[${Math.max(guilty, 0)}]: ${failure.message} Nothing of the batch was stored.`,
      field: `[${Math.max(guilty, 0)}]${failure.field === undefined ? "" : `.${failure.field}`}`,
      headers: failure.headers
    })
  }
  const texts = replies.flatMap(({ reply }) => reply instanceof ApiError.ApiError ? [] : [reply])
  return Reply.toEffect({
    status: texts.some(({ status }) => status === 201) ? 201 : 200,
    body: `{"jobs":[${texts.map(({ body }) => body).join(",")}],"outcomes":${
      JSON.stringify(texts.map(Reply.outcomeOf))
    }}`
  })
})

/** Of the line that is not over yet; of one that is too long nothing is kept. */
interface Lines {
  readonly number: number
  readonly begun: Body.Gathered
  readonly tooLong: boolean
}

interface Line {
  readonly number: number
  /** `null`: longer than a line may be. */
  readonly bytes: Buffer | null
}

const begin = (number: number): Lines => ({ number, begun: Body.gather(), tooLong: false })

const lineOf = ({ begun, number, tooLong }: Lines): Line => ({ number, bytes: tooLong ? null : begun.take() })

const cut = (state: Lines, chunk: Uint8Array): readonly [Lines, ReadonlyArray<Line>] => {
  const lines: Array<Line> = []
  let { begun, number, tooLong } = state
  let from = 0
  for (;;) {
    const at = chunk.indexOf(10, from)
    const part = chunk.subarray(from, at === -1 ? chunk.length : at)
    if (begun.bytes() + part.length > bodyMaxBytes) {
      tooLong = true
      begun.take()
    }
    if (!tooLong && part.length > 0) {
      begun.add(Buffer.from(part.buffer, part.byteOffset, part.length))
    }
    if (at === -1) {
      return [{ number, begun, tooLong }, lines]
    }
    lines.push(lineOf({ number, begun, tooLong }))
    number += 1
    tooLong = false
    from = at + 1
  }
}

const encoder = new TextEncoder()

const lineText = (number: number, reply: Reply.Reply | ApiError.ApiError): Uint8Array =>
  encoder.encode(
    reply instanceof ApiError.ApiError
      ? `{"line":${number},"status":${ApiError.codes[reply.code]},"error":${
        JSON.stringify(ApiError.bodyOf(reply).error)
      }}\n`
      : `{"line":${number},"status":${reply.status},"job":${reply.body}}\n`
  )

const submitLine = (
  submitter: Submitter["Service"],
  store: JobStore["Service"],
  line: Line
): Effect.Effect<Uint8Array> => {
  if (line.number > ndjsonLinesMax) {
    return Effect.succeed(lineText(line.number, ApiError.make("too_large", `More than ${ndjsonLinesMax} lines.`)))
  }
  const text = line.bytes === null ? Body.tooLarge(bodyMaxBytes) : Body.toText(line.bytes)
  const draft = text instanceof ApiError.ApiError ? text : SubmitBody.decodeText(text, null)
  return draft instanceof ApiError.ApiError
    ? Effect.succeed(lineText(line.number, draft))
    : submitter.submit(draft).pipe(
      Effect.matchEffect({
        onFailure: (error) => Effect.succeed(Reply.unavailable(error)),
        onSuccess: (answered) => ReusedKey.submitted(store, draft, answered)
      }),
      Effect.map((reply) => lineText(line.number, reply))
    )
}

const isBlank = (line: Line): boolean => line.bytes !== null && line.bytes.toString("latin1").trim() === ""

const submitLines = Effect.fnUntraced(function*(request: HttpServerRequest.HttpServerRequest) {
  const submitter = yield* Submitter
  const store = yield* JobStore
  const room = yield* Semaphore.make(linesBytesMax)
  const weigh = ({ bytes }: Line) => Math.min(bytes?.length ?? 0, linesBytesMax)
  const answers = request.stream.pipe(
    Stream.mapAccum((): Lines => begin(1), cut, { onHalt: (state) => [lineOf(state)] }),
    Stream.filter((line) => !isBlank(line)),
    Stream.takeUntil((line) => line.number > ndjsonLinesMax),
    // One after the other: whoever waits for room in here is the only line that is read and not begun.
    Stream.tap((line) => room.take(weigh(line))),
    Stream.mapEffect(
      (line) => Effect.map(submitLine(submitter, store, line), (text) => ({ text, weight: weigh(line) })),
      { concurrency: linesInFlight, unordered: true }
    ),
    Stream.mapEffect(({ text, weight }) => Effect.as(room.release(weight), text))
  )
  // The first, empty chunk sends the status before the first line is known.
  return HttpServerResponse.stream(Stream.concat(Stream.succeed(new Uint8Array(0)), answers), {
    contentType: "application/x-ndjson"
  })
})

export const submit = Effect.fnUntraced(function*(request: HttpServerRequest.HttpServerRequest) {
  const nodeRequest = nodeRequestOf(request)
  const content = Guard.contentOf(nodeRequest)
  if (content instanceof ApiError.ApiError) {
    return yield* content
  }
  if (keysOf(nodeRequest).length > 0) {
    return yield* ApiError.make(
      "invalid_idempotency_key",
      "A batch takes its keys per entry: use the field idempotency_key."
    )
  }
  return yield* content === "ndjson" ? submitLines(request) : submitArray(request)
})
