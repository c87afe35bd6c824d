/** What people are shown: cut to the terminal, and harmless to it. */
import { assert, it } from "@effect/vitest"
import * as Table from "../../../src/programs/cli/Table.ts"
import * as Text from "../../../src/programs/cli/Text.ts"

it("shows what a terminal would act on as dots", () => {
  assert.strictEqual(Text.clean("a\u001b[31mb\r\n\u009b2Jc\u202ed"), "a·[31mb···2Jc·d")
  const table = Table.table({ paint: Table.plain, width: null }, ["A"], [[Table.cell("\u001b]0;title\u0007x")]], "")
  assert.strictEqual(table, "A\n·]0;title·x")
})

it("reads times that name their zone, and tells those that do not from what is no time", () => {
  const at = Date.UTC(2030, 0, 31, 8, 0, 0)
  const read: ReadonlyArray<readonly [string, number | "unzoned" | null]> = [
    ["2030-01-31T08:00:00Z", at],
    ["2030-01-31T08:00Z", at],
    ["2030-01-31 08:00:00.125Z", at + 125],
    ["2030-01-31T10:00:00+02:00", at],
    ["2030-01-31T02:30:00-0530", at],
    // As Python and psql write them.
    ["2030-01-31T08:00:00.123456+00:00", at + 123],
    ["2030-01-31 08:00:00+00", at],
    [String(at), at],
    ["2030-01-31T08:00:00", "unzoned"],
    ["2030-01-31 08:00", "unzoned"],
    ["2030-01-31", "unzoned"],
    ["2030-02-31T08:00:00Z", null],
    ["2030-02-31", null],
    ["2030-13-01T08:00:00Z", null],
    ["2030-01-31T25:00:00Z", null],
    ["2030-01-31T08:00:00+99:00", null],
    ["tomorrow", null],
    ["08:00", null],
    ["", null]
  ]
  for (const [text, ms] of read) {
    assert.strictEqual(Text.instantOf(text), ms, text)
  }
})

it("reads and writes lengths of time", () => {
  const read: ReadonlyArray<readonly [string, number | null]> = [
    ["10", 10_000],
    ["1.5", 1_500],
    ["500ms", 500],
    ["90s", 90_000],
    ["1h30m", 5_400_000],
    ["2d", 172_800_000],
    ["ten", null],
    ["-5s", null],
    ["", null],
    ["5 s", null]
  ]
  for (const [text, ms] of read) {
    assert.strictEqual(Text.lengthOf(text), ms, text)
  }
  assert.deepStrictEqual([0, 999, 1_500, 59_999, 60_000, 5_400_000, 90_061_000].map(Text.length), [
    "0ms",
    "999ms",
    "1.5s",
    "59.9s",
    "1m",
    "1h 30m",
    "1d 1h"
  ])
  assert.strictEqual(Text.time(0), "1970-01-01 00:00:00.000")
})

it("cuts the last column to the terminal, and nothing for a pipe", () => {
  const rows = [[Table.cell("short"), Table.cell("x".repeat(100))], [Table.cell(null), Table.cell(1)]]
  const narrow = Table.table({ paint: Table.plain, width: 30 }, ["NAME", "TEXT"], rows, "none").split("\n")
  assert.deepStrictEqual(narrow.map((line) => line.length), [11, 30, 8])
  assert.isTrue(narrow[1]?.endsWith("…"))
  const wide = Table.table({ paint: Table.plain, width: null }, ["NAME", "TEXT"], rows, "none")
  assert.include(wide, "x".repeat(100))
  assert.strictEqual(Table.table({ paint: Table.plain, width: 30 }, ["NAME"], [], "none"), "none")
})

it("paints words without moving what is behind them", () => {
  const look = (paint: Table.Paint) =>
    Table.table({ paint, width: null }, ["STATE", "N"], [[Table.cell("dead", "bad"), Table.cell(1)]], "")
  // oxlint-disable-next-line no-control-regex -- the colours are what is taken out
  assert.strictEqual(look(Table.coloured).replaceAll(/\u001b\[[0-9]+m/g, ""), look(Table.plain))
  assert.include(look(Table.coloured), "\u001b[31mdead\u001b[0m")
})
