/**
 * What a worker has fetched: waiting to be taken, in work, or ended and not yet committed.
 *
 * Its bounds: a partition with too many messages between its first that has not ended and its newest fetches no more,
 * and the consumer waits while too many wait to be taken.
 */
import { Effect } from "effect"
import type { JobId } from "../../domain/JobId.ts"
import type { Delivery } from "../../ports/Transport.ts"
import * as Bell from "./Bell.ts"
import * as Message from "./Message.ts"
import * as Offsets from "./Offsets.ts"

/** Messages of one partition that may be uncommitted: so many may pass a slow one. */
export const uncommittedMax = 10_000

/** Messages that wait to be taken, beyond which nothing is fetched. */
const waitingMax = 500

const deliveryMax = 50

interface Waiting {
  readonly partition: number
  readonly entry: Offsets.Entry
  readonly id: JobId
}

interface Message {
  readonly offset: string
  readonly value: Buffer | null
}

export interface Inbox {
  /** Takes in messages of a partition, the oldest first. Answers how many of them, and how many could not be read. */
  readonly admit: (
    partition: number,
    messages: ReadonlyArray<Message>
  ) => { readonly admitted: number; readonly garbage: number }
  /** These partitions are ours, and no others. What was fetched of those and not taken is dropped. */
  readonly assign: (partitions: ReadonlyArray<number>) => void
  /** The next ids to be worked on, or `null`. */
  readonly take: () => Delivery | null
  readonly isFull: () => boolean
  /** Which partitions may fetch no more, and which may again. */
  readonly full: () => { readonly pause: ReadonlyArray<number>; readonly resume: ReadonlyArray<number> }
  readonly committable: () => ReadonlyArray<{ readonly partition: number; readonly offset: number }>
  readonly committed: (commits: ReadonlyArray<{ readonly partition: number; readonly offset: number }>) => void
  readonly arrived: Bell.Bell
  /** Rings when fewer wait. */
  readonly room: Bell.Bell
}

export const make = (): Inbox => {
  let partitions = new Map<number, Offsets.Offsets>()
  let paused = new Set<number>()
  let waiting: Array<Waiting> = []
  let head = 0
  const arrived = Bell.make()
  const room = Bell.make()

  const offsetsOf = (partition: number) => {
    const known = partitions.get(partition)
    if (known !== undefined) {
      return known
    }
    const made = Offsets.make()
    partitions.set(partition, made)
    return made
  }

  const take = (): Delivery | null => {
    const taken = waiting.slice(head, head + deliveryMax)
    if (taken.length === 0) {
      return null
    }
    head += taken.length
    if (head === waiting.length) {
      waiting = []
      head = 0
    } else if (head > 1_000) {
      waiting = waiting.slice(head)
      head = 0
    }
    room.ring()
    // One id may have been published twice.
    const entries = new Map<JobId, Array<Offsets.Entry>>()
    for (const { entry, id } of taken) {
      entries.set(id, [...(entries.get(id) ?? []), entry])
    }
    return {
      ids: [...entries.keys()],
      acknowledge: (ids) =>
        Effect.sync(() => {
          for (const id of ids) {
            for (const entry of entries.get(id) ?? []) {
              entry.ended = true
            }
          }
        })
    }
  }

  return {
    admit: (partition, messages) => {
      const offsets = offsetsOf(partition)
      let admitted = 0
      let garbage = 0
      for (const { offset, value } of messages) {
        if (offsets.size() >= uncommittedMax) {
          break
        }
        admitted += 1
        const id = Message.decode(value)
        const { entry, isNew } = offsets.admit(Number(offset), id)
        if (id === null) {
          entry.ended = true
          garbage += isNew ? 1 : 0
        } else if (isNew) {
          waiting.push({ partition, entry, id })
        }
      }
      if (admitted > 0) {
        arrived.ring()
      }
      return { admitted, garbage }
    },
    assign: (assigned) => {
      partitions = new Map(assigned.map((partition) => [partition, offsetsOf(partition)]))
      partitions.forEach((offsets) => offsets.rejoin())
      // A partition that comes back must not stay paused for what was full before it went.
      paused = new Set()
      waiting = waiting.slice(head).filter(({ partition }) => partitions.has(partition))
      head = 0
      room.ring()
    },
    take,
    isFull: () => waiting.length - head >= waitingMax,
    full: () => {
      const pause: Array<number> = []
      const resume: Array<number> = []
      for (const [partition, offsets] of partitions) {
        if (!paused.has(partition) && offsets.size() >= uncommittedMax) {
          paused.add(partition)
          pause.push(partition)
        } else if (paused.has(partition) && offsets.size() < uncommittedMax / 2) {
          paused.delete(partition)
          resume.push(partition)
        }
      }
      return { pause, resume }
    },
    committable: () =>
      [...partitions].flatMap(([partition, offsets]) => {
        const offset = offsets.committable()
        return offset === null ? [] : [{ partition, offset }]
      }),
    committed: (commits) => {
      for (const { offset, partition } of commits) {
        partitions.get(partition)?.committed(offset)
      }
    },
    arrived,
    room
  }
}
