/** Reads what is said about queues, strictly, and says which field is wrong; and a queue as JSON. */
import { namePattern, nameRule, type Queue } from "../../domain/Job.ts"
import { concurrencyMax, type QueueSettings } from "../../domain/QueueSettings.ts"
import * as Rank from "../../domain/Rank.ts"
import type { QueueView } from "../../ports/Queues.ts"
import * as ApiError from "./ApiError.ts"
import { isRecord, isWhole, notKnown, whole, wrong } from "./Fields.ts"
import * as NamePage from "./NamePage.ts"
import { queuesLimitDefault, queuesLimitMax, strict } from "./QueueApi.ts"
import * as SubmitBody from "./SubmitBody.ts"

const fields = ["paused", "concurrency", "step_ms"]

export const decode = (text: string): Partial<QueueSettings> | ApiError.ApiError => {
  const parsed = SubmitBody.parse(text)
  if (parsed instanceof ApiError.ApiError) {
    return parsed
  }
  const { value } = parsed
  if (!isRecord(value)) {
    return ApiError.make("invalid_body", `The body must be a JSON object with some of: ${fields.join(", ")}.`)
  }
  const change: { paused?: boolean; concurrency?: number | null; stepMs?: number } = {}
  for (const [field, given] of Object.entries(value)) {
    switch (field) {
      case "paused":
        if (typeof given !== "boolean") return wrong(field, "must be true or false")
        change.paused = given
        break
      case "concurrency":
        if (given !== null && !isWhole(given, 1, concurrencyMax)) {
          return wrong(field, `${whole(1, concurrencyMax)}, or null for no limit; to stop it, pause`)
        }
        change.concurrency = given
        break
      case "step_ms":
        if (given !== strict && !isWhole(given, 0, Rank.stepMaxMs)) {
          return wrong(field, `${whole(0, Rank.stepMaxMs)}, or "${strict}"`)
        }
        change.stepMs = given === strict ? Rank.stepMaxMs : given
        break
      default: {
        const shown = field.slice(0, 100)
        return notKnown(`${shown} is not said of a queue; it has: ${fields.join(", ")}.`, shown, fields)
      }
    }
  }
  return change
}

export const nameOf = (text: string): Queue | ApiError.ApiError =>
  typeof text === "string" && namePattern.test(text) ? text as Queue : wrong("name", nameRule)

export const page = NamePage.make<Queue>({ kind: "q", limitDefault: queuesLimitDefault, limitMax: queuesLimitMax })

export const toJson = (queue: QueueView) => ({
  name: queue.name,
  paused: queue.paused,
  concurrency: queue.concurrency,
  step_ms: queue.stepMs === Rank.stepMaxMs ? strict : queue.stepMs,
  created_at_ms: queue.createdAtMs,
  jobs: queue.byState
})
