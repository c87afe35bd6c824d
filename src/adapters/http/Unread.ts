/**
 * Ends the connections of clients that do not read what they are answered: nothing else would, and each holds its answer
 * and one of the places that there are.
 *
 * Node's own timer (`server.timeout`) is set anew for each request. So a timer is given only to a connection that has
 * bytes to send when it is looked at: every byte that leaves begins it anew, its end destroys the connection, and Node
 * takes it away with the answer. A request that waits for its answer has nothing to send, and may wait: a timer that was
 * given for an answer before it, on the same connection, is taken back.
 */
import { Effect } from "effect"
import type { Server } from "node:http"
import type { Socket } from "node:net"

/** How many looks there are in the time that a connection is given: it ends at most one look late. */
const looks = 4

export const ended = (server: Server, unreadMs: number): Effect.Effect<never> => {
  const open = new Set<Socket>()
  const given = new WeakSet<Socket>()
  server.on("connection", (socket) => {
    open.add(socket)
    socket.once("close", () => open.delete(socket))
  })
  const look = Effect.sync(() => {
    for (const socket of open) {
      if (socket.writableLength > 0) {
        if ((socket.timeout ?? 0) === 0) {
          socket.setTimeout(unreadMs)
          given.add(socket)
        }
      } else if (given.delete(socket) && socket.timeout === unreadMs) {
        socket.setTimeout(0)
      }
    }
  })
  return Effect.forever(Effect.andThen(Effect.sleep(unreadMs / looks), look))
}
