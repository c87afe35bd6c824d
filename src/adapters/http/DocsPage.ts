/**
 * `/docs`: the OpenAPI document as a page for people, and the way to it from `/`.
 *
 * A page of our own, since the bundled viewers need inline scripts: this one has no script at all and its style is a
 * file beside it, so that nothing in it can run, whatever a description says.
 */
import { Effect } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { OpenApi } from "effect/http-api"
import { Api } from "./Api.ts"
import { codeNames, codes } from "./ApiError.ts"

export const paths = ["/", "/docs", "/docs/style.css"]

const style = `:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
code,pre{font-family:ui-monospace,monospace;font-size:.9em}
pre{padding:.75rem;overflow:auto;border:1px solid #8884;border-radius:.25rem}
h2{margin-top:2.5rem;border-top:1px solid #8884;padding-top:1rem}
.method{display:inline-block;min-width:5.5rem;font-weight:bold}
table{border-collapse:collapse}td,th{text-align:left;padding:.2rem 1rem .2rem 0;vertical-align:top}
`

const escape = (text: string): string =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll("\"", "&quot;")

const refStart = "#/components/schemas/"
const anchorOf = (name: string): string => `shape-${name}`
const shapeLink = (name: string): string => `<a href="#${escape(anchorOf(name))}"><code>${escape(name)}</code></a>`

/** A schema as JSON, in which each reference leads to its shape. */
const schemaHtml = (schema: object): string =>
  escape(JSON.stringify(schema, null, 2)).replaceAll(
    /&quot;#\/components\/schemas\/(\w+)&quot;/g,
    (_, name: string) => `&quot;${shapeLink(name)}&quot;`
  )

interface Said {
  readonly $ref?: string
  readonly description?: string
  readonly enum?: ReadonlyArray<unknown>
}

const shapeOf = (schema: Said | undefined): string | null =>
  schema?.$ref?.startsWith(refStart) === true ? schema.$ref.slice(refStart.length) : null

const contentHtml = (what: string, type: string, schema: object): string => {
  const shape = shapeOf(schema)
  const name = `${what}, <code>${escape(type)}</code>`
  return shape === null
    ? `<details><summary>${name}</summary><pre>${schemaHtml(schema)}</pre></details>`
    : `<p>${name}: ${shapeLink(shape)}</p>`
}

/** What is said of a parameter stands in its schema. */
const parameterText = (description: string | undefined, schema: Said): string =>
  [description ?? schema.description, schema.enum?.map(String).join(", ")].filter((part) => part !== undefined).join(
    ": "
  )

const operationHtml = (method: string, path: string, operation: OpenApi.OpenAPISpecOperation): string => {
  const parameters = operation.parameters.map(({ description, in: place, name, required, schema }) =>
    `<tr><td><code>${escape(name)}</code></td><td>${place}${required ? ", required" : ""}</td><td>${
      escape(parameterText(description, schema))
    }</td></tr>`
  ).join("")
  const body = Object.entries(operation.requestBody?.content ?? {}).map(([type, media]) =>
    contentHtml("Body", type, media.schema ?? {})
  ).join("")
  const statuses = Object.entries(operation.responses).map(([status, { content }]) => {
    const shape = status.startsWith("2") ? shapeOf(content?.["application/json"]?.schema) : null
    return `<code>${status}</code>${shape === null ? "" : ` ${shapeLink(shape)}`}`
  }).join(" ")
  return `<h3><span class="method">${method.toUpperCase()}</span> <code>${escape(path)}</code></h3>
<p><b>${escape(operation.summary ?? "")}.</b> ${escape(operation.description ?? "")}</p>
${parameters === "" ? "" : `<table>${parameters}</table>`}${body}<p>Answers: ${statuses}</p>`
}

const methods = ["get", "post", "put", "patch", "delete"] as const

const render = (): string => {
  const spec = OpenApi.fromApi(Api)
  const operations = Object.entries(spec.paths).flatMap(([path, item]) =>
    methods.flatMap((method) => {
      const operation = item[method]
      return operation === undefined ? [] : [operationHtml(method, path, operation)]
    })
  )
  // The anchor lies within: a browser that is sent to it opens what is around it.
  const schemas = Object.entries(spec.components.schemas).toSorted(([a], [b]) => a < b ? -1 : 1).map(([name, schema]) =>
    `<details><summary><code>${escape(name)}</code></summary><pre id="${escape(anchorOf(name))}">${
      schemaHtml(schema)
    }</pre></details>`
  )
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>Deadman: HTTP API</title><link rel="stylesheet" href="/docs/style.css"></head><body>
<h1>Deadman: HTTP API</h1>
<p>${escape(spec.info.description ?? "")} The machine-readable form is at <a href="/openapi.json">/openapi.json</a>.</p>
<p>Where the server has a <code>DEADMAN_API_TOKEN</code>, each request carries it, but for <code>/health</code>: <code>Authorization: Bearer …</code></p>
<pre>curl -s localhost:8080/jobs -H 'content-type: application/json' -d '{"type":"sleep","payload":500}'</pre>
<h2>Routes</h2>${operations.join("\n")}
<h2>Errors</h2>
<p>Every error is <code>{"error": {"code", "message", "field"?}}</code>, with one of these codes:</p>
<table>${codeNames.map((code) => `<tr><td><code>${code}</code></td><td>${codes[code]}</td></tr>`).join("")}</table>
<h2>Shapes</h2>${schemas.join("\n")}
</body></html>`
}

const policy = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

export const layer = HttpRouter.use((router) =>
  Effect.gen(function*() {
    const page = HttpServerResponse.text(render(), {
      contentType: "text/html; charset=utf-8",
      headers: { "content-security-policy": policy }
    })
    yield* router.add("GET", "/docs", Effect.succeed(page))
    yield* router.add("GET", "/", Effect.succeed(HttpServerResponse.redirect("/docs")))
    yield* router.add(
      "GET",
      "/docs/style.css",
      Effect.succeed(HttpServerResponse.text(style, { contentType: "text/css; charset=utf-8" }))
    )
  })
)
