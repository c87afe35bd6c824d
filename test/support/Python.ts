/**
 * The example worker in Python as a real process. It belongs to the scope that started it, like the built programs.
 *
 * Without `python3` the tests fail and say so: an example that nobody runs is no example.
 */
import * as Processes from "./Processes.ts"

export const start = (script: string, env: Readonly<Record<string, string>>) =>
  Processes.run("python3", ["-B", script], env)
