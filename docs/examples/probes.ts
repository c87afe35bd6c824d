/** A worker of one's own that answers probes and Prometheus. `node probes.ts`, then `curl localhost:9090/metrics`. */
// #region probes
import { Deadman } from "deadman"
import { createServer } from "node:http"
import { handlers } from "./handlers.ts"

const deadman = await Deadman.start({ handlers, stopOnSignals: true })

createServer(async ({ url }, response) => {
  if (url === "/metrics") {
    response.setHeader("content-type", "text/plain; version=0.0.4; charset=utf-8") // Prometheus 3 insists on one
    response.end(await deadman.metrics())
  } else {
    const { ready, reasons } = await deadman.ready()
    response.writeHead(ready ? 200 : 503).end(JSON.stringify({ ready, reasons }))
  }
}).listen(Number(process.env["PROBES_PORT"] ?? 9090))
// #endregion
