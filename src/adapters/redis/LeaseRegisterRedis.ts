/**
 * `LeaseRegister` in Redis: one key per lease, one script per batch, each atomic and safe to send twice.
 *
 * An entry is `1:<token>:<check>:<mark>`, its format first. The token is random and drawn anew by every renewal: a
 * counter would repeat itself after a restart from an older file. `check` is `*` once flagged, then the token of the
 * renewal that was told so, which so is told again if it is sent again. `mark` is not empty once a reaper has marked the
 * lease: then only a `hold` whose sender was told of that very mark brings the lease back. A `hold` that was long
 * under way, sent before the mark was made, cannot: its sender looked at the record before the reaper's deed.
 *
 * Entries outlive their lease by far, so that a reaper that watches sees no renewal rather than no entry; Redis's own
 * clock takes them away and decides nothing else. An entry in an unknown format is not touched, and its lease unknown.
 *
 * The incarnation is the server's `run_id` and replication id, and the generation: a key with a random value that every
 * look reads and writes in its script, with a count. Where the key is gone everything may be, where the count has gone
 * back an older state has come back. The write also makes a look fail where renewals would: on a replica, and without
 * memory. A register that keeps losing its entries is no register: looks then fail, and the reaper watches the rows.
 */
import { Clock, Effect, Layer } from "effect"
import { randomBytes } from "node:crypto"
import type { LeaseId } from "../../domain/Claim.ts"
import { LeaseRegister, LeaseRegisterUnavailable, type Renewal } from "../../ports/LeaseRegister.ts"
import { Redis, type RedisFailed, type Script, script } from "./Redis.ts"

/** In lengths of the lease: a reaper watches for one and a fifth. */
const keptLengths = 4
/** A mark must outlive whatever was under way when it was made. */
const markMs = 60_000
const generationMs = 3_600_000
const deadlineMs = 1_000
/** Shorter: a look that comes late breaks the watch of the rows too, which goes on when this one fails. */
const lookDeadlineMs = 400
/** Leases per script: a script holds up everybody else, well below a millisecond. */
const chunk = 200
const knownMarksMax = 10_000
/** So many losses within so long make a register that nothing can be learned from. */
const lossesMax = 3
const lossesWithinMs = 30_000

const read = `
  local function read(key)
    local value = redis.call('GET', key)
    if not value then return nil end
    local token, check, mark = string.match(value, '^1:([^:]*):([^:]*):([^:]*)$')
    return token or false, check, mark
  end`

/** KEYS leases. ARGV token, then for each lease its ms to live and the mark that the sender knows of. */
const holdScript = script(`${read}
  for i, key in ipairs(KEYS) do
    local token, check, mark = read(key)
    if token == nil or (token and (mark == '' or mark == ARGV[2 * i + 1])) then
      redis.call('SET', key, '1:' .. ARGV[1] .. ':' .. (check == '*' and '*' or '') .. ':', 'PX', ARGV[2 * i])
    end
  end
  return 'OK'`)

/** KEYS leases. ARGV token, then each one's ms to live. Answers `h`eld, `c`heck, or `l`ost and the mark. */
const renewScript = script(`${read}
  local answer = {}
  for i, key in ipairs(KEYS) do
    local token, check, mark = read(key)
    if not token then
      answer[i] = 'l'
    elseif mark ~= '' then
      answer[i] = 'l' .. mark
    else
      local told = check == '*' or check == ARGV[1]
      answer[i] = told and 'c' or 'h'
      redis.call('SET', key, '1:' .. ARGV[1] .. ':' .. (told and ARGV[1] or '') .. ':', 'PX', ARGV[i + 1])
    end
  end
  return answer`)

/** KEYS the generation, then leases. ARGV a fresh generation, its ms to live. Answers incarnation, count, tokens. */
const lookScript = script(`${read}
  local generation, count = string.match(redis.call('GET', KEYS[1]) or '', '^([^:]+):(%d+)$')
  count = generation and tonumber(count) + 1 or 1
  generation = generation or ARGV[1]
  redis.call('SET', KEYS[1], generation .. ':' .. string.format('%d', count), 'PX', ARGV[2])
  local function info(section, field)
    return string.match(redis.call('INFO', section), field .. ':(%w+)') or ''
  end
  local answer = {
    info('server', 'run_id') .. '/' .. info('replication', 'master_replid') .. '/' .. generation,
    string.format('%d', count)
  }
  for i = 2, #KEYS do
    answer[i + 1] = read(KEYS[i]) or ''
  end
  return answer`)

/** KEYS the lease. ARGV the token or nothing, the mark, its ms to live. Answers 1 if the lease is marked now. */
const markScript = script(`${read}
  local token, check, mark = read(KEYS[1])
  if token == false or (token or '') ~= ARGV[1] then return 0 end
  redis.call('SET', KEYS[1], '1:' .. ARGV[1] .. ':' .. (check or '') .. ':' .. ((mark or '') ~= '' and mark or ARGV[2]),
    'PX', ARGV[3])
  return 1`)

/** KEYS leases. */
const flagScript = script(`${read}
  for i, key in ipairs(KEYS) do
    local token, check, mark = read(key)
    if token then
      redis.call('SET', key, '1:' .. token .. ':*:' .. mark, 'PX', math.max(1, redis.call('PTTL', key)))
    end
  end
  return 'OK'`)

const chunks = <A>(all: ReadonlyArray<A>): ReadonlyArray<ReadonlyArray<A>> =>
  Array.from({ length: Math.ceil(all.length / chunk) }, (_, n) => all.slice(n * chunk, (n + 1) * chunk))

const draw = () => randomBytes(8).toString("hex")

const make = Effect.gen(function*() {
  const redis = yield* Redis
  const clock = yield* Clock.Clock
  const now = () => Number(clock.monotonicTimeNanosUnsafe() / 1_000_000n)
  /** The marks that renewals were told of. */
  const marks = new Map<LeaseId, string>()
  let counted: { readonly incarnation: string; readonly count: number } | null = null
  let returns = 0
  let losses: Array<number> = []

  const keyOf = (lease: LeaseId) => `${redis.prefix}lease:${lease}`
  const generationKey = `${redis.prefix}generation`

  const unavailable = (operation: LeaseRegisterUnavailable["operation"]) =>
    Effect.mapError((cause: RedisFailed) => new LeaseRegisterUnavailable({ operation, cause }))

  /** One script for each part of the batch, all of them under way at once. */
  const batched = <A, B>(
    all: ReadonlyArray<A>,
    run: (part: ReadonlyArray<A>) => Effect.Effect<B, RedisFailed>
  ): Effect.Effect<ReadonlyArray<B>, RedisFailed> => Effect.forEach(chunks(all), run, { concurrency: "unbounded" })

  const run = (script: Script, leases: ReadonlyArray<LeaseId>, args: ReadonlyArray<string | number>) =>
    redis.run(script, leases.map(keyOf), args, deadlineMs)

  const ttl = (leaseMs: number) => Math.max(1, Math.ceil(keptLengths * leaseMs))

  const hold: LeaseRegister["Service"]["hold"] = (leases) =>
    batched(leases, (part) =>
      run(holdScript, part.map(({ lease }) => lease), [
        draw(),
        ...part.flatMap(({ lease, leaseMs }) => [ttl(leaseMs), marks.get(lease) ?? ""])
      ])).pipe(unavailable("hold"), Effect.asVoid)

  const remember = (lease: LeaseId, mark: string) => {
    marks.delete(lease)
    if (mark !== "") {
      marks.set(lease, mark)
    }
    if (marks.size > knownMarksMax) {
      marks.delete(marks.keys().next().value ?? lease)
    }
  }

  const renew: LeaseRegister["Service"]["renew"] = (leases) =>
    batched(leases, (part) =>
      Effect.map(
        run(renewScript, part.map(({ lease }) => lease), [draw(), ...part.map(({ leaseMs }) => ttl(leaseMs))]),
        (answer) =>
          part.map(({ lease }, index): Renewal => {
            const said = String((answer as ReadonlyArray<string>)[index] ?? "l")
            remember(lease, said.startsWith("l") ? said.slice(1) : "")
            return said === "h" ? "held" : said === "c" ? "check" : "lost"
          })
      )).pipe(unavailable("renew"), Effect.map((parts) => parts.flat()))

  const release: LeaseRegister["Service"]["release"] = (leases) =>
    batched(leases, (part) => {
      part.forEach((lease) => marks.delete(lease))
      return redis.del(part.map(keyOf), deadlineMs)
    }).pipe(unavailable("release"), Effect.asVoid)

  const watchTheCount = (incarnation: string, count: number) => {
    const before = counted
    counted = { incarnation, count }
    if (before === null) {
      return
    }
    const changed = before.incarnation !== incarnation
    if (changed || before.count >= count) {
      returns += changed ? 0 : 1
      losses.push(now())
    }
    losses = losses.filter((atMs) => now() - atMs < lossesWithinMs)
  }

  const look: LeaseRegister["Service"]["look"] = Effect.fn("LeaseRegisterRedis.look")(function*(leases) {
    // With nothing to ask about there is still the incarnation to follow.
    const parts = leases.length === 0 ? [[]] : chunks(leases)
    const answers = yield* Effect.forEach(
      parts,
      (part) =>
        redis.run(
          lookScript,
          [generationKey, ...part.map(keyOf)],
          [draw(), generationMs],
          lookDeadlineMs
        ),
      { concurrency: "unbounded" }
    ).pipe(unavailable("look"))
    const incarnations = new Set<string>()
    const tokens = new Map<LeaseId, string>()
    let most = 0
    for (const [index, part] of parts.entries()) {
      const [incarnation = "", count, ...found] = answers[index] as ReadonlyArray<string>
      incarnations.add(incarnation)
      most = Math.max(most, Number(count))
      for (const [at, lease] of part.entries()) {
        const token = found[at]
        if (token !== undefined && token !== "") {
          tokens.set(lease, token)
        }
      }
    }
    const incarnation = Array.from(incarnations).join("+")
    watchTheCount(incarnation, most)
    if (losses.length >= lossesMax) {
      return yield* new LeaseRegisterUnavailable({
        operation: "look",
        cause: new Error(`redis has lost its entries ${losses.length} times in ${lossesWithinMs / 1_000} s`)
      })
    }
    return { incarnation: `${incarnation}/${returns}`, tokens }
  })

  // The mark's maker may die before the deed, so marking again under the same token succeeds, and keeps the mark.
  const markLapsed: LeaseRegister["Service"]["markLapsed"] = (lease, token) =>
    run(markScript, [lease], [token ?? "", draw(), markMs]).pipe(
      unavailable("markLapsed"),
      Effect.map((marked) => marked === 1)
    )

  const flag: LeaseRegister["Service"]["flag"] = (leases) =>
    batched(leases, (part) => run(flagScript, part, [])).pipe(unavailable("flag"), Effect.asVoid)

  return LeaseRegister.of({ isRecord: false, hold, renew, release, look, markLapsed, flag })
})

export const layer: Layer.Layer<LeaseRegister, never, Redis> = Layer.effect(LeaseRegister, make)
