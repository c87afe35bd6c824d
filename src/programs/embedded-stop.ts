/**
 * `node dist/embedded-stop.js DATA_DIR`: stops the embedded Postgres of a folder that nobody uses any more. Nobody calls
 * it by hand: the shell that waits for the last of its users to be gone becomes this (see Watcher.ts).
 */
import * as Unused from "../adapters/embedded/Unused.ts"
import * as Main from "./Main.ts"

Main.once(Unused.stop(process.argv[2] ?? ""))
