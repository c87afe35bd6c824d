import { assert, it } from "@effect/vitest"
import * as Banner from "../../src/programs/Banner.ts"
import * as Words from "../../src/programs/process/Words.ts"

const worker: Banner.Banner = {
  program: "worker",
  version: "1.2.3",
  profile: "embedded",
  dataDir: "/srv/jobs",
  worker: "mill-00c0ffee",
  pid: 77,
  adapters: { JobStore: "Postgres" },
  handlers: ["noop", "sleep"],
  slots: 1
}

it("says who the process is and where its data are", () => {
  assert.deepStrictEqual(Banner.lines(worker), [
    "Deadman 1.2.3, worker, profile embedded",
    "  process        77, called mill-00c0ffee",
    "  data folder    /srv/jobs",
    "  JobStore       Postgres",
    "  runs 1 job at once: noop, sleep"
  ])
})

it("says where a server listens, and that one without slots runs nothing", () => {
  const lines = Banner.lines({
    ...worker,
    program: "server",
    dataDir: null,
    worker: null,
    handlers: [],
    slots: 0,
    address: "http://localhost:1"
  })
  assert.deepStrictEqual(lines.slice(1, 5), [
    "  process        77",
    "  JobStore       Postgres",
    "  runs no jobs (DEADMAN_WORKER_THREADS=0)",
    "  listens on     http://localhost:1 (what it can do: http://localhost:1/docs)"
  ])
})

it("counts in words that agree", () => {
  assert.strictEqual(Words.counted(1, "job"), "1 job")
  assert.deepStrictEqual([0, 2].map((n) => Words.counted(n, "job")), ["0 jobs", "2 jobs"])
})
