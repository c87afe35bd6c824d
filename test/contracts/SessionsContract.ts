/** The laws of `Sessions`, for any adapter. The tests share one layer, and look only at their own names. */
import { assert, it } from "@effect/vitest"
import { Effect, type Layer } from "effect"
import { type Session, Sessions } from "../../src/ports/Sessions.ts"
import { eventually } from "../support/Eventually.ts"
import * as Ids from "../support/Ids.ts"

const session = (change: Partial<Session> = {}): Session => ({
  name: `worker-${Ids.leaseId()}`,
  role: "worker",
  version: "0.1.0",
  handlers: ["noop", "sleep"],
  slots: 4,
  running: 1,
  runaways: 0,
  draining: false,
  counters: { claimed: 3 },
  ...change
})

const long = 600_000

export const suite = <E>(adapter: string, layer: Layer.Layer<Sessions, E>) =>
  it.layer(layer, { timeout: "2 minutes", excludeTestServices: true })(`Sessions (${adapter})`, (it) => {
    const find = (name: string, staleMs: number) =>
      Effect.map(
        Effect.flatMap(Sessions, (sessions) => sessions.list(staleMs)),
        (all) => all.find((listed) => listed.name === name)
      )

    it.effect("a report appears in the list as it was said", () =>
      Effect.gen(function*() {
        const sessions = yield* Sessions
        const said = session({ role: "server", draining: true, runaways: 2 })
        yield* sessions.report(said)
        const { seenAtMs, startedAtMs, ...listed } = (yield* find(said.name, long))!
        assert.deepStrictEqual(listed, said)
        assert.isAtLeast(seenAtMs, startedAtMs)
      }))

    it.effect("a report replaces what the process said before, and keeps when it started", () =>
      Effect.gen(function*() {
        const sessions = yield* Sessions
        const said = session()
        yield* sessions.report(said)
        const first = (yield* find(said.name, long))!
        yield* Effect.sleep("5 millis")
        yield* sessions.report({ ...said, running: 4, counters: { claimed: 10 } })
        const second = (yield* find(said.name, long))!
        assert.strictEqual(second.running, 4)
        assert.deepStrictEqual(second.counters, { claimed: 10 })
        assert.strictEqual(second.startedAtMs, first.startedAtMs)
        assert.isAbove(second.seenAtMs, first.seenAtMs)
      }))

    it.effect("totals are the sums of the counters of all, and a second report is not added to the first", () =>
      Effect.gen(function*() {
        const sessions = yield* Sessions
        const [name, other] = [`n_${Ids.leaseId()}`, `n_${Ids.leaseId()}`]
        const a = session({ counters: { [name]: 3, [other]: 1 } })
        const b = session({ counters: { [name]: 4 } })
        yield* sessions.report(a)
        yield* sessions.report(b)
        yield* sessions.report({ ...a, counters: { [name]: 5, [other]: 1 } })
        const totals = yield* sessions.totals
        assert.strictEqual(totals[name], 9)
        assert.strictEqual(totals[other], 1)
      }))

    it.effect("a process that left, or fell silent, is not listed, and its counters stay", () =>
      Effect.gen(function*() {
        const sessions = yield* Sessions
        const name = `n_${Ids.leaseId()}`
        const left = session({ counters: { [name]: 3 } })
        const silent = session({ counters: { [name]: 4 } })
        yield* sessions.report(left)
        yield* sessions.report(silent)
        yield* sessions.leave(left.name)
        yield* sessions.leave("nobody")
        assert.isUndefined(yield* find(left.name, long))
        assert.isDefined(yield* find(silent.name, long))
        yield* eventually(
          "the silent one is not listed",
          Effect.map(find(silent.name, 20), (listed) => listed === undefined)
        )
        assert.strictEqual((yield* sessions.totals)[name], 7)
      }))

    it.effect("a process that left and is back is listed again", () =>
      Effect.gen(function*() {
        const sessions = yield* Sessions
        const said = session()
        yield* sessions.report(said)
        yield* sessions.leave(said.name)
        yield* sessions.report(said)
        assert.isDefined(yield* find(said.name, long))
      }))
  })
