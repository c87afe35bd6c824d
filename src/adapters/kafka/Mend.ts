/**
 * What kafkajs 2.2.4 gets wrong for us, mended in its prototypes when the first client is made.
 *
 * 1. An idle connection re-arms a timer with a negative delay, which Node clamps to 1 ms: about 900 wake-ups per second
 *    and connection, and a warning. There is nothing to check while nothing waits.
 * 2. A consumer that starts again joins its group as a stranger, and the group then waits for the member that it was
 *    until that one's session is over. Under its member id of before, it takes its own place at once.
 *
 * Each is tied to the text of the function it changes. A kafkajs in which that text differs is refused: somebody has to
 * look whether the fault is still there.
 */
import { createRequire } from "node:module"

type Method = (this: object, ...args: Array<unknown>) => unknown

interface Patch {
  readonly module: string
  readonly method: string
  /** Its text, without blanks and comments. */
  readonly shape: string
  readonly mend: (original: Method) => Method
}

/** As kafkajs keeps it with the consumer's group; `member` is ours. */
export interface Rejoining {
  readonly member: { id: string | null }
}

const requestQueue: Patch = {
  module: "kafkajs/src/network/requestQueue/index.js",
  method: "scheduleCheckPendingRequests",
  shape: "scheduleCheckPendingRequests(){letscheduleAt=this.throttledUntil-Date.now()" +
    "if(!this.throttleCheckTimeoutId){if(this.pending.length>0){" +
    "scheduleAt=scheduleAt>0?scheduleAt:CHECK_PENDING_REQUESTS_INTERVAL}" +
    "this.throttleCheckTimeoutId=setTimeout(()=>{this.throttleCheckTimeoutId=nullthis.checkPendingRequests()}" +
    ",scheduleAt)}}",
  mend: (original) =>
    function(...args) {
      // A request that comes later is either sent at once or comes by here again.
      return (this as { readonly pending: ReadonlyArray<unknown> }).pending.length === 0
        ? undefined
        : original.apply(this, args)
    }
}

const consumerGroup: Patch = {
  module: "kafkajs/src/consumer/consumerGroup.js",
  method: "connect",
  shape: "asyncconnect(){awaitthis.cluster.connect()this.instrumentationEmitter.emit(CONNECT)" +
    "awaitthis.cluster.refreshMetadataIfNecessary()}",
  mend: (original) =>
    function(...args) {
      const group = this as { memberId: string | null; readonly assigners: ReadonlyArray<Partial<Rejoining>> }
      group.memberId ??= group.assigners.find(({ member }) => member !== undefined)?.member?.id ?? null
      return original.apply(this, args)
    }
}

export const patches: ReadonlyArray<Patch> = [requestQueue, consumerGroup]

/** The text of a function as `shape` has it. */
export const shapeOf = (method: unknown): string =>
  String(method).replace(/\/\*[\s\S]*?\*\/|\/\/.*$/gm, "").replace(/\s+/g, "")

const require = createRequire(import.meta.url)

/** Where a patch applies. */
export const prototypeOf = ({ module }: Patch): Record<string, Method | undefined> =>
  (require(module) as { readonly prototype: Record<string, Method | undefined> }).prototype

const mended = new WeakSet<Method>()

/** Mends kafkajs for this process, once. Throws where it is not the kafkajs that this was written for. */
export const mend = (): void => {
  for (const patch of patches) {
    const prototype = prototypeOf(patch)
    const original = prototype[patch.method]
    if (original !== undefined && mended.has(original)) {
      continue
    }
    if (original === undefined || shapeOf(original) !== patch.shape) {
      throw new Error(
        `${patch.module} has another ${patch.method} than kafkajs 2.2.4: see whether src/adapters/kafka/Mend.ts is still` +
          " needed, or install kafkajs 2.2.4"
      )
    }
    const replacement = patch.mend(original)
    mended.add(replacement)
    prototype[patch.method] = replacement
  }
}
