/** What handlers that are offloaded to a thread do in tests: compute, fail, and end in every other way. */
// oxlint-disable-next-line import/no-default-export -- what a user's module exports
export default async (payload, { job, log, progress }) => {
  switch (payload.do) {
    case "block": {
      const until = performance.now() + payload.ms
      while (performance.now() < until);
      return `blocked for ${payload.ms}`
    }
    case "echo":
      log(`delivery ${job.delivery}`)
      progress({ half: true })
      return payload
    case "odd notes":
      log(Object.create(null))
      progress(1n)
      progress({ of: 3, tell: () => 1 })
      return "noted"
    case "fail":
      throw new TypeError("it went wrong", { cause: new Error("because") })
    case "reject":
      throw Object.assign(new Error("not this one"), { retry: false })
    case "again":
      return job.delivery === 1 ? { _tag: "deadman/Again", delayMs: 0 } : job.delivery
    case "exit":
      return process.exit(7)
    case "leak":
      setTimeout(() => {
        throw new Error("thrown in a timer")
      }, 5)
      return new Promise(() => {})
    case "memory": {
      const kept = []
      while (true) kept.push(new Array(1_000_000).fill(Math.random()))
    }
    case "unclonable":
      return () => 1
    case "forever":
      while (true);
  }
}

export const named = (payload) => payload.placedAt instanceof Date

export const notAFunction = 7
