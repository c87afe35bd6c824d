/** Tables and lists of fields in plain characters: what is too wide for a terminal is cut, for a pipe it is not. */
import * as Text from "./Text.ts"

export type Tone = "good" | "bad" | "busy" | "quiet" | "plain"

/** How a word of a tone is written; `plain` where there are no colours. */
export type Paint = (text: string, tone: Tone) => string

export const plain: Paint = (text) => text

const codes: Readonly<Record<Tone, string>> = { good: "32", bad: "31", busy: "36", quiet: "2", plain: "" }

export const coloured: Paint = (text, tone) => tone === "plain" ? text : `\u001b[${codes[tone]}m${text}\u001b[0m`

export interface Cell {
  readonly text: string
  readonly tone: Tone
}

export const cell = (text: string | number | null, tone: Tone = "plain"): Cell => ({
  text: text === null ? "-" : Text.clean(String(text)),
  tone: text === null ? "quiet" : tone
})

export interface Look {
  readonly paint: Paint
  /** Columns of the terminal, or `null` where nothing is cut. */
  readonly width: number | null
}

const widthOf = (text: string): number => [...text].length

const cut = (text: string, width: number): string =>
  widthOf(text) <= width ? text : `${[...text].slice(0, Math.max(width - 1, 0)).join("")}…`

const gap = "  "

/** The last column takes what room is left. */
export const table = (
  look: Look,
  head: ReadonlyArray<string>,
  rows: ReadonlyArray<ReadonlyArray<Cell>>,
  empty: string
): string => {
  if (rows.length === 0) {
    return empty
  }
  const widths = head.map((name, column) =>
    rows.reduce((widest, row) => Math.max(widest, widthOf(row[column]?.text ?? "")), widthOf(name))
  )
  const before = widths.slice(0, -1).reduce((sum, width) => sum + width + gap.length, 0)
  const last = look.width === null ? Number.POSITIVE_INFINITY : Math.max(look.width - before, 10)
  const line = (cells: ReadonlyArray<Cell>) =>
    cells.map(({ text, tone }, column) =>
      column === cells.length - 1
        ? look.paint(cut(text, last), tone)
        : look.paint(text, tone) + " ".repeat(Math.max(widths[column]! - widthOf(text), 0))
    ).join(gap).trimEnd()
  return [line(head.map((text) => ({ text, tone: "quiet" }))), ...rows.map(line)].join("\n")
}

/** `name  value`, one below the other. */
export const fields = (look: Look, entries: ReadonlyArray<readonly [name: string, value: Cell]>): string => {
  const width = entries.reduce((widest, [name]) => Math.max(widest, widthOf(name)), 0)
  return entries.map(([name, { text, tone }]) =>
    `${look.paint(name.padEnd(width), "quiet")}${gap}${look.paint(text, tone)}`
  ).join("\n")
}
