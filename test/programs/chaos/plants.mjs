/**
 * Faults of the product, for the judge of the chaos runs: what stands in the built code, and what is planted instead.
 *
 * The product has no switch for any of this. `planted` is Effect: the build has names of its own for its modules.
 */
export const faults = {
  // The claim of a settlement is not looked at: whoever comes last has done it.
  settle: [[
    "WHERE j.id = x.id AND j.epoch = x.epoch AND j.lease = x.lease AND j.state = ${state.running}",
    "WHERE j.id = x.id AND j.state = ${state.running}"
  ]],
  // The reaper looks once in a while, trusts what it saw then, and takes the row whatever has happened to it since.
  reaper: [
    ["l.token = x.token::bigint", "x.token IS NOT NULL"],
    [
      "tapError(store.look, () => worry)",
      `tapError(planted.suspend(() => {
        const old = globalThis.plantedLook
        return old !== undefined && performance.now() - old.atMs < 6_000
          ? planted.succeed(old.value)
          : planted.tap(store.look, (value) => planted.sync(() => {
            globalThis.plantedLook = { value, atMs: performance.now() }
          }))
      }), () => worry)`
    ]
  ],
  // The effect is neither guarded by its job nor fenced by its claim: each run that comes so far makes it.
  effect: [
    [
      "WHERE q.id = x.id AND q.epoch = x.epoch AND q.lease = x.lease AND q.state = ${state.running}",
      "WHERE q.id = x.id"
    ],
    ["SELECT c.key, c.id, c.epoch", "SELECT c.key || '/' || c.epoch, c.id, c.epoch"],
    ["LEFT JOIN i ON i.key = c.key", "LEFT JOIN i ON i.key = c.key || '/' || c.epoch"]
  ],
  // Ids are said before they are stored.
  publish: [[
    "const done = yield* persist(first, atomic)",
    `announce(() => first.map(({ job }) => ({
      id: job.id, type: job.type, queue: job.queue, ordered: false, createdAtMs: 1, runAtMs: 0
    })), false)
    yield* planted.sleep(5)
    const done = yield* persist(first, atomic)`
  ]],
  // What was received counts as done.
  receipt: [[
    "waiting.push({ partition, message, id })",
    "entry.ended = true; waiting.push({ partition, message, id })"
  ]]
}
