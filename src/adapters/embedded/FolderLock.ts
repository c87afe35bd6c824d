/**
 * One lock per data folder, under which the Postgres is started, joined and stopped.
 *
 * The lock is a file that names its holder, linked into place so that it is never seen half written. A dead holder's
 * lock is broken by exactly one process: the right to remove the lock with nonce N is itself the file
 * `lock.break.N`, and where its owner died too, `lock.break.` of that owner's nonce, and so on. Those files go only
 * after lock N is gone; nonces never come back, so whoever arrives late with N in mind finds another nonce in the
 * lock and removes nothing. Renaming the lock away instead would let a slow breaker take its successor's.
 */
import { Clock, Duration, Effect, Option, Schema } from "effect"
import { randomUUID } from "node:crypto"
import { linkSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { attempt, codeOf, EmbeddedPostgresFailed } from "./EmbeddedPostgresFailed.ts"
import * as ProcessIdentity from "./ProcessIdentity.ts"

const patience = Duration.seconds(60)
const pause = Duration.millis(25)

const Holder = Schema.Struct({ nonce: Schema.String, holder: ProcessIdentity.ProcessIdentity })
type Holder = typeof Holder.Type

const decode = Schema.decodeUnknownOption(Schema.fromJsonString(Holder))

const read = (path: string): Holder | undefined => {
  try {
    return Option.getOrUndefined(decode(readFileSync(path, "utf8")))
  } catch (cause) {
    if (codeOf(cause) === "ENOENT") return undefined
    throw cause
  }
}

/** Puts `mine` at `path` if nothing is there. */
const place = (path: string, mine: Holder): boolean => {
  const draft = `${path}.${randomUUID()}.tmp`
  try {
    // Flushed, or after a power cut the file may be there without what it says, and nobody could break it.
    writeFileSync(draft, JSON.stringify(mine), { flag: "wx", mode: 0o644, flush: true })
    linkSync(draft, path)
    return true
  } catch (cause) {
    if (codeOf(cause) === "EEXIST") return false
    throw cause
  } finally {
    rmSync(draft, { force: true })
  }
}

const breakingOf = (folder: string, nonce: string) => join(folder, `lock.break.${nonce}`)

/** Removes the lock that was seen in the hands of `dead`, if it is still there and nobody else is at it. */
export const breakLock = (folder: string, dead: Holder, mine: Holder): void => {
  const path = join(folder, "lock")
  const chain = [breakingOf(folder, dead.nonce)]
  while (!place(chain[chain.length - 1]!, mine)) {
    const breaker = read(chain[chain.length - 1]!)
    if (breaker === undefined || ProcessIdentity.lifeOf(breaker.holder, folder) !== "dead") return
    chain.push(breakingOf(folder, breaker.nonce))
  }
  if (read(path)?.nonce === dead.nonce) rmSync(path, { force: true })
  for (const file of chain) rmSync(file, { force: true })
}

/** Takes the lock, or says who holds it; `undefined` means it changed hands while we looked. */
const tryTake = (folder: string, mine: Holder): true | Holder | undefined => {
  const path = join(folder, "lock")
  const current = read(path)
  if (current === undefined) return place(path, mine) ? true : undefined
  const life = ProcessIdentity.lifeOf(current.holder, folder)
  if (life === "elsewhere") {
    throw new EmbeddedPostgresFailed({
      message: `${folder} is locked by ${ProcessIdentity.describe(current.holder)}, in another container or on ` +
        `another host, and can be shared only within one. Stop it, set DEADMAN_DATA_DIR to a folder of your own, or, ` +
        `if it is gone for certain, delete ${path}`
    })
  }
  if (life === "dead") {
    breakLock(folder, current, mine)
    return undefined
  }
  return current
}

/** What breakers and writers that were killed half-way left behind. Called by the holder. */
const sweep = (folder: string, mine: Holder): void => {
  for (const name of readdirSync(folder)) {
    if (!name.startsWith("lock.")) continue
    const path = join(folder, name)
    // Whoever is alive may be about to link its draft, and removes it itself.
    const owner = read(path)
    if (owner !== undefined && owner.nonce !== mine.nonce && ProcessIdentity.lifeOf(owner.holder, folder) === "dead") {
      rmSync(path, { force: true })
    }
  }
}

/** Runs `use` as the only process of this folder. Waiting can be interrupted, and ends after a minute. */
export const withLock = (folder: string, me = ProcessIdentity.self()) => <A, E, R>(use: Effect.Effect<A, E, R>) =>
  Effect.uninterruptibleMask((restore) =>
    Effect.gen(function*() {
      const mine: Holder = { nonce: randomUUID(), holder: me }
      const since = yield* Clock.monotonicTimeNanos
      while (true) {
        const answer = yield* attempt(`lock ${folder}`, () => tryTake(folder, mine))
        if (answer === true) break
        const waited = Duration.nanos((yield* Clock.monotonicTimeNanos) - since)
        if (Duration.isGreaterThan(waited, patience)) {
          return yield* new EmbeddedPostgresFailed({
            message: answer === undefined
              ? `${folder} has been locked for a minute, and not by one for all of it. Try again; if no other process ` +
                `uses the folder, delete ${join(folder, "lock")} first`
              : `${folder} has been locked for a minute by ${ProcessIdentity.describe(answer.holder)}, which is ` +
                `starting or stopping the Postgres in it. Look at ${join(folder, "postgres.log")}, then try again`
          })
        }
        yield* restore(Effect.sleep(pause))
      }
      // A lock that cannot be removed is broken by the next process, once this one is gone.
      const release = Effect.ignore(attempt("unlock the folder", () => {
        const path = join(folder, "lock")
        if (read(path)?.nonce === mine.nonce) rmSync(path, { force: true })
      }))
      yield* Effect.ignore(attempt("tidy the lock", () => sweep(folder, mine)))
      return yield* restore(use).pipe(Effect.ensuring(release))
    })
  )
