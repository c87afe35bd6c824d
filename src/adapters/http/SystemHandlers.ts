import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { PrometheusMetrics } from "effect/observability"
import { type Readiness, type Stats, Status } from "../../ports/Status.ts"
import { Api } from "./Api.ts"
import * as ApiError from "./ApiError.ts"
import * as Reply from "./Reply.ts"

const statsJson = (stats: Stats) => ({
  version: stats.version,
  profile: stats.profile,
  adapters: stats.adapters,
  jobs: { by_state: stats.counts.byState, by_type: stats.counts.byType, by_queue: stats.counts.byQueue },
  oldest_ready_ms: stats.counts.oldestReadyMs,
  as_of_ms: stats.counts.asOfMs,
  counters: stats.counters,
  unhandled: stats.unhandled,
  workers: stats.workers.map((worker) => ({
    name: worker.name,
    role: worker.role,
    version: worker.version,
    handlers: worker.handlers,
    slots: worker.slots,
    running: worker.running,
    runaways: worker.runaways,
    draining: worker.draining,
    started_at_ms: worker.startedAtMs,
    seen_at_ms: worker.seenAtMs
  }))
})

export const readinessText = (readiness: Readiness): string =>
  JSON.stringify({
    ready: readiness.ready,
    reasons: readiness.reasons,
    degraded: readiness.degraded,
    loops: Object.fromEntries(readiness.loops.map(({ lastOkMsAgo, name }) => [name, { last_ok_ms_ago: lastOkMsAgo }])),
    services: readiness.services
  })

export const metricsReply = Effect.map(
  PrometheusMetrics.format(),
  (text) => HttpServerResponse.text(text, { contentType: "text/plain; version=0.0.4; charset=utf-8" })
)

const noStats = ApiError.make("unavailable", "No recent counts: the database does not answer at present.")

export const layer = HttpApiBuilder.group(
  Api,
  "system",
  Effect.fn(function*(handlers) {
    const status = yield* Status
    return handlers
      .handleRaw("stats", () =>
        Effect.match(status.stats, {
          onFailure: () => Reply.toEffect(Reply.failed(noStats)),
          onSuccess: (stats) => Reply.toEffect({ status: 200, body: JSON.stringify(statsJson(stats)) })
        }))
      .handleRaw("metrics", () => metricsReply)
      .handleRaw("health", () => Effect.succeed(Reply.toEffect({ status: 200, body: `{"status":"alive"}` })))
      .handleRaw("ready", () =>
        Effect.map(status.readiness, (readiness) =>
          Reply.toEffect({
            status: readiness.ready ? 200 : 503,
            body: readinessText(readiness),
            ...(readiness.ready ? {} : { headers: { "retry-after": "1" } })
          })))
  })
)
