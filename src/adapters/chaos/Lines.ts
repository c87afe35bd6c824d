/** Reads what the workers of a chaos run wrote down, a file for each process. */
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs"
import { join } from "node:path"

export interface Line {
  readonly kind: string
  readonly job: string
  readonly epoch: number
  readonly lease: string
  readonly pid: number
  readonly worker: string
  readonly wallMs: number
  readonly monoMs: number
  readonly what: string | null
}

/** Whether a process has begun to write: it has loaded its handlers, then. */
export const begun = (path: string): boolean => existsSync(path) && statSync(path).size > 0

/** Whether it has written more than that it has begun. */
export const working = (path: string): boolean => existsSync(path) && statSync(path).size > bootBytes

/** More than the first line takes, less than two. */
const bootBytes = 150

type Written = readonly [string, string, number, string, number, string, number, number, string | null]

export interface Boot {
  readonly pid: number
  readonly wallMs: number
}

export interface Read {
  /** By job, in the order of their times. */
  readonly lines: ReadonlyMap<string, ReadonlyArray<Line>>
  readonly boots: ReadonlyArray<Boot>
}

/** Only the last line of a file may be unfinished, where its process was killed. */
export const read = (folder: string): Read => {
  const boots: Array<Boot> = []
  const byJob = new Map<string, Array<Line>>()
  for (const name of readdirSync(folder)) {
    const texts = readFileSync(join(folder, name), "utf8").split("\n")
    texts.pop()
    for (const text of texts) {
      const [kind, job, epoch, lease, pid, worker, wallMs, monoMs, what] = JSON.parse(text) as Written
      if (job === "") {
        boots.push({ pid, wallMs })
        continue
      }
      const line = { kind, job, epoch, lease, pid, worker, wallMs, monoMs, what }
      const lines = byJob.get(job)
      if (lines === undefined) byJob.set(job, [line])
      else lines.push(line)
    }
  }
  for (const lines of byJob.values()) lines.sort((one, other) => one.monoMs - other.monoMs)
  return { lines: byJob, boots }
}
