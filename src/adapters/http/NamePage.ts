/** Lists of things that have a name: which page of them a request asks for, walked by name. */
import { namePattern } from "../../domain/Job.ts"
import type * as ApiError from "./ApiError.ts"
import { notKnown, whole, wrong } from "./Fields.ts"

const parameters = new Set(["limit", "cursor"])

export interface NamePage<Name extends string> {
  /** Opaque to the caller. */
  readonly cursorOf: (last: Name) => string
  readonly parse: (url: string) => { readonly limit: number; readonly after: Name | null } | ApiError.ApiError
}

/** `kind` is a letter that tells the cursor of one list from another's. */
export const make = <Name extends string>(
  options: { readonly kind: string; readonly limitDefault: number; readonly limitMax: number }
): NamePage<Name> => {
  const cursorOf = (last: Name) => Buffer.from(`${options.kind}.${last}`).toString("base64url")
  return {
    cursorOf,
    parse: (url) => {
      const query = new URLSearchParams(url.includes("?") ? url.slice(url.indexOf("?") + 1) : "")
      for (const name of query.keys()) {
        const shown = name.slice(0, 100)
        if (!parameters.has(name)) {
          return notKnown(`${shown} is not a parameter of this list.`, shown, parameters)
        }
        if (query.getAll(name).length > 1) {
          return wrong(name, "must be given once")
        }
      }
      const text = query.get("limit") ?? String(options.limitDefault)
      const limit = /^[0-9]{1,9}$/.test(text) ? Number(text) : 0
      if (limit < 1 || limit > options.limitMax) {
        return wrong("limit", whole(1, options.limitMax))
      }
      const cursor = query.get("cursor")
      if (cursor === null) {
        return { limit, after: null }
      }
      const after = Buffer.from(cursor.slice(0, 400), "base64url").toString("latin1").slice(2)
      return namePattern.test(after) && cursorOf(after as Name) === cursor
        ? { limit, after: after as Name }
        : wrong("cursor", "must be the next_cursor of an earlier page")
    }
  }
}
