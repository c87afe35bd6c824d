/** What was measured, and how it is shown: each figure by its least, median and greatest of the rounds. */

/** Figures of one run of one case, by name. The unit is in the name; `jobs/s` are better when greater. */
export type Sample = Readonly<Record<string, number | null>>

export interface Figure {
  readonly min: number
  readonly median: number
  readonly max: number
}

export interface Result {
  readonly suite: string
  readonly case: string
  readonly rounds: number
  readonly figures: Readonly<Record<string, Figure>>
  /** Why a round of it gave no figures. */
  readonly failures: ReadonlyArray<string>
}

/** The value below which `percent` of them lie. */
export const percentile = (values: ReadonlyArray<number>, percent: number): number => {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(percent / 100 * sorted.length) - 1))] ?? Number.NaN
}

export const summary = (
  suite: string,
  name: string,
  samples: ReadonlyArray<Sample>,
  failures: ReadonlyArray<string>
): Result => {
  const figures: Record<string, Figure> = {}
  for (const key of new Set(samples.flatMap(Object.keys))) {
    const values = samples.flatMap((sample) => {
      const value = sample[key]
      return value === undefined || value === null || !Number.isFinite(value) ? [] : [value]
    })
    if (values.length > 0) {
      figures[key] = { min: Math.min(...values), median: percentile(values, 50), max: Math.max(...values) }
    }
  }
  return { suite, case: name, rounds: samples.length, figures, failures }
}

const shown = (value: number): string =>
  value >= 1_000 ? Math.round(value).toLocaleString("en-GB") : String(Number(value.toPrecision(3)))

const cell = ({ max, median, min }: Figure): string =>
  min === max ? shown(median) : `${shown(median)} (${shown(min)}–${shown(max)})`

/** One table a suite, in Markdown, which reads well on a terminal too. */
export const tables = (results: ReadonlyArray<Result>): string =>
  [...new Set(results.map(({ suite }) => suite))].map((suite) => {
    const own = results.filter((result) => result.suite === suite)
    const columns = [...new Set(own.flatMap(({ figures }) => Object.keys(figures)))]
    const rows = [
      [suite, ...columns],
      ...own.map((result) => [
        result.case,
        ...columns.map((column) => {
          const figure = result.figures[column]
          return figure === undefined ? "–" : cell(figure)
        })
      ])
    ]
    const widths = rows[0]!.map((_, at) => Math.max(...rows.map((row) => row[at]?.length ?? 0)))
    const line = (cells: ReadonlyArray<string>) =>
      `| ${cells.map((text, at) => at === 0 ? text.padEnd(widths[at]!) : text.padStart(widths[at]!)).join(" | ")} |`
    const rule = `| ${
      widths.map((width, at) => at === 0 ? "-".repeat(width) : `${"-".repeat(width - 1)}:`).join(" | ")
    } |`
    const failures = own.flatMap((result) => result.failures.map((failure) => `${result.case}: ${failure}`))
    return [line(rows[0]!), rule, ...rows.slice(1).map(line), ...failures].join("\n")
  }).join("\n\n")
