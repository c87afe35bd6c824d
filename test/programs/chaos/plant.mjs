/**
 * Loaded with `--import`, as `plant.mjs?<fault>`: makes one fault of the product, in the built code as it is loaded.
 *
 * The product has no switch for any of this. A fault whose place is not found any more leaves the product whole, and the
 * test that waits for the judge to catch it fails.
 */
import { registerHooks } from "node:module"

const faults = {
  // The claim of a settlement is not looked at: whoever comes last has done it.
  settle: [[
    "WHERE j.id = x.id AND j.epoch = x.epoch AND j.lease = x.lease AND j.state = ${state.running}",
    "WHERE j.id = x.id AND j.state = ${state.running}"
  ]],
  // The reaper looks once in a while, trusts what it saw then, and takes the row whatever has happened to it since.
  reaper: [
    ["l.token = x.token::bigint", "x.token IS NOT NULL"],
    [
      "const look = yield* store.look.pipe(",
      `const look = yield* Effect.suspend(() => {
        const old = globalThis.plantedLook
        return old !== undefined && performance.now() - old.atMs < 6_000
          ? Effect.succeed(old.value)
          : Effect.tap(store.look, (value) => Effect.sync(() => {
            globalThis.plantedLook = { value, atMs: performance.now() }
          }))
      }).pipe(`
    ]
  ],
  // The effect is a statement of its own, with its guard, but without the fence.
  effect: [[
    "SELECT deadman.once($1::text, $2::uuid, $3::int, $4::uuid, $5::text) AS fired",
    `INSERT INTO deadman.effect (key, job, epoch, worker, at_ms)
     SELECT $1::text, $2::uuid, $3::int, $5::text, deadman.now_ms() WHERE $4::uuid IS NOT NULL
     ON CONFLICT (key) DO NOTHING RETURNING true AS fired`
  ]],
  // Ids are said before they are stored.
  publish: [[
    "const done = yield* persist(first, atomic)",
    `announce(first.map(({ job }) => ({
      id: job.id, type: job.type, queue: job.queue, ordered: false, createdAtMs: 1, runAtMs: 0
    })), false)
    yield* Effect.sleep(5)
    const done = yield* persist(first, atomic)`
  ]],
  // What was received counts as done.
  receipt: [["waiting.push({ partition, entry, id })", "entry.ended = true; waiting.push({ partition, entry, id })"]]
}

const fault = new URL(import.meta.url).search.slice(1)
const changes = faults[fault]
if (changes === undefined) throw new Error(`there is no fault ${fault}`)

registerHooks({
  load: (url, context, next) => {
    const loaded = next(url, context)
    if (!/\/dist\/[^/]+\.js$/.test(url) || loaded.source === null || loaded.source === undefined) return loaded
    let source = loaded.source.toString()
    for (const [from, to] of changes) source = source.replaceAll(from, () => to)
    return { ...loaded, source }
  }
})
