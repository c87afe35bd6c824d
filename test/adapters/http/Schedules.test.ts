import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { ServerAddress } from "../../../src/adapters/http/Server.ts"
import * as ApiClient from "../../support/ApiClient.ts"
import * as FaultyStore from "../../support/FaultyStore.ts"
import * as Subject from "./Subject.ts"

const send = (method: string, path: string, body?: unknown, headers?: Record<string, string>) =>
  Effect.flatMap(ServerAddress, ({ port }) => ApiClient.make(port).send(method, path, body, headers))

const daily = { cron: "30 2 * * *", zone: "America/New_York", type: "report" }

const day = 86_400_000

for (const [store, layer] of Subject.both) {
  it.layer(layer, { excludeTestServices: true, timeout: "2 minutes" })(`HTTP schedules over ${store}`, (it) => {
    it.effect("a schedule comes back with every field, its next five ticks, and absent values as null", () =>
      Effect.gen(function*() {
        const said = {
          payload: { to: "all" },
          queue: "q1",
          priority: 5,
          max_attempts: 2,
          backoff: { kind: "fixed", delay_ms: 5 },
          timeout_ms: 1_000,
          retain_ms: 9_000,
          tags: ["a b"],
          missed: { all: 3 },
          overlap: "skip",
          paused: false
        }
        const made = yield* send("PUT", "/schedules/whole", { ...daily, ...said })
        assert.strictEqual(made.status, 201)
        const { created_at_ms, next_fires_ms, updated_at_ms, ...rest } = made.body
        assert.strictEqual(created_at_ms, updated_at_ms)
        assert.deepStrictEqual(rest, {
          name: "whole",
          cron: "30 2 * * *",
          zone: "America/New_York",
          every_ms: null,
          type: "report",
          ...said,
          last_fire_ms: null,
          last_job: null
        })
        assert.lengthOf(next_fires_ms, 5)
        assert.isTrue(next_fires_ms[0] > created_at_ms && next_fires_ms[0] <= created_at_ms + day + 3_600_000)
        assert.deepStrictEqual((yield* send("GET", "/schedules/whole")).body, made.body)
      }))

    it.effect("what is left out has its default", () =>
      Effect.gen(function*() {
        const { body, status } = yield* send("PUT", "/schedules/short", { every_ms: 86_400_000, type: "report" })
        assert.strictEqual(status, 201)
        const { cron, every_ms, max_attempts, missed, next_fires_ms, overlap, paused, payload, priority, queue, zone } =
          body
        assert.deepStrictEqual(
          { cron, every_ms, max_attempts, missed, overlap, paused, payload, priority, queue, zone },
          {
            cron: null,
            every_ms: 86_400_000,
            max_attempts: 10,
            missed: "latest",
            overlap: "allow",
            paused: false,
            payload: null,
            priority: 0,
            queue: "default",
            zone: null
          }
        )
        assert.deepStrictEqual(next_fires_ms.map((ms: number) => ms % 86_400_000), [0, 0, 0, 0, 0])
        const utc = yield* send("PUT", "/schedules/short", { cron: "0 0 * * *", type: "report" })
        assert.deepStrictEqual([utc.status, utc.body.zone, utc.body.every_ms], [200, "UTC", null])
      }))

    it.effect("what cannot be followed is refused with the field that is wrong", () =>
      Effect.gen(function*() {
        const wrong: ReadonlyArray<readonly [change: object, field: string, message?: RegExp]> = [
          [{ cron: "0 0 30 2 *" }, "cron", /never comes/],
          [{ cron: "0 0 31 4 *" }, "cron", /never comes/],
          [{ cron: "0 0 0 30 2 *" }, "cron", /five fields/],
          [{ cron: "60 * * * *" }, "cron", /minute "60"/],
          [{ cron: "*/0 * * * *" }, "cron", /minute/],
          [{ cron: "* * * * * *" }, "cron", /no seconds/],
          [{ cron: "@daily" }, "cron", /write 0 0 \* \* \*/],
          [{ cron: "" }, "cron", /five fields/],
          [{ cron: null }, "cron"],
          [{ cron: 5 }, "cron"],
          [{ cron: ["* * * * *"] }, "cron"],
          [{ cron: "* ".repeat(5_000) }, "cron"],
          [{ every_ms: 1_000 }, "cron", /not both/],
          [{ zone: "Mars/Olympus" }, "zone", /IANA/],
          [{ zone: "+02:00" }, "zone"],
          [{ zone: "" }, "zone"],
          [{ zone: 1 }, "zone"],
          [{ cron: null, zone: "UTC", every_ms: 1_000 }, "zone"],
          [{ cron: null, zone: null, every_ms: 999 }, "every_ms"],
          [{ cron: null, zone: null, every_ms: 1_500.5 }, "every_ms"],
          [{ cron: null, zone: null, every_ms: 86_400_001 }, "every_ms"],
          [{ cron: null, zone: null, every_ms: "1000" }, "every_ms"],
          [{ type: undefined }, "type"],
          [{ type: "a b" }, "type"],
          [{ queue: "" }, "queue"],
          [{ priority: 1_001 }, "priority"],
          [{ max_attempts: 0 }, "max_attempts"],
          [{ timeout_ms: 0 }, "timeout_ms"],
          [{ backoff: { kind: "fixed" } }, "backoff"],
          [{ tags: "a" }, "tags"],
          [{ missed: "some" }, "missed"],
          [{ missed: { all: 0 } }, "missed"],
          [{ missed: { all: 1_001 } }, "missed"],
          [{ missed: { all: 1, more: 2 } }, "missed"],
          [{ missed: null }, "missed"],
          [{ overlap: "never" }, "overlap"],
          [{ paused: "yes" }, "paused"]
        ]
        for (const [change, field, message = /./] of wrong) {
          const answer = yield* send("PUT", "/schedules/refused", { ...daily, ...change })
          const shown = `${JSON.stringify(change).slice(0, 100)}: ${JSON.stringify(answer.body)}`
          assert.strictEqual(answer.status, 400, shown)
          assert.strictEqual(answer.body.error.field, field, shown)
          assert.include(answer.body.error.message, field, shown)
          assert.match(answer.body.error.message, message, shown)
        }
        for (const field of ["seconds", "run_at_ms", "idempotency_key", "name", "next_fire_ms"]) {
          const answer = yield* send("PUT", "/schedules/refused", { ...daily, [field]: 1 })
          assert.deepStrictEqual([answer.status, answer.body.error.code, answer.body.error.field], [
            400,
            "unknown_field",
            field
          ])
        }
        for (const body of ["", "[]", "null", "{", "\"a\""]) {
          assert.strictEqual((yield* send("PUT", "/schedules/refused", body)).status, 400, body)
        }
        assert.strictEqual((yield* send("PUT", "/schedules/a%20b", daily)).status, 400)
        const text = yield* send("PUT", "/schedules/refused", JSON.stringify(daily), { "content-type": "text/plain" })
        assert.strictEqual(text.status, 415)
        assert.strictEqual((yield* send("GET", "/schedules/refused")).status, 404)
      }))

    it.effect("the same again changes nothing of what is booked; another timing never fires retroactively", () =>
      Effect.gen(function*() {
        const first = yield* send("PUT", "/schedules/again", daily)
        const second = yield* send("PUT", "/schedules/again", daily)
        assert.strictEqual(second.status, 200)
        assert.deepStrictEqual(second.body.next_fires_ms, first.body.next_fires_ms)
        const before = Date.now()
        const third = yield* send("PUT", "/schedules/again", { ...daily, cron: "* * * * *" })
        // The clocks of database and test are the same machine's; a second is for their reading.
        assert.isAbove(third.body.next_fires_ms[0], before - 1_000)
        assert.notDeepEqual(third.body.next_fires_ms, first.body.next_fires_ms)
      }))

    it.effect("pause, resume, run and delete do what they say, and 404 names no schedule", () =>
      Effect.gen(function*() {
        yield* send("PUT", "/schedules/steps", daily)
        const paused = yield* send("POST", "/schedules/steps/pause")
        assert.deepStrictEqual([paused.status, paused.body.paused, paused.body.next_fires_ms], [200, true, []])
        const ran = yield* send("POST", "/schedules/steps/run")
        assert.strictEqual(ran.status, 201)
        assert.deepStrictEqual([ran.body.schedule, ran.body.tick_ms, ran.body.type], ["steps", null, "report"])
        assert.strictEqual(ran.headers.get("location"), `/jobs/${ran.body.id}`)
        assert.deepStrictEqual((yield* send("GET", `/jobs/${ran.body.id}`)).body, ran.body)
        const resumed = yield* send("POST", "/schedules/steps/resume")
        assert.lengthOf(resumed.body.next_fires_ms, 5)
        assert.strictEqual(resumed.body.last_job, ran.body.id)
        const gone = yield* send("DELETE", "/schedules/steps")
        assert.deepStrictEqual([gone.status, gone.body], [204, ""])
        assert.strictEqual((yield* send("GET", `/jobs/${ran.body.id}`)).status, 200, "its job stays")
        for (
          const [method, path] of [
            ["GET", ""],
            ["DELETE", ""],
            ["POST", "/pause"],
            ["POST", "/resume"],
            ["POST", "/run"]
          ] as const
        ) {
          const answer = yield* send(method, `/schedules/steps${path}`)
          assert.deepStrictEqual([answer.status, answer.body.error.code], [404, "not_found"], `${method} ${path}`)
        }
        assert.strictEqual((yield* send("PATCH", "/schedules/steps")).status, 405)
      }))

    it.effect("run is a 409 while the job before is not final and two may not be there at once", () =>
      Effect.gen(function*() {
        yield* send("PUT", "/schedules/once", { ...daily, overlap: "skip" })
        const first = yield* send("POST", "/schedules/once/run")
        const second = yield* send("POST", "/schedules/once/run")
        assert.deepStrictEqual([second.status, second.body.error.code], [409, "wrong_state"])
        assert.strictEqual(second.body.error.state, "pending")
        assert.include(second.body.error.message, first.body.id)
        yield* send("DELETE", `/jobs/${first.body.id}`)
        assert.strictEqual((yield* send("POST", "/schedules/once/run")).status, 201)
      }))

    it.effect("run takes an Idempotency-Key: a repeat is the same job, and another request is refused", () =>
      Effect.gen(function*() {
        const key = { "idempotency-key": "run-1" }
        const run = (name: string, headers: Record<string, string>) =>
          send("POST", `/schedules/${name}/run`, undefined, headers)
        yield* send("PUT", "/schedules/keyed", { ...daily, overlap: "skip" })
        yield* send("PUT", "/schedules/keyed-2", daily)
        const first = yield* run("keyed", key)
        const again = yield* run("keyed", { "idempotency-key": `"run-1"` })
        assert.deepStrictEqual([first.status, again.status, again.body.id], [201, 200, first.body.id])
        assert.strictEqual(again.headers.get("idempotent-replayed"), "true")
        const other = yield* run("keyed-2", key)
        assert.deepStrictEqual([other.status, other.body.error.code], [422, "idempotency_key_reused"])
        const submit = yield* send("POST", "/jobs", { type: "none", idempotency_key: "run-1" })
        assert.strictEqual(submit.status, 422)
        const wrong = yield* run("keyed", { "idempotency-key": "a b" })
        assert.deepStrictEqual([wrong.status, wrong.body.error.code], [400, "invalid_idempotency_key"])
        yield* send("DELETE", `/jobs/${first.body.id}`)
        assert.strictEqual((yield* run("keyed", key)).body.id, first.body.id)
        assert.strictEqual((yield* run("keyed", { "idempotency-key": "run-2" })).status, 201)
      }))

    it.effect("a list is walked by its cursor, each schedule once", () =>
      Effect.gen(function*() {
        for (const name of ["l1", "l2", "l3"]) {
          yield* send("PUT", `/schedules/${name}`, daily)
        }
        const names: Array<string> = []
        let cursor: string | null = null
        do {
          const page: ApiClient.Answer = yield* send(
            "GET",
            `/schedules?limit=2${cursor === null ? "" : `&cursor=${cursor}`}`
          )
          assert.strictEqual(page.status, 200)
          assert.isAtMost(page.body.schedules.length, 2)
          names.push(...page.body.schedules.map(({ name }: { name: string }) => name))
          cursor = page.body.next_cursor
        } while (cursor !== null)
        assert.deepStrictEqual(names, [...new Set(names)].sort())
        assert.includeMembers(names, ["l1", "l2", "l3"])
        for (
          const [query, field] of [["limit=0", "limit"], ["limit=501", "limit"], ["cursor=x", "cursor"], ["a=1", "a"]]
        ) {
          const answer = yield* send("GET", `/schedules?${query}`)
          assert.deepStrictEqual([answer.status, answer.body.error.field], [400, field])
        }
      }))
  })
}

it.layer(Subject.layerFaulty(), { excludeTestServices: true, timeout: "2 minutes" })("HTTP schedules", (it) => {
  it.effect("each answers 503 within seconds while the store is away or hangs, and says nothing of it", () =>
    Effect.gen(function*() {
      const faults = yield* FaultyStore.Faults
      for (const fault of ["away", "hanging"] as const) {
        faults.fault = fault
        const answers = yield* Effect.forEach(
          [
            ["PUT", "/schedules/a", daily],
            ["GET", "/schedules/a", undefined],
            ["GET", "/schedules", undefined],
            ["DELETE", "/schedules/a", undefined],
            ["POST", "/schedules/a/pause", undefined],
            ["POST", "/schedules/a/run", undefined]
          ] as const,
          ([method, path, body]) => send(method, path, body),
          { concurrency: "unbounded" }
        )
        for (const { body, headers, status } of answers) {
          assert.deepStrictEqual([status, body.error.code, headers.get("retry-after")], [503, "unavailable", "1"])
          assert.notInclude(JSON.stringify(body), "secret")
        }
      }
      faults.fault = "none"
    }))
})

it.layer(Subject.layer(), { excludeTestServices: true })("HTTP schedules in OpenAPI", (it) => {
  it.effect("are in the OpenAPI document, each path of them", () =>
    Effect.gen(function*() {
      const { body } = yield* send("GET", "/openapi.json")
      assert.includeMembers(Object.keys(body.paths), [
        "/schedules",
        "/schedules/{name}",
        "/schedules/{name}/pause",
        "/schedules/{name}/resume",
        "/schedules/{name}/run"
      ])
      assert.sameMembers(Object.keys(body.paths["/schedules/{name}"]), ["get", "put", "delete"])
      assert.sameMembers(Object.keys(body.paths["/schedules/{name}"].put.responses).filter((code) => code < "300"), [
        "200",
        "201"
      ])
    }))
})
