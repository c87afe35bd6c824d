/** One request to a port of this machine and its answer, within a second. */
import { Effect, Option } from "effect"
import { connect } from "node:net"

const longest = 64 * 1024

/** Reads until `answerOf` makes something of what was said; none when nobody listens, or says something else. */
export const ask = <A extends {}>(
  port: number,
  request: Buffer,
  answerOf: (said: Buffer) => A | undefined
): Effect.Effect<Option.Option<A>> =>
  Effect.callback<Option.Option<A>>((resume) => {
    const socket = connect({ host: "127.0.0.1", port })
    let said = Buffer.alloc(0)
    const end = (answer: Option.Option<A>) => {
      socket.destroy()
      resume(Effect.succeed(answer))
    }
    socket.on("connect", () => socket.write(request))
    socket.on("data", (data) => {
      said = Buffer.concat([said, data])
      const answer = answerOf(said)
      if (answer !== undefined) end(Option.some(answer))
      else if (said.length > longest) end(Option.none())
    })
    socket.on("error", () => end(Option.none()))
    socket.on("close", () => end(Option.none()))
    return Effect.sync(() => socket.destroy())
  }).pipe(Effect.timeoutOption("1 second"), Effect.map(Option.flatten))
