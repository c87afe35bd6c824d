/**
 * Whether this process is well, and what it has counted: for a program of one's own, which answers probes and scrapes
 * on a port of its own.
 */
import { Context, Effect, Layer } from "effect"
import { PrometheusMetrics } from "effect/observability"
import type { JobStore } from "../ports/JobStore.ts"
import type { Readiness } from "../ports/Status.ts"
import type { Loops } from "./process/Loops.ts"
import { make as makeReadiness } from "./process/Readiness.ts"
import * as Stopping from "./process/Stopping.ts"

export class Health extends Context.Service<Health, {
  /** As `GET /ready` of a server: whether the loops of this process make progress, and the database answers. */
  readonly ready: Effect.Effect<Readiness>
  /** What this process has counted since its start, as Prometheus text. Reads what is in memory, and asks nobody. */
  readonly metrics: Effect.Effect<string>
}>()("deadman/programs/Health") {}

/** Built last of a process, since it is the first to close: from then on the process is not ready. */
export const layer: Layer.Layer<Health, never, JobStore | Loops | Stopping.Stopping> = Layer.effect(
  Health,
  Effect.map(makeReadiness, (ready) => Health.of({ ready, metrics: PrometheusMetrics.format() }))
).pipe(Layer.merge(Stopping.first))
