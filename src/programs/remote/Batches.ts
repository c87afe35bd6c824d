/**
 * Many callers, one call: while one is under way the next ones gather.
 *
 * A caller that goes away takes nobody else along, since the call runs in a fiber of its own; what it brought goes with
 * it, unless that is under way. What one call takes is bounded, and so is what there is of all callers.
 */
import { Deferred, Effect, Exit, type Scope } from "effect"

interface Asked<A, B, E> {
  readonly items: ReadonlyArray<A>
  readonly weight: number
  readonly answer: Deferred.Deferred<ReadonlyArray<B>, E>
}

export const make = Effect.fnUntraced(function*<A, B, E>(options: {
  readonly call: (items: ReadonlyArray<A>) => Effect.Effect<ReadonlyArray<B>, E>
  /** Items of one call; whoever brings more makes a call alone. */
  readonly itemsMax: number
  readonly weightMax: number
  readonly weigh: (item: A) => number
  /** What two items of one call must not share. */
  readonly nameOf: (item: A) => string
  /** Callers that may wait. */
  readonly waitingMax: number
  /** What may wait and be under way, in weight: one caller more than this is served if there is no other. */
  readonly heldMax: number
  readonly full: () => E
}): Effect.fn.Return<(items: ReadonlyArray<A>) => Effect.Effect<ReadonlyArray<B>, E>, never, Scope.Scope> {
  const scope = yield* Effect.scope
  let waiting: Array<Asked<A, B, E>> = []
  let running = false
  let held = 0

  const take = (): Array<Asked<A, B, E>> => {
    const taken: Array<Asked<A, B, E>> = []
    const left: Array<Asked<A, B, E>> = []
    const names = new Set<string>()
    let items = 0
    let weight = 0
    for (const asked of waiting) {
      const fits = taken.length === 0 ||
        (items + asked.items.length <= options.itemsMax && weight + asked.weight <= options.weightMax &&
          asked.items.every((item) => !names.has(options.nameOf(item))))
      if (fits) {
        taken.push(asked)
        items += asked.items.length
        weight += asked.weight
        asked.items.forEach((item) => names.add(options.nameOf(item)))
      } else {
        left.push(asked)
      }
    }
    waiting = left
    return taken
  }

  const run = Effect.gen(function*() {
    while (true) {
      // In one step with the look: whoever comes after it starts a run anew.
      if (waiting.length === 0) {
        running = false
        return
      }
      const batch = take()
      const exit = yield* Effect.exit(options.call(batch.flatMap(({ items }) => items)))
      let at = 0
      for (const { answer, items, weight } of batch) {
        held -= weight
        const from = at
        at += items.length
        Deferred.doneUnsafe(answer, Exit.map(exit, (answers) => answers.slice(from, from + items.length)))
      }
    }
  })

  return (items) =>
    // Nothing may come between what is noted here and whoever takes it away again.
    Effect.uninterruptibleMask((restore) => {
      if (items.length === 0) {
        return Effect.succeed([])
      }
      const weight = items.reduce((sum, item) => sum + options.weigh(item), 0)
      if (waiting.length >= options.waitingMax || (held > 0 && held + weight > options.heldMax)) {
        return Effect.fail(options.full())
      }
      const answer = Deferred.makeUnsafe<ReadonlyArray<B>, E>()
      const asked: Asked<A, B, E> = { items, answer, weight }
      waiting.push(asked)
      held += weight
      const leave = Effect.sync(() => {
        const at = waiting.indexOf(asked)
        if (at >= 0) {
          waiting.splice(at, 1)
          held -= weight
        }
      })
      const answered = Effect.onInterrupt(restore(Deferred.await(answer)), () => leave)
      if (running) {
        return answered
      }
      running = true
      return Effect.andThen(Effect.forkIn(run, scope), answered)
    })
})
