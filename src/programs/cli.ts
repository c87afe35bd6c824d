#!/usr/bin/env node
/**
 * `node dist/cli.js`, installed as `deadman`: every program and every command under one name.
 *
 * The programs that run for long are those of dist, loaded into this very process: signals and exit codes are theirs,
 * and what is behind their name are their own flags.
 */
const programs: Readonly<Record<string, () => Promise<unknown>>> = {
  bench: () => import("./bench.ts"),
  chaos: () => import("./chaos.ts"),
  server: () => import("./server.ts"),
  worker: () => import("./worker.ts")
}

/** These two take no flags: what is given to them is answered by the help, or is a mistake. */
const bare: ReadonlySet<string> = new Set(["server", "worker"])

const [name = "", ...rest] = process.argv.slice(2)
const program = Object.hasOwn(programs, name) && !(bare.has(name) && rest.length > 0) ? programs[name] : undefined

if (program === undefined) {
  const { run } = await import("./CliCommands.ts")
  run(process.argv.slice(2))
} else {
  process.argv.splice(2, 1)
  await program()
}
