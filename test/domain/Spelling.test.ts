import { assert, describe, it } from "@effect/vitest"
import { distance, meant } from "../../src/domain/Spelling.ts"

const known = ["type", "queue", "max_attempts", "run_at_ms", "timeout_ms", "tags", "retain_ms", "idempotency_key"]

describe("a name that is none of the known ones", () => {
  it.each([
    ["maxAttempts", "max_attempts"],
    ["max-attempts", "max_attempts"],
    ["MAX_ATTEMPTS", "max_attempts"],
    ["attempts", "max_attempts"],
    ["max_atempts", "max_attempts"],
    ["runAt", "run_at_ms"],
    ["timeout", "timeout_ms"],
    ["timeoutMs", "timeout_ms"],
    ["tag", "tags"],
    ["typ", "type"],
    ["quue", "queue"],
    ["retian_ms", "retain_ms"],
    ["Idempotency-Key", "idempotency_key"]
  ])("%s is taken for %s", (written, right) => {
    assert.strictEqual(meant(written, known), right)
  })

  it.each(["id", "ms", "", "_", "<b>", "__proto__", "colour", "delay", "payload_of_mine", "é", "type".repeat(25)])(
    "%s is near none of them",
    (written) => {
      assert.isNull(meant(written, known))
    }
  )

  it.each([
    ["startAfter", "run_at_ms"],
    ["scheduled_at", "run_at_ms"],
    ["retryLimit", "max_attempts"],
    ["name", "type"],
    ["jobId", "idempotency_key"],
    ["removeOnComplete", "retain_ms"],
    ["TIMEZONE", "zone"],
    ["concurrency", "slots"],
    ["connectionString", "databaseUrl"]
  ])("%s, as another queue has it, is taken for %s where there is one", (written, right) => {
    assert.strictEqual(meant(written, [...known, "zone", "slots", "databaseUrl"]), right)
    assert.isNull(meant(written, ["paused"]))
  })

  it("is taken for what is near before what another queue calls so", () => {
    assert.strictEqual(meant("name", ["names", "type"]), "names")
  })

  it("is taken for the nearest where several are near", () => {
    assert.strictEqual(meant("limits", ["limited", "limit", "limit_ms"]), "limit")
    assert.strictEqual(meant("run", ["run_at_ms", "runs"]), "runs")
    assert.strictEqual(meant("run", ["run_at_ms"]), "run_at_ms")
    assert.isNull(meant("a".repeat(41), ["a".repeat(42)]), "so long a name is no slip")
    assert.isNull(meant("type", []))
  })
})

it.each([
  ["", "", 0],
  ["", "abc", 3],
  ["tag", "tags", 1],
  ["quue", "queue", 1],
  ["kitten", "sitting", 3],
  ["retian", "retain", 2]
])("%s and %s are %i letters apart, either way", (a, b, letters) => {
  assert.strictEqual(distance(a, b), letters)
  assert.strictEqual(distance(b, a), letters)
})
