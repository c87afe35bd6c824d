/**
 * A witness of a chaos run: which messages are on the topic, and when the group's committed offset was seen to have
 * passed each of them.
 *
 * It reads with a group of its own and changes nothing. What it missed while the broker was away it reads again later;
 * a message is then seen as passed later than it was, never sooner.
 */
import { Clock, Effect, type Scope } from "effect"
import * as Client from "./Client.ts"
import * as Message from "./Message.ts"

export interface Passed {
  readonly job: string
  /** When it was sent, by its sender. */
  readonly sentMs: number
  /** By when the group had committed an offset behind it. */
  readonly passedMs: number
  /** Since when the group had the same members, at that time; `null` where it was not settled. */
  readonly settledSinceMs: number | null
}

export interface OffsetWatch {
  readonly passed: () => ReadonlyArray<Passed>
  /** The topics' data are gone: what is read from now on is another topic's. */
  readonly forget: Effect.Effect<void>
}

interface Read {
  readonly offset: number
  readonly ids: ReadonlyArray<string>
  readonly sentMs: number
}

const lookEvery = "200 millis"
const again = "500 millis"

export const make = Effect.fnUntraced(function*(
  options: Client.Options
): Effect.fn.Return<OffsetWatch, never, Scope.Scope> {
  const kafka = yield* Client.make(options)
  const names = Client.namesOf(options)
  const passed: Array<Passed> = []
  const known = new Set<string>()
  let topic = 0
  let sessions = 0

  const session = Effect.gen(function*() {
    sessions += 1
    const began = topic
    const messages = new Map<number, Array<Read>>()
    const heads = new Map<number, number>()
    let members = ""
    let settledSinceMs: number | null = null
    const consumer = yield* Effect.acquireRelease(
      Effect.sync(() =>
        kafka.consumer({
          groupId: `deadman-chaos-${sessions}-${process.pid}`,
          retry: { retries: 0 },
          maxWaitTimeInMs: 100
        })
      ),
      (consumer) => Effect.ignore(Client.call("disconnecting", 2_000, () => consumer.disconnect()))
    )
    const admin = yield* Effect.acquireRelease(
      Effect.sync(() => kafka.admin()),
      (admin) => Effect.ignore(Client.call("disconnecting", 1_000, () => admin.disconnect()))
    )
    yield* Client.call("connecting", 5_000, () => Promise.all([admin.connect(), consumer.connect()]))
    yield* Client.call("subscribing", 5_000, () => consumer.subscribe({ topic: names.ready, fromBeginning: true }))
    let crashed = false
    consumer.on(consumer.events.CRASH, () => {
      crashed = true
    })
    yield* Client.call("reading", 10_000, () =>
      consumer.run({
        autoCommit: false,
        eachMessage: ({ message, partition }) => {
          const read = messages.get(partition) ?? []
          messages.set(partition, read)
          read.push({
            offset: Number(message.offset),
            ids: Message.decode(message.value) ?? [],
            sentMs: Number(message.timestamp)
          })
          return Promise.resolve()
        }
      }))
    while (!crashed && began === topic) {
      yield* Effect.sleep(lookEvery)
      const { groups } = yield* Client.call("describing the group", 3_000, () => admin.describeGroups([names.group]))
      const [group] = groups
      const [committed] = yield* Client.call(
        "fetching offsets",
        3_000,
        () => admin.fetchOffsets({ groupId: names.group, topics: [names.ready] })
      )
      const nowMs = yield* Clock.currentTimeMillis
      const seen = `${group?.state} ${(group?.members ?? []).map(({ memberId }) => memberId).sort().join(" ")}`
      if (seen !== members) {
        members = seen
        settledSinceMs = group?.state === "Stable" ? nowMs : null
      }
      for (const { offset, partition } of began === topic ? committed?.partitions ?? [] : []) {
        const read = messages.get(partition) ?? []
        let head = heads.get(partition) ?? 0
        for (let next = read[head]; next !== undefined && next.offset < Number(offset); next = read[head]) {
          head += 1
          const name = `${topic}/${partition}/${next.offset}`
          if (!known.has(name)) {
            known.add(name)
            for (const job of next.ids) {
              passed.push({ job, sentMs: next.sentMs, passedMs: nowMs, settledSinceMs })
            }
          }
        }
        heads.set(partition, head)
      }
    }
  })

  yield* Effect.forkScoped(
    Effect.forever(Effect.andThen(Effect.exit(Effect.scoped(session)), Effect.sleep(again)))
  )
  return {
    passed: () => passed,
    forget: Effect.sync(() => {
      topic += 1
    })
  }
})
