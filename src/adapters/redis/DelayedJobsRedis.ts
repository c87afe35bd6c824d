/**
 * `DelayedJobs` in one sorted set: the jobs of the next ten minutes by their time, which is always above zero.
 *
 * In it too, below zero, is until when it counts as filled, under the server's `run_id`: so whatever loses the set, or
 * brings an older one back with a restart, makes it want to be filled, and no second key can tell otherwise.
 *
 * It is bounded: beyond the bound the latest go, which the next fill or the store's scan brings back. What nobody looks
 * at for a while expires as a whole.
 */
import { Effect, Layer } from "effect"
import type { JobId } from "../../domain/JobId.ts"
import { DelayedJobs, DelayedJobsUnavailable } from "../../ports/DelayedJobs.ts"
import { Redis, type RedisFailed, script } from "./Redis.ts"

const horizonMs = 600_000
const keptMs = 2 * horizonMs
const chunk = 500
const deadlineMs = 1_000

const filledAs = `'filled:' .. (string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or '')`

/** KEYS the set. ARGV ms to live, the most entries, then time and id of each job. */
const scheduleScript = script(`
  for i = 3, #ARGV, 2 do
    redis.call('ZADD', KEYS[1], ARGV[i], ARGV[i + 1])
  end
  redis.call('ZREMRANGEBYRANK', KEYS[1], ARGV[2], -1)
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  return 'OK'`)

/** KEYS the set. ARGV now, the limit, ms to live. Answers whether it wants to be filled, the next time, the due ids. */
const dueScript = script(`
  local filled = redis.call('ZSCORE', KEYS[1], ${filledAs})
  local next = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  local due = redis.call('ZRANGEBYSCORE', KEYS[1], '(0', ARGV[1], 'LIMIT', 0, ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  return {(filled and -tonumber(filled) > tonumber(ARGV[1])) and 0 or 1, next[2] or '', due}`)

/** KEYS the set. ARGV until when, negated, and ms to live. */
const filledScript = script(`
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', 0)
  redis.call('ZADD', KEYS[1], ARGV[1], ${filledAs})
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 'OK'`)

/** KEYS the set. ARGV ids. */
const forgetScript = script(`return redis.call('ZREM', KEYS[1], unpack(ARGV))`)

export interface Options {
  /** Jobs that the index holds at most. */
  readonly entriesMax?: number
}

const make = Effect.fnUntraced(function*({ entriesMax = 200_000 }: Options) {
  const redis = yield* Redis
  const key = `${redis.prefix}due`

  const unavailable = (operation: DelayedJobsUnavailable["operation"]) =>
    Effect.mapError((cause: RedisFailed) => new DelayedJobsUnavailable({ operation, cause }))

  /** In parts, so that no script holds up the others for long; all of them under way at once. */
  const batched = <A>(all: ReadonlyArray<A>, run: (part: ReadonlyArray<A>) => Effect.Effect<unknown, RedisFailed>) =>
    Effect.forEach(
      Array.from({ length: Math.ceil(all.length / chunk) }, (_, n) => all.slice(n * chunk, (n + 1) * chunk)),
      run,
      { concurrency: 16, discard: true }
    )

  const schedule: DelayedJobs["Service"]["schedule"] = (jobs) =>
    batched(jobs, (part) =>
      redis.run(
        scheduleScript,
        [key],
        [keptMs, entriesMax, ...part.flatMap(({ id, runAtMs }) => [runAtMs, id])],
        deadlineMs
      )).pipe(unavailable("schedule"))

  const due: DelayedJobs["Service"]["due"] = (nowMs, limit) =>
    redis.run(dueScript, [key], [nowMs, limit, keptMs], deadlineMs).pipe(
      unavailable("due"),
      Effect.map((answer) => {
        const [wants, next, ids] = answer as readonly [number, string, ReadonlyArray<string>]
        return {
          ids: ids as ReadonlyArray<string> as ReadonlyArray<JobId>,
          nextMs: next === "" ? null : Number(next),
          wantsFill: wants === 1
        }
      })
    )

  const filled: DelayedJobs["Service"]["filled"] = (untilMs) =>
    redis.run(filledScript, [key], [-Math.max(1, untilMs), keptMs], deadlineMs).pipe(
      unavailable("filled"),
      Effect.asVoid
    )

  const forget: DelayedJobs["Service"]["forget"] = (ids) =>
    batched(ids, (part) => redis.run(forgetScript, [key], part, deadlineMs)).pipe(unavailable("forget"))

  return DelayedJobs.of({ horizonMs, schedule, due, filled, forget })
})

export const layerWith = (options: Options): Layer.Layer<DelayedJobs, never, Redis> =>
  Layer.effect(DelayedJobs, make(options))

export const layer: Layer.Layer<DelayedJobs, never, Redis> = layerWith({})
