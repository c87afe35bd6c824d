/**
 * The workers of a siege and who of them may be hurt: one at a time each, and always with somebody left who works.
 *
 * A killed worker is replaced at once. One that was frozen is left alone for a while after it wakes: what it then has to
 * say is what the freeze was for.
 */
import { Clock, Effect } from "effect"
import { type Child, Ground, type GroundFailed } from "./Ground.ts"

interface Place {
  child: Child
  frozen: boolean
  /** Not to be hurt before, in milliseconds of the wall clock. */
  restUntilMs: number
}

export interface Crew {
  /** Answers the victim, and keeps it from others; `null` where nobody may be hurt for a while. */
  readonly choose: (draw: number) => Effect.Effect<Place | null>
  readonly replace: (place: Place) => Effect.Effect<void, GroundFailed>
  readonly rest: (place: Place, ms: number) => Effect.Effect<void>
  readonly all: () => ReadonlyArray<Child>
  readonly ready: () => boolean
  /** Those that ended although nobody had ended them. They are replaced, too. */
  readonly deserters: Effect.Effect<ReadonlyArray<string>, GroundFailed>
}

const triesMax = 60

export const make = Effect.fnUntraced(function*(workers: number): Effect.fn.Return<Crew, GroundFailed, Ground> {
  const ground = yield* Ground
  let born = 0
  const hire = Effect.suspend(() => {
    born += 1
    return ground.hire("worker", born)
  })
  const places: Array<Place> = []
  for (let n = 0; n < workers; n++) {
    places.push({ child: yield* hire, frozen: false, restUntilMs: 0 })
  }

  const choose: Crew["choose"] = (draw) =>
    Effect.gen(function*() {
      for (let tries = 0; tries < triesMax; tries++) {
        const now = yield* Clock.currentTimeMillis
        const free = places.filter(({ child, frozen, restUntilMs }) =>
          !frozen && restUntilMs <= now && child.alive() && child.working()
        )
        const place = free[Math.min(free.length - 1, Math.floor(draw * free.length))]
        if (place !== undefined && (workers === 1 || free.length > 1)) {
          place.frozen = true
          return place
        }
        yield* Effect.sleep("250 millis")
      }
      return null
    })

  return {
    choose,
    replace: (place) =>
      Effect.gen(function*() {
        place.child = yield* hire
        place.frozen = false
        place.restUntilMs = 0
      }),
    rest: (place, ms) =>
      Effect.map(Clock.currentTimeMillis, (now) => {
        place.frozen = false
        place.restUntilMs = now + ms
      }),
    all: () => places.map(({ child }) => child),
    ready: () => places.every(({ child }) => child.ready()),
    deserters: Effect.gen(function*() {
      const gone = places.filter(({ child, frozen }) => !frozen && !child.alive())
      const names = gone.map(({ child }) => child.name)
      for (const place of gone) {
        place.child = yield* hire
      }
      return names
    })
  }
})
