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

/** Ids of one partition that may be uncommitted: so many may pass a slow one. */
export const uncommittedMax = 10_000

/** Ids that wait to be taken, beyond which nothing is fetched. */
const waitingMax = 500

const deliveryMax = 50

/** A message whose ids are in work. */
interface Open {
  readonly entry: Offsets.Entry
  left: number
}

interface Waiting {
  readonly partition: number
  readonly message: Open
  readonly id: JobId
}

interface Message {
  readonly offset: string
  readonly value: Buffer | null
}

export interface Admitted {
  readonly messages: number
  readonly ids: number
  /** Messages that could not be read. */
  readonly garbage: number
}

export interface Inbox {
  /** Takes in messages of a partition, the oldest first, until it is full. */
  readonly admit: (partition: number, messages: ReadonlyArray<Message>) => Admitted
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
    const open = new Map<JobId, Array<Open>>()
    for (const { id, message } of taken) {
      const before = open.get(id)
      if (before === undefined) {
        open.set(id, [message])
      } else {
        before.push(message)
      }
    }
    return {
      ids: [...open.keys()],
      acknowledge: (ids) =>
        Effect.sync(() => {
          for (const id of ids) {
            for (const message of open.get(id) ?? []) {
              message.left -= 1
              message.entry.ended = message.left === 0
            }
            // Said twice it is still one of them.
            open.delete(id)
          }
        })
    }
  }

  return {
    admit: (partition, messages) => {
      const offsets = offsetsOf(partition)
      let admitted = 0
      let admittedIds = 0
      let garbage = 0
      for (const { offset, value } of messages) {
        if (offsets.size() >= uncommittedMax) {
          break
        }
        admitted += 1
        const ids = Message.decode(value)
        const { entry, isNew } = offsets.admit(Number(offset), ids?.join() ?? null, ids?.length)
        admittedIds += entry.ids
        if (ids === null) {
          entry.ended = true
          garbage += isNew ? 1 : 0
        } else if (isNew) {
          const message: Open = { entry, left: ids.length }
          for (const id of ids) {
            waiting.push({ partition, message, id })
          }
        }
      }
      if (admitted > 0) {
        arrived.ring()
      }
      return { messages: admitted, ids: admittedIds, garbage }
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
