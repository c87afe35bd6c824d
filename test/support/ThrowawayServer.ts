/**
 * What the servers of a test have in common: a temporary folder, and real signals to the process in it.
 *
 * Nothing of them outlives the test, however that ends: a guard then kills the server and deletes the folder. It looks
 * at the start time first, so that a pid that was given away in between is left alone.
 */
import { Effect, type Option, type Scope } from "effect"
import * as Daemon from "../../deploy/services/Daemon.ts"
import { ServiceFailed } from "../../deploy/services/ServiceFailed.ts"
import * as GuardedFolder from "../../src/adapters/chaos/GuardedFolder.ts"
import { live } from "./Eventually.ts"
import { freePort } from "./FreePort.ts"

export { freePort, ServiceFailed }

export interface Signals {
  /** Its data, its log and the record of its process. */
  readonly folder: string
  /** The process, or none while the server is stopped. */
  readonly pid: Effect.Effect<Option.Option<number>, ServiceFailed>
  /** SIGSTOP: connections stay open, and nothing answers. */
  readonly freeze: Effect.Effect<void, ServiceFailed>
  readonly thaw: Effect.Effect<void, ServiceFailed>
  /** SIGTERM, and waits for the end. */
  readonly stop: Effect.Effect<void, ServiceFailed>
  /** `kill -9`. */
  readonly kill: Effect.Effect<void, ServiceFailed>
}

const guardScript = `
if read -r record < "$1/process.json" || [ -n "$record" ]; then
  pid=\${record#*'"pid":'}; pid=\${pid%%,*}
  started=\${record#*'"started":"'}; started=\${started%%'"'*}
  if [ -r "/proc/$pid/stat" ]; then now=$(awk '{print $22}' "/proc/$pid/stat")
  else now=$(LC_ALL=C ps -o lstart= -p "$pid"); fi
  [ "$now" = "$started" ] && kill -KILL "$pid"
fi
rm -rf "$1"; sleep 1; rm -rf "$1"`

/** The folder of one server, which is killed when the scope ends. */
export const place = (name: string): Effect.Effect<Daemon.Place, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.map(GuardedFolder.make(`deadman-test-${name}-`, guardScript), (folder): Daemon.Place => ({ name, folder })),
    (place) => Effect.orDie(live(Daemon.kill(place)))
  )

export const signals = (place: Daemon.Place): Signals => ({
  folder: place.folder,
  pid: Daemon.running(place),
  freeze: live(Daemon.signal(place, "SIGSTOP")),
  thaw: live(Daemon.signal(place, "SIGCONT")),
  stop: live(Effect.asVoid(Daemon.stop(place))),
  kill: live(Daemon.kill(place))
})
