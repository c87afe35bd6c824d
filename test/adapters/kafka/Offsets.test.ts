import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type * as Bell from "../../../src/adapters/kafka/Bell.ts"
import * as Inbox from "../../../src/adapters/kafka/Inbox.ts"
import * as Message from "../../../src/adapters/kafka/Message.ts"
import * as Offsets from "../../../src/adapters/kafka/Offsets.ts"
import type { JobId } from "../../../src/domain/JobId.ts"
import * as Ids from "../../support/Ids.ts"

const ids = Array.from({ length: 30 }, Ids.jobId)

const messages = (from: number, count: number, of: (n: number) => JobId = (n) => ids[n]!) =>
  Array.from(
    { length: count },
    (_, n) => ({ offset: String(from + n), value: Buffer.from(Message.encode([of(from + n)])) })
  )

describe("Offsets", () => {
  it("may be committed up to the first message that is in work, in whatever order others end", () => {
    const offsets = Offsets.make()
    const entries = Array.from({ length: 5 }, (_, n) => offsets.admit(10 + n, ids[n]!).entry)
    assert.isNull(offsets.committable())
    for (const n of [4, 2, 1]) {
      entries[n]!.ended = true
      assert.isNull(offsets.committable())
    }
    entries[0]!.ended = true
    assert.strictEqual(offsets.committable(), 13)
    offsets.committed(13)
    // Of two commits under way the older one may be answered last.
    offsets.committed(12)
    assert.isNull(offsets.committable())
    entries[3]!.ended = true
    assert.strictEqual(offsets.committable(), 15)
    assert.strictEqual(offsets.size(), 0)
  })

  it("a message that comes again is known, in work or ended", () => {
    const offsets = Offsets.make()
    const first = Array.from({ length: 4 }, (_, n) => offsets.admit(n, ids[n]!).entry)
    first[1]!.ended = true
    const again = Array.from({ length: 4 }, (_, n) => offsets.admit(n, ids[n]!))
    assert.deepStrictEqual(again.map(({ isNew }) => isNew), [false, false, false, false])
    assert.isNull(offsets.committable())
    first[0]!.ended = true
    assert.strictEqual(offsets.committable(), 2)
    assert.isTrue(offsets.admit(4, ids[4]!).isNew)
    assert.strictEqual(offsets.size(), 3, "what came again counts once")
  })

  it("what was about to come again when the group was joined once more is known then too", () => {
    const offsets = Offsets.make()
    const first = Array.from({ length: 3 }, (_, n) => offsets.admit(n, ids[n]!).entry)
    first[2]!.ended = true
    offsets.rejoin()
    offsets.admit(0, ids[0]!)
    offsets.rejoin()
    const again = Array.from({ length: 3 }, (_, n) => offsets.admit(n, ids[n]!))
    assert.deepStrictEqual(again, first.map((entry) => ({ entry, isNew: false })))
  })

  it("another topic under the same name has other messages at the same offsets", () => {
    const offsets = Offsets.make()
    offsets.admit(0, ids[0]!)
    offsets.admit(1, ids[1]!)
    const other = offsets.admit(0, ids[2]!)
    assert.isTrue(other.isNew)
    const third = offsets.admit(0, ids[3]!)
    assert.isTrue(third.isNew)
    third.entry.ended = true
    assert.strictEqual(offsets.committable(), 1)
  })

  it("offsets that are set back are committed from there", () => {
    const offsets = Offsets.make()
    offsets.admit(100, ids[0]!).entry.ended = true
    offsets.committed(offsets.committable()!)
    const again = offsets.admit(3, ids[1]!)
    assert.isTrue(again.isNew)
    again.entry.ended = true
    assert.strictEqual(offsets.committable(), 4)
    assert.isTrue(offsets.admit(100, ids[0]!).isNew, "what was committed is asked for again")
  })

  it("after a rebalance nothing is committed before it is seen where the group goes on", () => {
    const offsets = Offsets.make()
    offsets.admit(7, ids[0]!).entry.ended = true
    offsets.rejoin()
    assert.isNull(offsets.committable())
    assert.isFalse(offsets.admit(7, ids[0]!).isNew)
    assert.strictEqual(offsets.committable(), 8)
  })

  it("stays small and right however many messages pass", () => {
    const offsets = Offsets.make()
    for (let n = 0; n < 100_000; n++) {
      offsets.admit(n, ids[0]!).entry.ended = true
      if (offsets.size() !== 0 || offsets.committable() !== n + 1) {
        assert.fail(`after ${n} of them ${offsets.size()} count, and ${offsets.committable()} may be committed`)
      }
    }
  })
})

describe("Message", () => {
  const read = (texts: ReadonlyArray<string>) => texts.flatMap((text) => Message.decode(Buffer.from(text)) ?? [])

  it("few ids go one by one, many share their messages, and all are read in their order", () => {
    const many = Array.from({ length: 4_000 }, Ids.jobId)
    for (const count of [0, 1, 24, 47, 48, 100, 500, 1_000, 4_000]) {
      const sent = many.slice(0, count)
      const packed = Message.pack(sent)
      assert.deepStrictEqual(read(packed), sent)
      assert.isAtLeast(packed.length, Math.min(count, 24))
    }
    assert.deepStrictEqual(Message.pack(many.slice(0, 2)), [`1:${many[0]}`, `1:${many[1]}`])
    assert.strictEqual(Message.pack(many.slice(0, 47)).length, 47)
    assert.strictEqual(Message.pack(many.slice(0, 1_000)).length, Math.ceil(1_000 / 41))
    assert.strictEqual(Message.pack(many).length, Math.ceil(4_000 / Message.idsMax))
  })
})

describe("Inbox", () => {
  const settle = (inbox: Inbox.Inbox) => {
    const delivery = inbox.take()
    if (delivery !== null) {
      Effect.runSync(delivery.acknowledge(delivery.ids))
    }
    return delivery?.ids ?? []
  }

  it("delivers each id once, and acknowledges each message that named it", () => {
    const inbox = Inbox.make()
    inbox.assign([0])
    inbox.admit(0, messages(0, 4, (n) => ids[n % 2]!))
    assert.deepStrictEqual(settle(inbox), [ids[0]!, ids[1]!])
    const commits = inbox.committable()
    assert.deepStrictEqual(commits, [{ partition: 0, offset: 4 }])
    inbox.committed(commits)
    assert.deepStrictEqual(inbox.committable(), [])
  })

  it("gives out what it has fetched in order and once, however much that is", () => {
    const inbox = Inbox.make()
    inbox.assign([0])
    const many = Array.from({ length: 2_500 }, Ids.jobId)
    inbox.admit(0, messages(0, 2_500, (n) => many[n]!))
    const taken: Array<JobId> = []
    for (let n = 0; n < 25; n++) {
      taken.push(...settle(inbox))
    }
    // What was taken is not given out again for a rebalance, and what was not is not lost by it.
    inbox.assign([0])
    for (let more = settle(inbox); more.length > 0; more = settle(inbox)) {
      taken.push(...more)
    }
    assert.deepStrictEqual(taken, many)
  })

  it.live("is full while too many wait, and says where there is something and where there is room", () => {
    const inbox = Inbox.make()
    const rings = (bell: Bell.Bell) =>
      Effect.raceFirst(Effect.as(bell.wait(60_000), true), Effect.as(Effect.sleep(1), false))
    return Effect.gen(function*() {
      inbox.assign([0])
      assert.isTrue(yield* rings(inbox.room), "what waited before may be another's now")
      const many = Array.from({ length: 500 }, Ids.jobId)
      inbox.admit(0, messages(0, 499, (n) => many[n]!))
      assert.isTrue(yield* rings(inbox.arrived), "something has arrived")
      assert.isFalse(inbox.isFull())
      inbox.admit(0, messages(499, 1, (n) => many[n]!))
      assert.isTrue(inbox.isFull())
      assert.isFalse(yield* rings(inbox.room))
      inbox.take()
      assert.isTrue(yield* rings(inbox.room), "some were taken")
      assert.isFalse(inbox.isFull())
    })
  })

  it("skips what cannot be read, and counts it once", () => {
    const inbox = Inbox.make()
    inbox.assign([0])
    const texts = ["", "{}", `2:${ids[0]}`, `3:${ids[0]}`, `1:${ids[0]},${ids[1]}`, "\0".repeat(38)]
    const garbage = [null, ...texts.map((text) => Buffer.from(text))].map((value, n) => ({ offset: String(n), value }))
    assert.deepStrictEqual(inbox.admit(0, garbage), { messages: 7, ids: 7, garbage: 7 })
    assert.isNull(inbox.take())
    assert.deepStrictEqual(inbox.committable(), [{ partition: 0, offset: 7 }])
    assert.deepStrictEqual(inbox.admit(0, [...garbage, ...messages(7, 1)]), { messages: 8, ids: 8, garbage: 0 })
    assert.deepStrictEqual(settle(inbox), [ids[7]!])
  })

  it("acknowledges a message of several ids with the last of them, however often one is said to be done", () => {
    const inbox = Inbox.make()
    inbox.assign([0])
    inbox.admit(0, [
      { offset: "0", value: Buffer.from(Message.encode([ids[0]!, ids[1]!, ids[2]!])) },
      ...messages(1, 1)
    ])
    const delivery = inbox.take()!
    assert.deepStrictEqual(delivery.ids, [ids[0]!, ids[1]!, ids[2]!])
    for (const done of [[ids[1]!, ids[1]!], [ids[1]!], [ids[2]!]]) {
      Effect.runSync(delivery.acknowledge(done))
      assert.deepStrictEqual(inbox.committable(), [])
    }
    Effect.runSync(delivery.acknowledge([ids[0]!]))
    assert.deepStrictEqual(inbox.committable(), [{ partition: 0, offset: 2 }])
  })

  it("a message of several ids is done with the last of them where deliveries divide it, and where it comes again", () => {
    const inbox = Inbox.make()
    inbox.assign([0])
    const many = Array.from({ length: 70 }, Ids.jobId)
    const message = (from: number, to: number, offset: number) => ({
      offset: String(offset),
      value: Buffer.from(Message.encode([many[from]!, ...many.slice(from + 1, to)]))
    })
    const all = [message(0, 40, 0), message(40, 70, 1)]
    assert.deepStrictEqual(inbox.admit(0, all), { messages: 2, ids: 70, garbage: 0 })
    const [first, second] = [inbox.take()!, inbox.take()!]
    assert.deepStrictEqual([...first.ids, ...second.ids], many)
    Effect.runSync(first.acknowledge(first.ids))
    inbox.assign([0])
    assert.deepStrictEqual(inbox.committable(), [])
    inbox.admit(0, all)
    assert.isNull(inbox.take())
    assert.deepStrictEqual(inbox.committable(), [{ partition: 0, offset: 1 }])
    Effect.runSync(second.acknowledge(second.ids))
    assert.deepStrictEqual(inbox.committable(), [{ partition: 0, offset: 2 }])
  })

  it("drops what it has fetched of a partition that is somebody else's now, and keeps the rest", () => {
    const inbox = Inbox.make()
    inbox.assign([0, 1])
    inbox.admit(0, messages(0, 2))
    inbox.admit(1, messages(2, 2))
    inbox.assign([1])
    inbox.admit(1, messages(2, 2))
    assert.deepStrictEqual(settle(inbox), [ids[2]!, ids[3]!])
    assert.deepStrictEqual(inbox.committable(), [{ partition: 1, offset: 4 }])
  })

  it("what ends after its partition went is not committed when that comes back", () => {
    const inbox = Inbox.make()
    inbox.assign([0])
    inbox.admit(0, messages(0, 1))
    const delivery = inbox.take()!
    inbox.assign([])
    inbox.assign([0])
    inbox.admit(0, messages(0, 1))
    Effect.runSync(delivery.acknowledge(delivery.ids))
    assert.deepStrictEqual(inbox.committable(), [])
    assert.deepStrictEqual(settle(inbox), [ids[0]!])
    assert.deepStrictEqual(inbox.committable(), [{ partition: 0, offset: 1 }])
  })

  it("stops a partition with a slow message once enough have passed it, and lets it go on afterwards", () => {
    const inbox = Inbox.make()
    inbox.assign([0, 1])
    inbox.admit(0, messages(0, 1))
    const slow = inbox.take()!
    const fast = Array.from({ length: Inbox.uncommittedMax }, (_, n) => ({ offset: String(n + 1), value: null }))
    assert.strictEqual(inbox.admit(0, fast).messages, Inbox.uncommittedMax - 1)
    assert.deepStrictEqual(inbox.full(), { pause: [0], resume: [] })
    assert.deepStrictEqual(inbox.full(), { pause: [], resume: [] })
    Effect.runSync(slow.acknowledge(slow.ids))
    assert.deepStrictEqual(inbox.full(), { pause: [], resume: [0] })
    assert.deepStrictEqual(inbox.committable(), [{ partition: 0, offset: Inbox.uncommittedMax }])
  })

  it("says again that a partition is full where the group was joined anew, which fetches from all of them", () => {
    const inbox = Inbox.make()
    inbox.assign([0])
    inbox.admit(0, messages(0, 1))
    const many = Array.from({ length: Inbox.uncommittedMax }, (_, n) => ({ offset: String(n + 1), value: null }))
    inbox.admit(0, many)
    assert.deepStrictEqual(inbox.full(), { pause: [0], resume: [] })
    inbox.assign([0])
    assert.deepStrictEqual(inbox.full(), { pause: [0], resume: [] })
    assert.deepStrictEqual(inbox.full(), { pause: [], resume: [] })
  })

  it("is full of ids, however few messages they came in", () => {
    const inbox = Inbox.make()
    inbox.assign([0])
    const [first, ...further] = ids.slice(0, 10)
    const value = Buffer.from(Message.encode([first!, ...further]))
    const many = Array.from({ length: Inbox.uncommittedMax }, (_, n) => ({ offset: String(n), value }))
    assert.strictEqual(inbox.admit(0, many).messages, Inbox.uncommittedMax / 10)
    assert.deepStrictEqual(inbox.full(), { pause: [0], resume: [] })
    // Not at the first that has ended, or it would be paused and resumed with each.
    for (let left = Inbox.uncommittedMax; left > Inbox.uncommittedMax / 2; left -= 50) {
      assert.deepStrictEqual(inbox.full(), { pause: [], resume: [] })
      settle(inbox)
    }
    settle(inbox)
    assert.deepStrictEqual(inbox.full(), { pause: [], resume: [0] })
  })
})
