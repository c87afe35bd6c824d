/**
 * When in its rhythm a process does what it does every few seconds, in milliseconds: drawn once, so that its adapters and
 * its loops share it and a hundred processes do not ask the store at once.
 */
import { Context } from "effect"
import { everyMs } from "../../ports/Rhythm.ts"

export const RhythmPhase = Context.Reference<number>("deadman/programs/process/RhythmPhase", {
  defaultValue: () => crypto.getRandomValues(new Uint32Array(1))[0]! / 2 ** 32 * everyMs
})
