/** Ports of the loopback interface. */
import { Effect } from "effect"
import { createServer } from "node:net"
import { ServiceFailed } from "./ServiceFailed.ts"

export const isFree = (port: number): Effect.Effect<boolean> =>
  Effect.callback<boolean>((resume) => {
    const probe = createServer()
    probe.on("error", () => resume(Effect.succeed(false)))
    probe.listen({ host: "127.0.0.1", port, exclusive: true }, () => probe.close(() => resume(Effect.succeed(true))))
  })

/** Before a start: afterwards one could not tell whose answers come from the port. */
export const mustBeFree = (port: number, variable: string): Effect.Effect<void, ServiceFailed> =>
  Effect.flatMap(isFree(port), (free) =>
    free ? Effect.void : new ServiceFailed({
      message: `port ${port} of 127.0.0.1 is taken by a process that is not ours: stop it, or set ${variable}`
    }))
