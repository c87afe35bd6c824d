import { assert, it } from "@effect/vitest"
import { Clock, Effect, Exit, Fiber, Layer, Redacted, Scope } from "effect"
import { OpenApi } from "effect/http-api"
import { readFileSync } from "node:fs"
import { connect } from "node:net"
import { Api } from "../../../src/adapters/http/Api.ts"
import { codeNames } from "../../../src/adapters/http/ApiError.ts"
import { ServerAddress } from "../../../src/adapters/http/Server.ts"
import { Loops } from "../../../src/programs/process/Loops.ts"
import { Stopping } from "../../../src/programs/process/Stopping.ts"
import * as ApiClient from "../../support/ApiClient.ts"
import { eventually } from "../../support/Eventually.ts"
import * as FaultyStore from "../../support/FaultyStore.ts"
import * as Raw from "./Raw.ts"
import * as Subject from "./Subject.ts"

const client = Effect.map(ServerAddress, ({ port }) => ApiClient.make(port))

/** Every route of the definition, with an id that does not exist. */
const routes = Object.values(Api.groups).flatMap((group) =>
  Object.values(group.endpoints).map((endpoint) => ({
    method: endpoint.method as string,
    path: endpoint.path.replace(/(.)\/$/, "$1").replace(":id", "0190b0c0-0000-7000-8000-000000000000").replace(
      ":name",
      "none"
    )
  }))
)

it.layer(Subject.layer(), { excludeTestServices: true })("HTTP server", (it) => {
  it.effect("every route of the definition is served", () =>
    Effect.gen(function*() {
      const { send } = yield* client
      assert.isTrue(routes.length >= 11)
      for (const { method, path } of routes) {
        const answer = yield* send(method, path, method === "POST" && !path.includes("/0") ? "1" : undefined)
        assert.notInclude([405, 500], answer.status, `${method} ${path}`)
        assert.notInclude(answer.body?.error?.message ?? "", "nothing at this path", `${method} ${path}`)
      }
    }))

  it.effect("A wrong path is 404, a wrong method 405 with Allow, both in JSON", () =>
    Effect.gen(function*() {
      const { send } = yield* client
      for (const path of ["/nope", "/jobs/a/b", "/favicon.ico", "/%00", "/jobs/a/retry/b"]) {
        const answer = yield* send("GET", path)
        assert.strictEqual(answer.status, 404, path)
        assert.strictEqual(answer.body.error.code, "not_found")
      }
      for (
        const [method, path] of [
          ["PUT", "/jobs"],
          ["PATCH", "/jobs/x"],
          ["OPTIONS", "/jobs"],
          ["DELETE", "/health"],
          ["GET", "/jobs/x/retry"],
          ["DELETE", "/jobs"]
        ] as const
      ) {
        const answer = yield* send(method, path)
        assert.strictEqual(answer.status, 405, `${method} ${path}`)
        assert.strictEqual(answer.body.error.code, "method_not_allowed")
        assert.isString(answer.headers.get("allow"))
      }
    }))

  it.effect("HEAD is GET without its body", () =>
    Effect.gen(function*() {
      const { port } = yield* ServerAddress
      for (const path of ["/health", "/jobs", "/stats", "/openapi.json", "/docs"]) {
        const head = yield* Raw.request(port, "HEAD", path, [])
        assert.strictEqual(head.status, 200, path)
        assert.strictEqual(head.body, "")
      }
    }))

  it.effect("OpenAPI lists every error code and every route", () =>
    Effect.gen(function*() {
      const { body, status } = yield* (yield* client).send("GET", "/openapi.json")
      assert.strictEqual(status, 200)
      assert.match(body.openapi, /^3\.1\./)
      assert.strictEqual(body.info.version, JSON.parse(readFileSync("package.json", "utf8")).version)
      assert.deepStrictEqual(body.components.securitySchemes.token, { type: "http", scheme: "bearer" })
      assert.deepStrictEqual(body.security, [{}, { token: [] }])
      const text = JSON.stringify(body)
      for (const code of codeNames) {
        assert.include(text, `"${code}"`)
      }
      for (const { method, path } of routes) {
        const template = path.replace("0190b0c0-0000-7000-8000-000000000000", "{id}").replace("/none", "/{name}")
        assert.isDefined(body.paths[template]?.[method.toLowerCase()], `${method} ${template}`)
      }
      // Every reference leads somewhere.
      const references = Array.from(text.matchAll(/"#\/components\/schemas\/([^"]+)"/g))
      assert.isNotEmpty(references)
      for (const [, name] of references) {
        assert.isDefined(body.components.schemas[name!], name)
      }
      assert.deepStrictEqual(body, JSON.parse(JSON.stringify(OpenApi.fromApi(Api))))
    }))

  it.effect("each operation has a short name of its own, in the words of the glossary, and the page shows it", () =>
    Effect.gen(function*() {
      const { send } = yield* client
      const { body } = yield* send("GET", "/openapi.json")
      const page = (yield* send("GET", "/docs")).body
      const names = Object.entries<object>(body.paths).flatMap(([path, item]) =>
        Object.entries(item).map(([method, { summary }]) => {
          assert.match(summary, /^[A-Z][a-z ]{5,40}$/, `${method} ${path} needs a summary`)
          assert.notMatch(summary, /task|message|enqueue|dequeue|acknowledge|create|update|fetch|reserve/i)
          assert.include(page, `<b>${summary}.</b>`)
          return summary
        })
      )
      assert.isAtLeast(names.length, 25)
      assert.deepStrictEqual(names.filter((name, at) => names.indexOf(name) !== at), [])
    }))

  it.effect("the page leads from each operation to its shapes, and says what its parameters are", () =>
    Effect.gen(function*() {
      const { send } = yield* client
      const { body } = yield* send("GET", "/docs")
      const within = (pattern: RegExp) => Array.from<RegExpMatchArray>(body.matchAll(pattern)).map(([, text]) => text!)
      const places = within(/ id="([^"]+)"/g)
      const targets = within(/href="#([^"]+)"/g)
      assert.include(targets, "shape-NewJob")
      assert.deepStrictEqual(targets.filter((target) => !places.includes(target)), [])
      const [, claims = ""] = body.split("<code>/workers/claims</code>")
      assert.include(claims.slice(0, 600), "href=\"#shape-ClaimRequest\"")
      assert.notMatch(body, /<pre>\{\s+&quot;\$ref&quot;: [^,]*\}<\/pre>/)
      assert.include(body, "<td>pending, running, failed, completed, dead</td>")
      assert.include(body, "50 by default, 500 at most")
      assert.include(body, "up to 200 ids with commas between")
    }))

  it.effect("who comes to / is sent to /docs", () =>
    Effect.gen(function*() {
      const { port } = yield* ServerAddress
      for (const path of ["/", "/?from=habit"]) {
        const response = yield* Effect.promise(() => fetch(`http://127.0.0.1:${port}${path}`, { redirect: "manual" }))
        assert.strictEqual(response.status, 302)
        assert.strictEqual(response.headers.get("location"), "/docs")
      }
    }))

  it.effect("K95: the page of documentation can run nothing and fetch nothing from elsewhere", () =>
    Effect.gen(function*() {
      const { send } = yield* client
      const page = yield* send("GET", "/docs")
      assert.strictEqual(page.status, 200)
      assert.match(page.headers.get("content-type") ?? "", /^text\/html/)
      const policy = page.headers.get("content-security-policy") ?? ""
      assert.include(policy, "default-src 'none'")
      assert.notInclude(policy, "unsafe")
      assert.notMatch(page.body, /<script|style=|onerror|https?:\/\//)
      const links = Array.from<RegExpMatchArray>(page.body.matchAll(/(?:href|src)="([^"]+)"/g))
      assert.isNotEmpty(links)
      for (const [, path] of links) {
        assert.strictEqual((yield* send("GET", path!)).status, 200, path)
      }
      for (const code of codeNames) {
        assert.include(page.body, code)
      }
    }))

  it.effect("K95: JSON is sent as JSON, with nosniff, and without CORS", () =>
    Effect.gen(function*() {
      const { send } = yield* client
      for (const path of ["/jobs", "/nope", "/stats", "/ready", "/openapi.json", "/metrics", "/docs"]) {
        const answer = yield* send("GET", path)
        assert.strictEqual(answer.headers.get("x-content-type-options"), "nosniff", path)
        assert.isNull(answer.headers.get("access-control-allow-origin"))
        if (path !== "/metrics" && path !== "/docs") {
          assert.match(answer.headers.get("content-type") ?? "", /^application\/json/, path)
        }
      }
    }))

  it.effect("K96: a foreign Host or Origin is refused", () =>
    Effect.gen(function*() {
      const { port } = yield* ServerAddress
      for (const host of ["evil.example", `evil.example:${port}`, "127.0.0.1.evil.example", "localhost.evil"]) {
        const answer = yield* Raw.request(port, "GET", "/jobs", [["Host", host]])
        assert.strictEqual(answer.status, 403, host)
        assert.strictEqual(answer.body.error.code, "host_not_allowed")
      }
      for (const host of ["localhost", `LOCALHOST:${port}`, "127.0.0.1", `[::1]:${port}`]) {
        assert.strictEqual((yield* Raw.request(port, "GET", "/health", [["Host", host]])).status, 200, host)
      }
      const own = [["Host", `localhost:${port}`]] as const
      for (const origin of ["https://evil.example", "null", `http://localhost:${port + 1}`]) {
        const answer = yield* Raw.request(port, "POST", "/jobs/x/retry", [...own, ["Origin", origin]])
        assert.strictEqual(answer.status, 403, origin)
      }
      const same = yield* Raw.request(port, "POST", "/jobs", [
        ...own,
        ["Origin", `http://localhost:${port}`],
        Raw.json
      ], `{"type":"t"}`)
      assert.strictEqual(same.status, 201)
    }))

  it.effect("J93: /metrics has bounded series and no text of users", () =>
    Effect.gen(function*() {
      const { send } = yield* client
      const series = Effect.map(
        send("GET", "/metrics"),
        ({ body }) => (body as string).split("\n").filter((line) => line !== "" && !line.startsWith("#"))
      )
      yield* send("GET", "/stats")
      const before = yield* series
      for (let i = 0; i < 50; i++) {
        yield* send("POST", "/jobs", { type: `secret-${i}`, queue: `queue-${i}`, tags: [`tag-${i}`] })
      }
      const after = yield* series
      assert.strictEqual(after.length, before.length)
      assert.notInclude(after.join("\n"), "secret")
      assert.isTrue(after.some((line) => /^deadman_submitted_total \d+$/.test(line)))
      assert.isTrue(after.every((line) => /^[a-z_]+(\{[^}]*\})? (\S+)$/.test(line)), "each line is a sample")
    }))

  it.effect("/stats has the shape of the contract, and is at most five seconds behind", () =>
    Effect.gen(function*() {
      const { send } = yield* client
      yield* send("POST", "/jobs", { type: "counted", queue: "counted" })
      yield* eventually(
        "the job is counted",
        Effect.map(
          send("GET", "/stats"),
          ({ body }) => body.jobs?.by_type.counted === 1 && body.jobs.by_queue.counted === 1
        ),
        "5 seconds"
      )
      const { body } = yield* send("GET", "/stats")
      assert.strictEqual(body.unhandled.counted, 1)
      assert.isNumber(body.oldest_ready_ms)
      assert.deepStrictEqual(Object.keys(body), [
        "version",
        "profile",
        "adapters",
        "jobs",
        "oldest_ready_ms",
        "as_of_ms",
        "counters",
        "unhandled",
        "workers"
      ])
      assert.deepStrictEqual(Object.keys(body.jobs.by_state).sort(), [
        "completed",
        "dead",
        "failed",
        "pending",
        "running"
      ])
      for (
        const name of [
          "submitted",
          "replayed",
          "claimed",
          "completed",
          "failed",
          "dead",
          "released",
          "reclaimed",
          "lease_losses",
          "stale_writes",
          "runaways"
        ]
      ) {
        assert.isNumber(body.counters[name], name)
      }
    }))

  it.effect("a client that goes away in the middle takes nobody along", () =>
    Effect.gen(function*() {
      const { port } = yield* ServerAddress
      const { send } = yield* client
      const body = JSON.stringify({ type: "aborted" })
      const head = `POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: `
      for (let i = 0; i < 30; i++) {
        const sockets = [
          `${head}${body.length}\r\n\r\n${body}`,
          `${head}${body.length}\r\n\r\n${body.slice(0, 5)}`,
          head
        ].map((bytes) => {
          const socket = connect(port, "127.0.0.1").on("error", () => {})
          socket.write(bytes)
          return socket
        })
        const answers = yield* Effect.all(
          Array.from({ length: 3 }, () => send("POST", "/jobs", { type: "stayed" })),
          { concurrency: 3 }
        )
        sockets.forEach((socket) => socket.resetAndDestroy())
        assert.isTrue(answers.every(({ status }) => status === 201))
      }
      assert.strictEqual((yield* send("GET", "/jobs?type=stayed&limit=500")).body.jobs.length, 90)
    }))

  it.effect("what is no HTTP is answered with 400 in JSON", () =>
    Effect.gen(function*() {
      const { port } = yield* ServerAddress
      for (const bytes of ["GARBAGE\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET /health HTTP/1.1\r\n\r\n"]) {
        const answer = yield* Raw.send(port, bytes)
        assert.strictEqual(answer.status, 400, bytes)
      }
      const large = yield* Raw.request(port, "GET", "/health", [["X-Large", "x".repeat(20_000)]])
      assert.strictEqual(large.status, 431)
      assert.strictEqual(large.body.error.code, "headers_too_large")
    }))

  it.effect("a loop that makes no progress is a reason not to be ready", () =>
    Effect.gen(function*() {
      const { send } = yield* client
      assert.strictEqual((yield* send("GET", "/ready")).status, 200)
      const loops = yield* Loops
      const loop = yield* loops.register("test", 1_000)
      const before = yield* send("GET", "/ready")
      assert.strictEqual(before.status, 503)
      assert.isFalse(before.body.ready)
      assert.include(before.body.reasons[0], "test")
      assert.deepStrictEqual(before.body.loops, { test: { last_ok_ms_ago: null } })
      yield* loop.beat
      const after = yield* send("GET", "/ready")
      assert.strictEqual(after.status, 200)
      assert.isNumber(after.body.loops.test.last_ok_ms_ago)
      assert.strictEqual((yield* send("GET", "/health")).status, 200)
    }))
})

it.layer(Subject.layer({ token: Redacted.make("correct horse") }), { excludeTestServices: true })(
  "HTTP server with a token",
  (it) => {
    it.effect("K96: every route but health asks for it", () =>
      Effect.gen(function*() {
        const { send } = yield* client
        const all = [...routes, { method: "GET", path: "/" }, { method: "GET", path: "/docs" }, {
          method: "GET",
          path: "/openapi.json"
        }, {
          method: "GET",
          path: "/nope"
        }, {
          method: "GET",
          path: "/healthz"
        }]
        const wrong = [
          {},
          { authorization: "Bearer" },
          { authorization: "Bearer correct" },
          { authorization: "Bearer correct horse!" },
          { authorization: "Basic correct horse" },
          { authorization: "correct horse" }
        ]
        for (const { method, path } of all) {
          for (const headers of wrong) {
            const answer = yield* send(method, path, undefined, headers as Record<string, string>)
            if (path === "/health") {
              assert.strictEqual(answer.status, 200)
            } else {
              assert.strictEqual(answer.status, 401, `${method} ${path}`)
              assert.strictEqual(answer.body.error.code, "unauthorized")
              assert.strictEqual(answer.headers.get("www-authenticate"), "Bearer")
            }
          }
          const right = yield* send(method, path, undefined, { authorization: "bearer correct horse" })
          assert.notStrictEqual(right.status, 401)
        }
      }))
  }
)

it.layer(Subject.layerFaulty(), { excludeTestServices: true })("HTTP server, the store away", (it) => {
  it.effect(
    "every route that needs it answers 503 with Retry-After within seconds, and says nothing secret",
    () =>
      Effect.gen(function*() {
        const faults = yield* FaultyStore.Faults
        const { send } = yield* client
        const { body: { id } } = yield* send("POST", "/jobs", { type: "t" })
        for (const fault of ["away", "hanging"] as const) {
          faults.fault = fault
          const began = yield* Clock.currentTimeMillis
          const answers = yield* Effect.all([
            send("POST", "/jobs", { type: "t", payload: "topsecret" }),
            send("GET", `/jobs/${id}`),
            send("GET", "/jobs"),
            send("DELETE", `/jobs/${id}`),
            send("POST", `/jobs/${id}/retry`),
            send("POST", `/jobs/${id}/resubmit`)
          ], { concurrency: 10 })
          assert.isTrue((yield* Clock.currentTimeMillis) - began < 6_000, "within seconds")
          for (const answer of answers) {
            assert.strictEqual(answer.status, 503)
            assert.strictEqual(answer.body.error.code, "unavailable")
            assert.strictEqual(answer.headers.get("retry-after"), "1")
            assert.notMatch(JSON.stringify(answer.body), /SELECT|postgres:|password|topsecret|\n\s+at /)
          }
          assert.strictEqual((yield* send("GET", "/health")).status, 200)
          yield* eventually("not ready", Effect.map(send("GET", "/ready"), ({ status }) => status === 503))
          faults.fault = "none"
          yield* eventually("ready again", Effect.map(send("GET", "/ready"), ({ status }) => status === 200))
          assert.strictEqual((yield* send("GET", `/jobs/${id}`)).status, 200)
        }
        yield* eventually(
          "stats are stale and then 503",
          Effect.gen(function*() {
            faults.fault = "away"
            return (yield* send("GET", "/stats")).status === 503
          }),
          "60 seconds"
        )
        faults.fault = "none"
        yield* eventually("stats again", Effect.map(send("GET", "/stats"), ({ status }) => status === 200))
      }),
    180_000
  )
})

it.layer(Subject.layer({ headersMs: 300, requestMs: 600 }), { excludeTestServices: true })(
  "HTTP server, slow clients",
  (it) => {
    it.effect("a request that does not arrive in time is answered with 408 and closed", () =>
      Effect.gen(function*() {
        const { port } = yield* ServerAddress
        const slow = yield* Raw.send(port, "GET /health HTTP/1.1\r\nHost: local", 8_000)
        assert.strictEqual(slow.status, 408)
        assert.strictEqual(slow.body.error.code, "request_timeout")
        const body = yield* Raw.send(
          port,
          "POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{",
          8_000
        )
        assert.strictEqual(body.status, 408)
      }), 180_000)
  }
)

it.live(
  "I84: while stopping, submits are 503 and reads are answered; then the listener closes",
  () =>
    Effect.gen(function*() {
      const scope = yield* Scope.make()
      const context = yield* Layer.buildWithScope(Subject.layerFaulty(), scope)
      yield* Effect.gen(function*() {
        const { port } = yield* ServerAddress
        const stopping = yield* Stopping
        const faults = yield* FaultyStore.Faults
        const { send } = ApiClient.make(port)
        const { body: { id } } = yield* send("POST", "/jobs", { type: "t" })

        // In flight when the stop begins.
        faults.submitMs = 700
        const inFlight = yield* Effect.forkChild(send("POST", "/jobs", { type: "t" }))
        yield* eventually("it is under way", Effect.sync(() => faults.submits.length === 2))
        yield* stopping.begin
        const refused = yield* send("POST", "/jobs", { type: "t" })
        assert.strictEqual(refused.status, 503)
        assert.strictEqual(refused.body.error.code, "stopping")
        assert.strictEqual(refused.headers.get("retry-after"), "1")
        assert.strictEqual(refused.headers.get("connection"), "close")
        const ready = yield* send("GET", "/ready")
        assert.strictEqual(ready.status, 503)
        assert.include(ready.body.reasons, "shutting down")
        assert.strictEqual((yield* send("GET", `/jobs/${id}`)).status, 200)

        // An idle connection that is kept alive, and one that never finishes its request.
        const idle = connect(port, "127.0.0.1").on("error", () => {})
        idle.write("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        const began = yield* Clock.currentTimeMillis
        yield* Scope.close(scope, Exit.void)
        assert.isTrue((yield* Clock.currentTimeMillis) - began < 4_000, "closes in time")
        assert.strictEqual((yield* Fiber.join(inFlight)).status, 201)
        assert.strictEqual((yield* send("GET", "/health")).status, 0)
        idle.destroy()
      }).pipe(Effect.provideContext(context))
    }),
  180_000
)
