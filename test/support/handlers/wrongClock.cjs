/** Loaded with `--require`: a program whose wall clock is wrong, and steps while it runs. Its monotonic clock is right. */
const { aheadMs, afterMs, stepMs } = JSON.parse(process.env.WRONG_CLOCK)
const RealDate = Date
const begunMs = performance.now()
const now = () => RealDate.now() + aheadMs + (performance.now() - begunMs > afterMs ? stepMs : 0)

globalThis.Date = class extends RealDate {
  constructor(...parts) {
    super(...(parts.length === 0 ? [now()] : parts))
  }
  static now() {
    return now()
  }
}
