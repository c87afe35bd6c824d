/**
 * The one error of this folder: the embedded Postgres cannot be had, in one line that says what to do next.
 *
 * Whoever catches it can only print it and stop, so there is one tag, and every file system error on the way is
 * turned into words here instead of reaching the user as an errno.
 */
import { Effect, Schema } from "effect"

export class EmbeddedPostgresFailed extends Schema.TaggedError<EmbeddedPostgresFailed>()("EmbeddedPostgresFailed", {
  message: Schema.String
}) {}

const advice: Readonly<Record<string, string>> = {
  ENOSPC: "the disk is full; free some space or set DEADMAN_DATA_DIR to a folder on another disk",
  EDQUOT: "the disk quota is used up; free some space or set DEADMAN_DATA_DIR to a folder on another disk",
  EACCES: "permission denied; start as the user who owns the folder or set DEADMAN_DATA_DIR to one of your own",
  EPERM: "not permitted; start as the user who owns the folder or set DEADMAN_DATA_DIR to one of your own",
  EROFS: "the file system is read-only; set DEADMAN_DATA_DIR to a folder that can be written",
  ENOTDIR: "part of the path is a file; set DEADMAN_DATA_DIR to a folder",
  EEXIST: "there is a file of that name; set DEADMAN_DATA_DIR to a folder",
  ENOTSUP: "its file system cannot do that; set DEADMAN_DATA_DIR to a folder on another one",
  ENOSYS: "its file system cannot do that; set DEADMAN_DATA_DIR to a folder on another one",
  EMFILE: "too many open files; raise `ulimit -n`",
  EAGAIN: "the system is out of processes; raise `ulimit -u`"
}

export const codeOf = (cause: unknown): string | undefined =>
  cause instanceof Error && "code" in cause && typeof cause.code === "string" ? cause.code : undefined

export const failed = (doing: string, cause: unknown): EmbeddedPostgresFailed => {
  const code = codeOf(cause)
  const reason = (code === undefined ? undefined : advice[code]) ??
    (cause instanceof Error ? cause.message : String(cause)).split("\n")[0]
  return new EmbeddedPostgresFailed({ message: `The embedded Postgres cannot ${doing}: ${reason}` })
}

/** The line of a program's output that says why it failed, and what to do where we know it. */
export const reasonIn = (output: string): string => {
  const lines = output.trim().split("\n")
  const line = lines.find((line) => /FATAL|PANIC|error:/.test(line)) ?? lines.at(-1) ?? ""
  const said = line.replace(/^.*?(?=FATAL|PANIC|error:)/, "").trim()
  if (/No space left/i.test(said)) return `${said} (${advice["ENOSPC"]})`
  return said === "" ? "it does not say why" : said
}

/** Runs file system code; `doing` completes the sentence "the embedded Postgres cannot …". */
export const attempt = <A>(doing: string, run: () => A): Effect.Effect<A, EmbeddedPostgresFailed> =>
  Effect.try({
    try: run,
    catch: (cause) => cause instanceof EmbeddedPostgresFailed ? cause : failed(doing, cause)
  })
