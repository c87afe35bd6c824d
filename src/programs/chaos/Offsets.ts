/**
 * Whether Kafka's offsets were committed after execution, and nothing was published too soon.
 *
 * An offset may well pass a job that still runs: a message about a job that somebody else runs is dropped, and after
 * each change of the group messages come again to others. So only those count that were taken while the group stayed as
 * it was, soon after they were sent; and of these a few may have been found by a worker without their message. A commit
 * on receipt passes nearly all of them while they run, so a share tells it apart.
 *
 * Whatever the group does, a job that nobody has claimed yet must not be passed. The few that may are those whose row
 * somebody had locked who then did not get it.
 */
import type { JobHistory, Passed } from "./Evidence.ts"
import { type Breach, isClaim, isNote } from "./Laws.ts"

/** Longer ago, somebody may have found the job in the store. */
const freshMs = 500
/** What a change of the group still brings after it is over. */
const settleMs = 2_000
const clocksMs = 100
const shareMax = 0.2
const unclaimedMs = 1_000
const unclaimedShareMax = 0.02
const fewest = 10
const namedMax = 10

export const make = () => {
  const early: Array<Breach> = []
  const above: Array<Breach> = []
  const unclaimed: Array<Breach> = []
  let counted = 0
  let passedWhileRunning = 0
  let passedUnclaimed = 0
  let messagesSeen = 0

  const add = ({ row, transitions }: JobHistory, messages: ReadonlyArray<Passed>) => {
    const changes = transitions.filter((change) => !isNote(change))
    const stored = changes.find(({ from }) => from === null)
    const first = changes.findIndex(isClaim)
    for (const { passedMs, sentMs, settledSinceMs } of messages) {
      if (stored !== undefined && sentMs < stored.atMs) {
        early.push({
          law: "no id was published before its job was stored",
          job: row.id,
          detail: `its message was sent ${stored.atMs - sentMs} ms before`
        })
      }
      const claim = changes[first]
      const claimedMs = claim?.atMs ?? Infinity
      messagesSeen += 1
      if (claimedMs > passedMs + unclaimedMs) {
        passedUnclaimed += 1
        if (unclaimed.length < namedMax) {
          unclaimed.push({
            law: "offsets are committed after execution",
            job: row.id,
            detail: `committed by ${passedMs}, and first claimed at ${claimedMs}`
          })
        }
      }
      if (settledSinceMs === null || sentMs < settledSinceMs + settleMs || claimedMs > sentMs + freshMs) {
        continue
      }
      counted += 1
      const endedMs = changes[first + 1]?.atMs ?? Infinity
      if (endedMs > passedMs + clocksMs) {
        passedWhileRunning += 1
        if (above.length < namedMax) {
          above.push({
            law: "offsets are committed after execution",
            job: row.id,
            detail: `committed by ${passedMs}, while it ran from ${claimedMs} to ${endedMs}`
          })
        }
      }
    }
  }

  return {
    add,
    counts: () => ({ messages: messagesSeen, counted, passedWhileRunning, passedUnclaimed }),
    breaches: (): ReadonlyArray<Breach> => [
      ...early,
      ...(passedWhileRunning >= fewest && passedWhileRunning > counted * shareMax ? above : []),
      ...(passedUnclaimed >= fewest && passedUnclaimed > messagesSeen * unclaimedShareMax ? unclaimed : [])
    ]
  }
}
