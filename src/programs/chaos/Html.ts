/**
 * The report as one page without anything beside it: a verdict, the figures, and a timeline that shows throughput,
 * jobs in flight, faults and recoveries over the same seconds.
 */
import type { Deed } from "./Evidence.ts"
import type { Second } from "./Judge.ts"
import { figuresOf, type Report } from "./Report.ts"

const escape = (text: string): string =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll("\"", "&quot;")

const width = 1_080
const left = 56
const right = 12
const plot = width - left - right

const colours: Readonly<Record<string, string>> = {
  kill: "#c0392b",
  freeze: "#2471a3",
  clock: "#7d3c98",
  server: "#b9770e",
  postgres: "#1e8449",
  redis: "#a93226",
  kafka: "#34495e",
  cut: "#5d6d7e",
  half: "#5d6d7e"
}

const colourOf = (kind: string): string => colours[kind] ?? colours[kind.split("-")[0] ?? ""] ?? "#555"

interface Axis {
  readonly x: (seconds: number) => number
  readonly total: number
}

const round = (value: number): string => value.toFixed(1)

const niceMax = (value: number): number => {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, value)))
  return [1, 2, 5, 10].map((factor) => factor * power).find((max) => max >= value) ?? value
}

/** A band of the timeline with its own scale. */
const band = (
  axis: Axis,
  top: number,
  height: number,
  title: string,
  series: ReadonlyArray<
    { readonly name: string; readonly colour: string; readonly values: ReadonlyArray<number>; readonly fill?: boolean }
  >
): string => {
  const max = niceMax(Math.max(1, ...series.flatMap(({ values }) => values)))
  const y = (value: number) => top + height - value / max * height
  const lines = series.map(({ colour, fill, values }) => {
    const points = values.map((value, second) => `${round(axis.x(second + 0.5))},${round(y(value))}`)
    return fill === true
      ? `<polygon points="${left},${top + height} ${points.join(" ")} ${round(axis.x(values.length))},${
        top + height
      }" fill="${colour}" fill-opacity="0.25" stroke="${colour}"/>`
      : `<polyline points="${points.join(" ")}" fill="none" stroke="${colour}" stroke-width="1.5"/>`
  })
  const legend = series.map(({ colour, name }, index) =>
    `<text x="${left + 150 + index * 150}" y="${top - 6}" style="fill: ${colour}">${escape(name)}</text>`
  )
  return `<text x="${left}" y="${top - 6}" class="title">${escape(title)}</text>${legend.join("")}
<rect x="${left}" y="${top}" width="${plot}" height="${height}" class="frame"/>
<text x="${left - 6}" y="${top + 10}" class="scale">${max}</text><text x="${left - 6}" y="${
    top + height
  }" class="scale">0</text>
${lines.join("\n")}`
}

const markOf = (axis: Axis, startMs: number, y: number, deed: Deed): string => {
  const from = axis.x((deed.atMs - startMs) / 1_000)
  const to = axis.x((deed.endMs - startMs) / 1_000)
  const title = `${deed.kind}${deed.worker === null ? "" : ` ${deed.worker}`} at ${
    ((deed.atMs - startMs) / 1_000).toFixed(1)
  } s, ${((deed.endMs - deed.atMs) / 1_000).toFixed(1)} s long`
  return `<rect x="${round(from)}" y="${y}" width="${round(Math.max(2.5, to - from))}" height="12" fill="${
    colourOf(deed.kind)
  }"><title>${escape(title)}</title></rect>`
}

/** The faults, a lane for each kind. */
const lanes = (
  axis: Axis,
  startMs: number,
  top: number,
  deeds: ReadonlyArray<Deed>
): { svg: string; height: number } => {
  const kinds = [...new Set(deeds.map(({ kind }) => kind))]
  const svg = kinds.map((kind, lane) => {
    const y = top + lane * 18
    const marks = deeds.filter((deed) => deed.kind === kind && deed.skipped === null)
    return `<text x="${left - 6}" y="${y + 10}" class="scale">${escape(kind.replace("postgres", "pg"))}</text>
<line x1="${left}" x2="${width - right}" y1="${y + 6}" y2="${y + 6}" class="lane"/>${
      marks.map((deed) => markOf(axis, startMs, y, deed)).join("")
    }`
  })
  return { svg: svg.join("\n"), height: kinds.length * 18 }
}

const axisLabels = (axis: Axis, y: number): string => {
  const step = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600].find((step) => axis.total / step <= 14) ?? 1_200
  const labels: Array<string> = []
  for (let second = 0; second <= axis.total; second += step) {
    labels.push(`<text x="${round(axis.x(second))}" y="${y}" text-anchor="middle">${second} s</text>`)
  }
  return labels.join("")
}

const timeline = ({ deeds, judgement }: Report): string => {
  const { seconds, startMs } = judgement.timeline
  const total = Math.max(1, seconds.length)
  const axis: Axis = { total, x: (second) => left + Math.max(0, Math.min(1, second / total)) * plot }
  const of = (key: keyof Second) => seconds.map((second) => second[key])
  const faults = lanes(axis, startMs, 500, deeds)
  const end = 500 + faults.height + 18
  return `<svg viewBox="0 0 ${width} ${end + 8}" role="img" aria-label="timeline of the run">
${
    band(axis, 24, 120, "jobs a second", [
      { name: "submitted", colour: "#888", values: of("submitted") },
      { name: "completed", colour: "#1e8449", values: of("completed") },
      { name: "failed attempts", colour: "#b9770e", values: of("failed") }
    ])
  }
${band(axis, 184, 110, "jobs in flight", [{ name: "running", colour: "#2471a3", values: of("running"), fill: true }])}
${
    band(axis, 334, 110, "recoveries a second", [
      { name: "reclaimed from the lost", colour: "#c0392b", values: of("lost"), fill: true }
    ])
  }
<text x="${left}" y="488" class="title">faults</text>
${faults.svg}
${axisLabels(axis, end)}
</svg>`
}

const row = (cells: ReadonlyArray<string>, tag = "td"): string =>
  `<tr>${cells.map((cell) => `<${tag}>${cell}</${tag}>`).join("")}</tr>`

export const pageOf = (report: Report): string => {
  const { about, deserters, drained, judgement, plan, replay, verdict } = report
  const words = { "held": "Every check held", "broken": "A guarantee was broken", "proved nothing": "Proved nothing" }
  const reasons = [
    ...(drained ? [] : ["The run did not drain in its time."]),
    ...(deserters.length === 0 ? [] : [`Ended although nobody had ended them: ${deserters.join(", ")}.`]),
    ...judgement.provedNothing
  ]
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Deadman chaos, seed ${escape(plan.seed)}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: ${width}px; margin: 2em auto; padding: 0 1em; color: #222; background: #fff }
h1 { font-size: 1.5em } h2 { font-size: 1.1em; margin-top: 2em }
.verdict { padding: .4em .8em; border-radius: 6px; color: #fff; display: inline-block }
.held { background: #1e8449 } .broken { background: #c0392b } .nothing { background: #b9770e }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; padding: .2em .8em .2em 0; border-bottom: 1px solid #eee; vertical-align: top }
code { background: #f4f4f4; padding: .1em .3em; overflow-wrap: anywhere }
svg { width: 100%; height: auto } svg text { font: 11px system-ui, sans-serif; fill: #444 } svg .title { font-weight: 600 }
svg .scale { text-anchor: end } .frame { fill: none; stroke: #ddd } .lane { stroke: #eee }
</style></head><body>
<h1>Deadman chaos <span class="verdict ${verdict === "proved nothing" ? "nothing" : verdict}">${
    words[verdict]
  }</span></h1>
<p>${plan.jobs} jobs, ${plan.workers} workers of ${plan.threads}, lease ${plan.leaseMs} ms, profile ${plan.profile}, seed <code>${
    escape(plan.seed)
  }</code>. Deadman ${escape(about.version)}, Node ${escape(about.node)}, Postgres ${escape(about.postgres)}, ${
    escape(about.machine)
  }, ${escape(about.date)}.</p>
${reasons.map((reason) => `<p><strong>${escape(reason)}</strong></p>`).join("")}
<h2>Timeline</h2>
${timeline(report)}
<h2>Figures</h2>
<table>${figuresOf(report).map(([name, value]) => row([escape(name), escape(value)])).join("")}</table>
<h2>Checks</h2>
<table>${
    judgement.checks.map(({ broken, held, jobs, law }) =>
      row([
        held ? "held" : `<strong>broken ${broken} times</strong>`,
        escape(law) + jobs.map(({ detail, id }) => `<br><code>${escape(id)}</code> ${escape(detail)}`).join("")
      ])
    ).join("")
  }</table>
<h2>To replay it</h2>
<p><code>${escape(replay)}</code></p>
</body></html>
`
}
