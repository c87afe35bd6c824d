/** Which of the known names somebody may have meant who wrote another one: for who is refused, or ignored. */

/** How many letters must be put in, taken out or replaced to make `a` of `b`. */
export const distance = (a: string, b: string): number => {
  let row = Array.from({ length: b.length + 1 }, (_, n) => n)
  for (let i = 1; i <= a.length; i++) {
    const next = [i]
    for (let j = 1; j <= b.length; j++) {
      next.push(Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)))
    }
    row = next
  }
  return row[b.length]!
}

/** `maxAttempts` and `max-attempts` are `max_attempts` to a person. */
const folded = (name: string): string => name.toLowerCase().replaceAll(/[^a-z0-9]/g, "")

/** A name with more than that is no slip. */
const lettersMax = 40
/** So many letters of a name at its start or its end tell it: `run_at` is `run_at_ms`, `attempts` is `max_attempts`. */
const partMin = 3
/** Of so many letters one may be wrong. */
const lettersPerSlip = 3

/**
 * What a thing is called in other queues, folded, and here: in BullMQ, pg-boss, graphile-worker, River, Oban, Temporal.
 * Only names that mean the same, or that lead to where it is said.
 */
const elsewhere: Readonly<Record<string, string>> = {
  args: "payload",
  body: "payload",
  data: "payload",
  input: "payload",
  cronpattern: "cron",
  pattern: "cron",
  spec: "cron",
  eta: "run_at_ms",
  scheduledat: "run_at_ms",
  startafter: "run_at_ms",
  deduplication: "unique",
  singletonkey: "unique",
  uniqueopts: "unique",
  identifier: "type",
  kind: "type",
  name: "type",
  task: "type",
  jobid: "idempotency_key",
  jobtype: "type",
  maxretries: "max_attempts",
  retries: "max_attempts",
  retrylimit: "max_attempts",
  tries: "max_attempts",
  retrybackoff: "backoff",
  retrydelay: "backoff",
  expireinseconds: "timeout_ms",
  queuename: "queue",
  taskqueue: "queue",
  removeoncomplete: "retain_ms",
  retention: "retain_ms",
  labels: "tags",
  timezone: "zone",
  tz: "zone",
  concurrency: "slots",
  maxworkers: "slots",
  connectionstring: "database_url",
  dsn: "database_url"
}

/**
 * The one that is near, if any is: a slip, another way of joining words, a part that was left out, or what another queue
 * calls it.
 */
export const meant = (name: string, known: ReadonlyArray<string>): string | null => {
  const written = folded(name)
  if (name.length > lettersMax) {
    return null
  }
  const slips = Math.floor(written.length / lettersPerSlip)
  let best: { readonly name: string; readonly away: number } | null = null
  for (const other of known) {
    const right = folded(other)
    const apart = Math.abs(right.length - written.length)
    const isPart = written.length >= partMin && (right.startsWith(written) || right.endsWith(written))
    // How far they are from each other is counted only where it can be near.
    const away = isPart ? apart : apart > slips ? Infinity : distance(written, right)
    if ((isPart || away <= slips) && away < (best?.away ?? Infinity)) {
      best = { name: other, away }
    }
  }
  const called = Object.hasOwn(elsewhere, written) ? elsewhere[written] : undefined
  return best?.name ?? known.find((other) => called !== undefined && folded(other) === folded(called)) ?? null
}
