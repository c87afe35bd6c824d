/**
 * What of one partition is settled: which offset may be committed.
 *
 * Messages end in any order. What may be committed is the offset behind the
 * longest run of ended ones from the beginning, never the newest ended one: a
 * message in front of it that is still in work would be acknowledged with it.
 *
 * After a rebalance the broker gives again what was not committed. Messages that
 * are known are not new then: they keep their state, so nothing runs again here.
 */
export interface Entry {
  readonly offset: number
  /** By which a message is known again; `null` for what could not be read. */
  readonly text: string | null
  /** Ids in it. */
  readonly ids: number
  ended: boolean
}

export interface Offsets {
  /**
   * Writes a message down. The entry is in work until `ended`; `isNew` is false where it was known. An offset that is
   * not behind the last one begins anew from there: the group goes on from another place, or the topic is another.
   */
  readonly admit: (
    offset: number,
    text: string | null,
    ids?: number
  ) => { readonly entry: Entry; readonly isNew: boolean }
  /** Ids from the first message that has not ended to the last that was admitted. */
  readonly size: () => number
  /** What may be committed, or `null` where nothing has changed. */
  readonly committable: () => number | null
  readonly committed: (offset: number) => void
  /** The group goes on from what is committed: nothing may be committed before it is known where that is. */
  readonly rejoin: () => void
}

export const make = (): Offsets => {
  let entries: Array<Entry> = []
  let head = 0
  let size = 0
  const known = new Map<number, Entry>()
  /** Behind the last ended one of the run. */
  let position = 0
  let committedAt = 0
  let last = Number.POSITIVE_INFINITY

  const advance = () => {
    while (head < entries.length && entries[head]!.ended) {
      position = entries[head]!.offset + 1
      size -= entries[head]!.ids
      head += 1
    }
    if (head > 1_000 && head * 2 > entries.length) {
      entries = entries.slice(head)
      head = 0
    }
  }

  const beginAt = (offset: number) => {
    // What was about to come again is known still.
    for (const entry of entries) {
      if (entry.offset >= committedAt) {
        known.set(entry.offset, entry)
      }
    }
    entries = []
    head = 0
    size = 0
    position = offset
    committedAt = offset
  }

  return {
    admit: (offset, text, ids = 1) => {
      if (offset <= last) {
        beginAt(offset)
      }
      last = offset
      const before = known.get(offset)
      known.delete(offset)
      const isNew = before === undefined || before.text !== text
      const entry = isNew ? { offset, text, ids, ended: false } : before
      entries.push(entry)
      size += entry.ids
      return { entry, isNew }
    },
    size: () => {
      advance()
      return size
    },
    committable: () => {
      advance()
      return last < Number.POSITIVE_INFINITY && position > committedAt ? position : null
    },
    committed: (offset) => {
      committedAt = Math.max(committedAt, offset)
    },
    rejoin: () => {
      last = Number.POSITIVE_INFINITY
    }
  }
}
