/**
 * Follows every job that a filter lets through, by looking again and again, and misses no change of any.
 *
 * There is no stream of changes: one would cost each settle something. So a look asks for what is new, down to what it
 * knows already, and then for the unfinished ones that it knows, by their ids, in turn. What happened to a job between
 * two looks at it, the job says (`Steps.ts`). A look costs so many requests at most: where more has happened than they can
 * bring, changes are told later, and not left out.
 *
 * New jobs are not the newest always: the transaction of some was under way for longer, or the clock that is in their
 * ids is behind. So the walk for what is new goes on below what it knows, down to what was the newest some looks ago.
 * What waited, ran or had failed before is found by walking those states once; and from then on slowly, for jobs that
 * come later still.
 */
import { Effect } from "effect"
import * as Steps from "./Steps.ts"

interface FollowedJob extends Steps.TimedJob {
  readonly id: string
}

interface Page<Job> {
  readonly jobs: ReadonlyArray<Job>
  readonly next_cursor: string | null
}

type Unfinished = "pending" | "running" | "failed"

export interface Asks<Job, E> {
  /** Newest first; with a state only those in it. */
  readonly list: (query: {
    readonly limit: number
    readonly state?: Unfinished
    readonly cursor?: string
  }) => Effect.Effect<Page<Job>, E>
  readonly getAll: (ids: ReadonlyArray<string>) => Effect.Effect<ReadonlyArray<Job>, E>
  /** By the clock of the database, as all times are. */
  readonly now: Effect.Effect<number, E>
}

export interface Limits {
  /** Jobs of one answer. */
  readonly page: number
  /** Answers of one look with new jobs, and with known ones, each. */
  readonly newPages: number
  readonly knownPages: number
  /** So many looks ago was the newest job down to which what is known is walked again, and the pages of one look for it. */
  readonly overlapLooks: number
  readonly overlapPages: number
  /** Unfinished jobs that are known at once: so many that each is looked at within the minute that a job is kept. */
  readonly followed: number
  /** Others that are remembered, so that nothing is told twice: as many as so many looks as are overlapped can meet. */
  readonly remembered: number
  /** A walk for what came late goes one page further at every so manyth look. */
  readonly lateEvery: number
  /** Pages with room left, each of which has looked at 10,000 jobs or so, after which nothing new is expected. */
  readonly shortPages: number
}

export const limits: Limits = {
  page: 200,
  newPages: 20,
  knownPages: 5,
  overlapLooks: 10,
  overlapPages: 5,
  followed: 100_000,
  remembered: 60_000,
  lateEvery: 10,
  shortPages: 1
}

/** Where a walk over new jobs had to be broken off, and down to where it was to go. */
interface Gap {
  readonly cursor: string
  readonly floor: string
}

const unfinished: ReadonlyArray<Unfinished> = ["pending", "running", "failed"]

/** One look after the other; each answers what happened since the one before, in its order. */
export const make = <Job extends FollowedJob, E>(
  { getAll, list, now }: Asks<Job, E>,
  { followed, knownPages, lateEvery, newPages, overlapLooks, overlapPages, page, remembered, shortPages }: Limits =
    limits
) => {
  /** The one that was looked at longest ago is the first. */
  const live = new Map<string, Steps.Place>()
  const others = new Map<string, Steps.Place>()
  /** The newest id that a walk has met. Lists go by id, in the order of its text. */
  let top = ""
  let gaps: ReadonlyArray<Gap> = []
  /** What `top` was after the last looks, the oldest first. */
  const tops: Array<string> = []
  /** The walks over what is unfinished. */
  const walks = unfinished.map((state) => ({ state, cursor: null as string | null, whole: false }))
  /** In this look. */
  const visited = new Set<string>()
  let looks = 0
  /** What happened by then was before. */
  let firstMs = 0
  let notes: Array<string> = []
  let overfull = false

  const remember = (id: string, told: Steps.Place) => {
    others.delete(id)
    others.set(id, told)
    for (const [oldest] of others) {
      if (others.size <= remembered) {
        break
      }
      others.delete(oldest)
    }
  }

  /** What of the job is new. Of one that was there before anybody looked it is what has happened since. */
  const meet = (job: Job): ReadonlyArray<Steps.Step<Job>> => {
    const told = live.get(job.id) ?? others.get(job.id)
    const steps = Steps.stepsOf(job)
    const last = steps.at(-1)!
    visited.add(job.id)
    const { atMs, epoch, rank } = told === undefined || Steps.isAfter(last, told) ? last : told
    const known: Steps.Place = { atMs, epoch, rank }
    live.delete(job.id)
    if (Steps.isEnded(job)) {
      remember(job.id, known)
    } else if (live.size < followed) {
      others.delete(job.id)
      live.set(job.id, known)
    } else {
      remember(job.id, known)
      if (!overfull) {
        overfull = true
        notes.push(
          `more than ${followed} unfinished jobs: not all of them are followed. --type, --queue or --tag makes it fewer`
        )
      }
    }
    return steps.filter((step) => told === undefined ? step.orderMs > firstMs : Steps.isAfter(step, told))
  }

  const pageAt = (cursor: string | null) => list({ limit: page, ...(cursor === null ? {} : { cursor }) })

  /** What came late: below what was met before, down to what was the newest some looks ago. */
  const walkOver = Effect.fnUntraced(function*(from: string, below: string, shortBefore: number) {
    const steps: Array<Steps.Step<Job>> = []
    let cursor: string | null = from
    let short = shortBefore
    for (let pages = 0; pages < overlapPages && cursor !== null && short < shortPages; pages++) {
      const { jobs, next_cursor }: Page<Job> = yield* pageAt(cursor)
      steps.push(...jobs.filter(({ id }) => id > below).flatMap(meet))
      short += jobs.length < page ? 1 : 0
      cursor = jobs.some(({ id }) => id <= below) ? null : next_cursor
    }
    return steps
  })

  /** From the newest, or from where an earlier look had to stop, down to what was met before. */
  const walkNew = Effect.fnUntraced(function*(gap: Gap | null, floor: string, pages: number) {
    const steps: Array<Steps.Step<Job>> = []
    let cursor = gap?.cursor ?? null
    let short = 0
    let used = 0
    while (used < pages) {
      const { jobs, next_cursor } = yield* pageAt(cursor)
      used += 1
      if (looks === 0) {
        // Figures may be some seconds behind.
        firstMs = Math.max(firstMs, ...jobs.map(({ created_at_ms }) => created_at_ms))
      }
      for (const job of jobs) {
        // What lies below was met long ago, and may be forgotten. Right behind the newest it is what was late.
        if (gap === null || job.id > floor) {
          steps.push(...meet(job))
        }
        top = job.id > top ? job.id : top
      }
      short += jobs.length < page ? 1 : 0
      cursor = next_cursor
      if (cursor === null || short >= shortPages || looks === 0) {
        return { steps, used, rest: null }
      }
      if (jobs.some(({ id }) => id <= floor)) {
        const below = tops[0] ?? floor
        if (gap === null && jobs.every(({ id }) => id > below)) {
          steps.push(...(yield* walkOver(cursor, below, short)))
        }
        return { steps, used, rest: null }
      }
    }
    return { steps, used, rest: cursor === null ? null : { cursor, floor } }
  })

  const lookNew = Effect.gen(function*() {
    const { rest, steps, used } = yield* walkNew(null, top, newPages)
    const open = rest === null ? [] : [rest]
    let left = newPages - used
    // The newest first: it is what the next walk ends at.
    for (const gap of gaps) {
      if (left === 0) {
        open.push(gap)
      } else {
        const walked = yield* walkNew(gap, gap.floor, left)
        left -= walked.used
        steps.push(...walked.steps)
        open.push(...(walked.rest === null ? [] : [walked.rest]))
      }
    }
    gaps = open
    tops.push(top)
    if (tops.length > overlapLooks) {
      tops.shift()
    }
    return steps
  })

  const lookKnown = Effect.gen(function*() {
    const steps: Array<Steps.Step<Job>> = []
    const ids: Array<string> = []
    for (const id of live.keys()) {
      if (ids.length >= page * knownPages) {
        break
      }
      if (!visited.has(id)) {
        ids.push(id)
      }
    }
    for (let from = 0; from < ids.length; from += page) {
      const asked = ids.slice(from, from + page)
      const jobs = yield* getAll(asked)
      for (const job of jobs) {
        steps.push(...meet(job))
      }
      for (const id of asked) {
        if (!visited.has(id)) {
          live.delete(id)
          notes.push(`${id} is gone: it was deleted before its end was seen`)
        }
      }
    }
    return steps
  })

  /** One page further. */
  const walkOn = Effect.fnUntraced(function*(walk: (typeof walks)[number]) {
    const { cursor, state, whole } = walk
    const { jobs, next_cursor } = yield* list({ limit: page, state, ...(cursor === null ? {} : { cursor }) })
    walk.cursor = next_cursor
    walk.whole = whole || next_cursor === null
    return jobs.flatMap(meet)
  })

  const lookLate = Effect.gen(function*() {
    const steps: Array<Steps.Step<Job>> = []
    for (let pages = 0; pages < knownPages; pages++) {
      const walk = walks.find(({ whole }) => !whole)
      if (walk === undefined) {
        break
      }
      steps.push(...(yield* walkOn(walk)))
    }
    if (looks % lateEvery === 0 && walks.every(({ whole }) => whole)) {
      for (const walk of walks) {
        steps.push(...(yield* walkOn(walk)))
      }
    }
    return steps
  })

  const look = Effect.gen(function*() {
    notes = []
    visited.clear()
    if (looks === 0) {
      firstMs = yield* now
    }
    const fresh = yield* lookNew
    const steps = [...fresh, ...(yield* lookKnown), ...(yield* lookLate)]
    const told = looks === 0 ? [] : steps
    looks += 1
    return { steps: told.sort((a, b) => a.orderMs - b.orderMs), notes }
  })

  return { look }
}
