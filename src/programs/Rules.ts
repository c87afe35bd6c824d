/** The rules of the HTTP API for whoever does not come by HTTP, or not yet: one place decides what a request may be. */
import { Result } from "effect"
import { ApiError } from "../adapters/http/ApiError.ts"
import * as ListQuery from "../adapters/http/ListQuery.ts"
import * as QueueBody from "../adapters/http/QueueBody.ts"
import * as ScheduleBody from "../adapters/http/ScheduleBody.ts"
import * as SubmitBody from "../adapters/http/SubmitBody.ts"
import { SubmitRefused } from "./client/Contract.ts"
import type { Drafts } from "./client/Drafts.ts"
import * as SubmitOptions from "./client/SubmitOptions.ts"

const orRefused = <A>(read: A | ApiError): Result.Result<A, SubmitRefused> =>
  read instanceof ApiError
    ? Result.fail(new SubmitRefused(SubmitOptions.inOurWords(read.message, read.field)))
    : Result.succeed(read)

export const rules: Drafts["Service"] = {
  read: (body) => orRefused(SubmitBody.decode(body, "", null)),
  readSchedule: (text, body) => {
    const name = ScheduleBody.nameOf(text)
    return orRefused(name instanceof ApiError ? name : ScheduleBody.decode(name, JSON.stringify(body)))
  },
  readScheduleName: (text) => orRefused(ScheduleBody.nameOf(text)),
  readRun: (text, given) => {
    const name = ScheduleBody.nameOf(text)
    const key = given === null ? null : SubmitBody.headerKey([given])
    return orRefused(
      name instanceof ApiError
        ? name
        : key instanceof ApiError
        ? new ApiError({
          code: "invalid_field",
          message: `idempotency_key ${SubmitBody.keyRule}`,
          field: "idempotency_key"
        })
        : { name, key: key === null ? null : ScheduleBody.runKey(name, key) }
    )
  },
  readQueue: (body) => orRefused(QueueBody.decode(JSON.stringify(body))),
  readQueueName: (text) => orRefused(QueueBody.nameOf(text)),
  readList: (options) => orRefused(ListQuery.ofOptions(options))
}
