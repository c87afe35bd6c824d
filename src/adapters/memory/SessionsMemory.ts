/** `Sessions` in a map: for tests and simulation. */
import { Clock, Effect, Layer } from "effect"
import { type ListedSession, Sessions } from "../../ports/Sessions.ts"

const make = Effect.sync(() => {
  const sessions = new Map<string, { readonly session: ListedSession; readonly gone: boolean }>()

  const report: Sessions["Service"]["report"] = (session) =>
    Effect.map(Clock.currentTimeMillis, (now) => {
      const startedAtMs = sessions.get(session.name)?.session.startedAtMs ?? now
      sessions.set(session.name, { session: { ...session, startedAtMs, seenAtMs: now }, gone: false })
    })

  const leave: Sessions["Service"]["leave"] = (name) =>
    Effect.sync(() => {
      const known = sessions.get(name)
      if (known !== undefined) {
        sessions.set(name, { ...known, gone: true })
      }
    })

  const list: Sessions["Service"]["list"] = (staleMs) =>
    Effect.map(Clock.currentTimeMillis, (now) =>
      Array.from(sessions.values())
        .filter(({ gone, session }) => !gone && now - session.seenAtMs < staleMs)
        .map(({ session }) => session)
        .sort((a, b) => a.name < b.name ? -1 : 1))

  const totals: Sessions["Service"]["totals"] = Effect.sync(() => {
    const sums: Record<string, number> = {}
    for (const { session } of sessions.values()) {
      for (const [name, n] of Object.entries(session.counters)) {
        sums[name] = (sums[name] ?? 0) + n
      }
    }
    return sums
  })

  return Sessions.of({ report, leave, list, totals })
})

export const layer: Layer.Layer<Sessions> = Layer.effect(Sessions, make)
