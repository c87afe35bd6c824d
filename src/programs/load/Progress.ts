/** A bar on a terminal, a line every few seconds elsewhere. */
import { Clock, Effect } from "effect"

export interface Progress {
  readonly show: (done: number) => Effect.Effect<void>
  readonly end: Effect.Effect<void>
}

const width = 30
const barEveryMs = 100
const lineEveryMs = 5_000

export const make = Effect.fnUntraced(function*(options: {
  readonly what: string
  readonly total: number
  readonly terminal: boolean
  readonly write: (text: string) => void
}): Effect.fn.Return<Progress> {
  const since = yield* Clock.monotonicTimeNanos
  let shownMs = Number.NEGATIVE_INFINITY
  const show = Effect.fnUntraced(function*(done: number) {
    const ms = Number((yield* Clock.monotonicTimeNanos) - since) / 1e6
    if (done < options.total && ms - shownMs < (options.terminal ? barEveryMs : lineEveryMs)) {
      return
    }
    shownMs = ms
    const rate = ms > 0 ? Math.round(done / ms * 1_000) : 0
    const text = `${options.what} ${done} of ${options.total}, ${rate}/s`
    const filled = options.total === 0 ? width : Math.min(width, Math.floor(done / options.total * width))
    options.write(
      options.terminal ? `\r[${"#".repeat(filled)}${" ".repeat(width - filled)}] ${text}   ` : `${text}\n`
    )
  })
  return { show, end: Effect.sync(() => options.write(options.terminal ? "\n" : "")) }
})
