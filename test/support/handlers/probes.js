/**
 * Handlers that misbehave on purpose: loaded by DEADMAN_HANDLERS where a test wants trouble.
 *
 * Payloads: `block`, `ignoresAbort` and `lingers` take milliseconds; `failK` a number of failures; `returns` and `throws` the name
 * of a kind; `http` takes {url, pings?, every_ms?}.
 */
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

const cycle = {}
cycle.self = cycle

const kinds = {
  undefined: () => undefined,
  null: () => null,
  bigint: () => 12345678901234567890n,
  nan: () => Number.NaN,
  function: () => () => 1,
  symbol: () => Symbol("s"),
  cycle: () => cycle,
  nul: () => "a\u0000b\ud800c",
  huge: () => "x".repeat(5_000_000),
  deep: () => {
    let value = 1
    for (let n = 0; n < 100_000; n++) value = [value]
    return value
  },
  hostile: () =>
    new Proxy({}, {
      get: () => {
        throw new Error("do not look")
      }
    }),
  error: () => new TypeError("an error"),
  string: () => "just text",
  object: () => ({ a: 1 })
}

const kindOf = ({ payload }) => (kinds[payload] ?? (() => payload))()

const tell = async ({ attempt, delivery, id, key, payload, worker }, signal, ping) => {
  const response = await fetch(payload.url, {
    method: "POST",
    signal,
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ id, key, attempt, delivery, worker, ping, at_ms: Date.now() })
  })
  const text = await response.text()
  if (!response.ok) throw new Error(`the sink answered ${response.status}`)
  return text.slice(0, 1_000)
}

export const handlers = {
  block: ({ payload }) => {
    const until = performance.now() + Number(payload)
    while (performance.now() < until);
  },
  crash: () => {
    process.kill(process.pid, "SIGKILL")
    return new Promise(() => {})
  },
  failK: ({ attempt, payload }) => {
    if (attempt <= Number(payload)) throw new Error(`failure ${attempt} of ${payload}`)
    return attempt
  },
  returns: (job) => kindOf(job),
  throws: (job) => {
    throw kindOf(job)
  },
  rejects: async (job) => {
    throw kindOf(job)
  },
  http: async (job, { signal }) => {
    let answer = await tell(job, signal, 0)
    for (let ping = 1; ping < (job.payload.pings ?? 1); ping++) {
      await wait(job.payload.every_ms ?? 500)
      signal.throwIfAborted()
      answer = await tell(job, signal, ping)
    }
    return answer
  },
  ignoresAbort: ({ payload }) => wait(Number(payload)),
  // So long the first time that its worker can be killed meanwhile, on any machine; the next one is done at once.
  lingers: ({ delivery, payload }) => delivery > 1 ? undefined : wait(Number(payload)),
  rejectsLater: async () => {
    void Promise.reject(new Error("nobody awaited this"))
    await wait(50)
    return "done"
  },
  throwsInTimer: async () => {
    setTimeout(() => {
      throw new Error("thrown in a timer")
    }, 10)
    await wait(50)
    return "done"
  }
}
