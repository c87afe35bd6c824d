/** Walks lists of jobs to their end. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import type { Job } from "../../src/domain/Job.ts"
import type { JobId } from "../../src/domain/JobId.ts"
import { JobStore, type ListPage, type ListRequest } from "../../src/ports/JobStore.ts"

/** What the walk showed, and on how many pages; `between` happens after each page but the last. */
export const walk = Effect.fnUntraced(function*<E = never, R = never>(
  request: Omit<ListRequest, "offset" | "before">,
  { between = Effect.void, pagesMax }: {
    readonly pagesMax: number
    readonly between?: Effect.Effect<unknown, E, R>
  }
) {
  const store = yield* JobStore
  const jobs: Array<Job> = []
  let before: JobId | null = null
  for (let pages = 1; pages <= pagesMax; pages++) {
    const asked: ListRequest = { ...request, offset: 0, ...(before === null ? {} : { before }) }
    const page: ListPage = yield* store.list(asked)
    assert.isAtMost(page.jobs.length, request.limit)
    jobs.push(...page.jobs)
    if (page.next === null) {
      return { jobs, pages }
    }
    before = page.next
    yield* between
  }
  return assert.fail(`more than ${pagesMax} pages`)
})
