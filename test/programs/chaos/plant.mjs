/** Loaded with `--import`, as `plant.mjs?<fault>`: makes one fault of the product, in the built code as it is loaded. */
import * as Effect from "effect/Effect"
import { registerHooks } from "node:module"
import { faults } from "./plants.mjs"

const fault = new URL(import.meta.url).search.slice(1)
const changes = faults[fault]
if (changes === undefined) throw new Error(`there is no fault ${fault}`)

globalThis.planted = Effect

registerHooks({
  load: (url, context, next) => {
    const loaded = next(url, context)
    if (!/\/dist\/[^/]+\.js$/.test(url) || loaded.source === null || loaded.source === undefined) return loaded
    let source = loaded.source.toString()
    for (const [from, to] of changes) source = source.replaceAll(from, () => to)
    return { ...loaded, source }
  }
})
