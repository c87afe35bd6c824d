/** What the rounds gave, as tables of Markdown: medians, with the least and the greatest; ratios within a round. */

const median = (figures) => figures.toSorted((a, b) => a - b)[Math.max(0, Math.ceil(figures.length / 2) - 1)]
const shown = (value) =>
  value >= 1_000 ? Math.round(value).toLocaleString("en-GB") : String(Number(value.toPrecision(3)))

/** `samples` are the figures of a row, in each round; `ratios` the columns whose ratio to the first row is shown. */
export const table = ({ ratios, rows, title }, samples) => {
  const columns = [...new Set(samples.flat().flatMap(Object.keys))]
  const leads = ratios ?? columns.slice(0, 1)
  const cell = (index, column) => {
    const figures = samples[index].map((sample) => sample[column]).filter(Number.isFinite)
    if (figures.length === 0) return "–"
    const [low, mid, high] = [Math.min(...figures), median(figures), Math.max(...figures)].map(shown)
    return low === high ? mid : `${mid} (${low}–${high})`
  }
  const ratio = (index, lead) => {
    const pairs = samples[0].map((own, round) => [own[lead], samples[index][round]?.[lead]])
      .filter(([own, peer]) => own > 0 && peer > 0)
    return index === 0 || pairs.length === 0 ? "" : shown(median(pairs.map(([own, peer]) => own / peer)))
  }
  const line = (cells) => `| ${cells.join(" | ")} |`
  return [
    `**${title}**`,
    "",
    `| ${line([...columns, ...leads.map((lead) => `${rows[0].system} ÷ it (${lead})`)])}`,
    `| --- |${" ---: |".repeat(columns.length + leads.length)}`,
    ...rows.map(({ system }, index) =>
      line([system, ...columns.map((column) => cell(index, column)), ...leads.map((lead) => ratio(index, lead))])
    )
  ].join("\n")
}
