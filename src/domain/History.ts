/**
 * Lists that keep the first few and the newest, and say how many they left out.
 *
 * A job that fails a thousand times must not carry a thousand errors: the first
 * ones tell how it began, the newest what it is now.
 */

export const firstKept = 3
export const newestKept = 12

export interface History<A> {
  readonly entries: ReadonlyArray<A>
  readonly omitted: number
}

export const empty: History<never> = { entries: [], omitted: 0 }

export const append = <A>(history: History<A>, entry: A): History<A> => {
  const entries = [...history.entries, entry]
  if (entries.length <= firstKept + newestKept) {
    return { entries, omitted: history.omitted }
  }
  return {
    entries: [...entries.slice(0, firstKept), ...entries.slice(firstKept + 1)],
    omitted: history.omitted + 1
  }
}
