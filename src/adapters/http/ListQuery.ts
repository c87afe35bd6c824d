/** The parameters of `GET /jobs`, and the cursor that walks its pages. */
import { Option } from "effect"
import { createHash } from "node:crypto"
import { type JobType, namePattern, type Queue } from "../../domain/Job.ts"
import * as JobId from "../../domain/JobId.ts"
import { type JobState, jobStates } from "../../domain/JobState.ts"
import type { ListRequest } from "../../ports/JobStore.ts"
import { listIdsMax, listLimitDefault, listLimitMax, listOffsetMax } from "./Api.ts"
import * as ApiError from "./ApiError.ts"
import { notKnown, wrong } from "./Fields.ts"

type Filter = Omit<ListRequest, "limit" | "offset" | "before">

const filterMark = (filter: Filter): string =>
  createHash("sha256")
    .update(JSON.stringify([filter.state ?? null, filter.type ?? null, filter.queue ?? null, filter.tag ?? null]))
    .digest("hex").slice(0, 8)

/** Opaque; names its filter, so that it cannot go on in another list. */
export const cursorOf = (filter: Filter, next: JobId.JobId): string =>
  Buffer.from(`1.${filterMark(filter)}.${next}`).toString("base64url")

const wholeFrom = (text: string, minimum: number, maximum: number): number | null => {
  const value = /^[0-9]{1,9}$/.test(text) ? Number(text) : -1
  return value >= minimum && value <= maximum ? value : null
}

const filters = new Set(["state", "type", "queue", "tag", "limit", "offset"])
const parameters = new Set([...filters, "cursor", "id"])

export interface ListQuery {
  readonly filter: Filter
  readonly request: ListRequest
}

/** The jobs of these ids, and no walk. */
export interface ById {
  readonly ids: ReadonlyArray<JobId.JobId>
}

/** What is no id at all is that of no job, as in `/jobs/{id}`. */
const byId = (text: string, query: URLSearchParams): ById | ApiError.ApiError => {
  const given = text.split(",")
  return query.size > 1
    ? wrong("id", "is asked for alone: leave the other parameters out")
    : given.length > listIdsMax
    ? wrong("id", `must be at most ${listIdsMax} ids, with commas between`)
    : { ids: given.flatMap((one) => Option.toArray(JobId.fromText(one.trim()))) }
}

/** The filter and the size of a page; where it goes on from is said by whoever asks. */
const pageOf = (query: URLSearchParams): ListQuery | ApiError.ApiError => {
  const state = query.get("state")
  const type = query.get("type")
  const queue = query.get("queue")
  const tag = query.get("tag")
  if (state !== null && !jobStates.some((one) => one === state)) {
    return wrong("state", `must be one of ${jobStates.join(", ")}`)
  }
  if (type !== null && !namePattern.test(type)) {
    return wrong("type", "must be the type of a job")
  }
  if (queue !== null && !namePattern.test(queue)) {
    return wrong("queue", "must be the name of a queue")
  }
  if (tag !== null && !/^[\x20-\x7e]{1,64}$/.test(tag)) {
    return wrong("tag", "must be a tag of a job")
  }
  const limit = wholeFrom(query.get("limit") ?? String(listLimitDefault), 1, listLimitMax)
  if (limit === null) {
    return wrong("limit", `must be a whole number from 1 to ${listLimitMax}`)
  }
  const offset = wholeFrom(query.get("offset") ?? "0", 0, listOffsetMax)
  if (offset === null) {
    return wrong("offset", `must be a whole number from 0 to ${listOffsetMax}; use a cursor to go further`)
  }
  const filter: Filter = {
    ...(state === null ? {} : { state: state as JobState }),
    ...(type === null ? {} : { type: type as JobType }),
    ...(queue === null ? {} : { queue: queue as Queue }),
    ...(tag === null ? {} : { tag })
  }
  return { filter, request: { ...filter, limit, offset } }
}

/**
 * What a client in this process asks for, by the same rules. Its place is the id that an earlier page ended with, since
 * nobody else has to read that.
 */
export const ofOptions = ({ before, ...options }: {
  readonly [Name in "state" | "type" | "queue" | "tag" | "limit" | "offset" | "before"]?:
    | string
    | number
    | null
    | undefined
}): ListRequest | ApiError.ApiError => {
  const given = Object.entries(options).filter(([, value]) => value !== undefined)
  const unknown = given.find(([name]) => !filters.has(name))
  if (unknown !== undefined) {
    const shown = unknown[0].slice(0, 100)
    return notKnown(`${shown} is not an option of this list.`, shown, [...filters, "before"])
  }
  const page = pageOf(new URLSearchParams(Object.fromEntries(given.map(([name, value]) => [name, String(value)]))))
  if (page instanceof ApiError.ApiError || before === undefined || before === null) {
    return page instanceof ApiError.ApiError ? page : page.request
  }
  return Option.match(JobId.fromText(String(before)), {
    onNone: () => wrong("before", "must be the next of an earlier page"),
    onSome: (id) => ({ ...page.request, before: id })
  })
}

export const parse = (url: string): ListQuery | ById | ApiError.ApiError => {
  const query = new URLSearchParams(url.includes("?") ? url.slice(url.indexOf("?") + 1) : "")
  for (const name of query.keys()) {
    if (!parameters.has(name)) {
      const shown = name.slice(0, 100)
      return notKnown(`${shown} is not a parameter of this list.`, shown, parameters)
    }
    if (query.getAll(name).length > 1) {
      return wrong(name, "must be given once")
    }
  }
  const id = query.get("id")
  if (id !== null) {
    return byId(id, query)
  }
  const page = pageOf(query)
  if (page instanceof ApiError.ApiError) {
    return page
  }
  const { filter, request: { limit, offset } } = page
  const cursor = query.get("cursor")
  if (cursor === null) {
    return page
  }
  if (offset > 0) {
    return wrong("offset", "cannot be combined with a cursor")
  }
  const [version, mark, from = "", ...more] = Buffer.from(cursor.slice(0, 200), "base64url").toString("latin1").split(
    "."
  )
  const before = JobId.fromText(from)
  if (version !== "1" || more.length > 0 || before._tag === "None" || cursorOf(filter, before.value) !== cursor) {
    return wrong(
      "cursor",
      version === "1" && before._tag === "Some" && mark !== filterMark(filter)
        ? "belongs to a list with other filters"
        : "must be the next_cursor of an earlier page"
    )
  }
  return { filter, request: { ...filter, limit, offset: 0, before: before.value } }
}
