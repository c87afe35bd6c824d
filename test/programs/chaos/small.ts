/**
 * `npm run chaos:small`: a small chaos run on each profile, one after the other, in about two minutes.
 *
 * Workers are killed and frozen; the services are left alone. A seed as argument replays it; else it is a new one.
 */
import { Effect } from "effect"
import { randomBytes } from "node:crypto"
import { chaos } from "./ChaosRun.ts"

const seed = process.argv[2] ?? randomBytes(4).toString("hex")
const size = "--jobs 2000 --workers 4 --threads-per-worker 64 --kill-rate 0.2 --kill-interval-sec 2.5 --lease-ms 2000"
const profiles = ["postgres", "scale"]

// Side by side they would be late for want of a core on a small machine, and late is judged.
const runs = Effect.forEach(
  profiles,
  (profile) => chaos([...size.split(" "), "--timeout-sec", "150", "--profile", profile, "--seed", seed])
)

const ran = await Effect.runPromise(runs)
for (const [index, { exit, output }] of ran.entries()) {
  process.stdout.write(`profile ${profiles[index]}, exit ${exit}\n${output}\n`)
}
process.exitCode = ran.every(({ exit }) => exit === 0) ? 0 : 1
