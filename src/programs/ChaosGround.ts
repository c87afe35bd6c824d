/**
 * The ground of a chaos run: which processes and services stand behind `Ground` and `Witness`, all of them its own.
 *
 * Servers and workers reach the services through proxies, so that their connections can be hurt; the witness goes
 * straight to Postgres.
 */
import { Context, Effect, Layer, Redacted, Scope } from "effect"
import { mkdirSync, renameSync } from "node:fs"
import { cpus, loadavg } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as Children from "../adapters/chaos/Children.ts"
import * as Lines from "../adapters/chaos/Lines.ts"
import * as Proxy from "../adapters/chaos/Proxy.ts"
import * as OffsetWatch from "../adapters/kafka/OffsetWatch.ts"
import * as Database from "../adapters/postgres/Database.ts"
import * as WitnessRows from "../adapters/postgres/Witness.ts"
import type { Boot, Line } from "./chaos/Evidence.ts"
import { type Child, Ground, type Submitted, Witness } from "./chaos/Ground.ts"
import type { Order } from "./chaos/Plan.ts"
import { lossesMax } from "./chaos/Trial.ts"
import { asGround, freePort, kafka, postgres, redis } from "./ChaosServices.ts"

/** Two, so that one is there while the other is dead. */
const servers = 2
/** Few enough to be sent one by one, as most callers do. */
const singleMax = 40
const answerMs = 8_000

const script = (name: string) => fileURLToPath(new URL(`./${name}.js`, import.meta.url))

const post = (port: number, path: string, body: unknown): Effect.Effect<unknown> =>
  Effect.promise((signal) =>
    fetch(`http://127.0.0.1:${port}${path}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      signal: AbortSignal.any([signal, AbortSignal.timeout(answerMs)])
    }).then((response) => response.ok ? response.json() : response.text().then(() => null)).catch(() => null)
  )

const idOf = (answer: unknown): string | null =>
  typeof answer === "object" && answer !== null && "id" in answer && typeof answer.id === "string" ? answer.id : null

const submitTo = (port: number, jobs: ReadonlyArray<Submitted>): Effect.Effect<ReadonlyArray<string | null>> =>
  jobs.length <= singleMax
    ? Effect.forEach(jobs, (job) => Effect.map(post(port, "/jobs", job), idOf), { concurrency: "unbounded" })
    : Effect.map(post(port, "/jobs/batch", jobs), (answer) => {
      const all = typeof answer === "object" && answer !== null && "jobs" in answer ? answer.jobs : []
      return Array.isArray(all) ? all.map(idOf) : []
    })

const answering = (port: number): Effect.Effect<boolean> =>
  Effect.promise((signal) =>
    fetch(`http://127.0.0.1:${port}/ready`, { signal: AbortSignal.any([signal, AbortSignal.timeout(2_000)]) })
      .then((response) => response.text().then(() => response.status === 200)).catch(() => false)
  )

export interface Options {
  readonly order: Order
  /** Where logs and records are kept. */
  readonly out: string
}

const make = Effect.fnUntraced(function*({ order, out }: Options) {
  const scope = yield* Effect.scope
  const place = yield* Children.place
  const logs = join(out, "logs")
  const records = join(out, "records")
  yield* Effect.sync(() => {
    // What was there before is another run's.
    for (const folder of [logs, records]) {
      mkdirSync(folder, { recursive: true })
      renameSync(folder, join(place.folder, `before-${folder === logs ? "logs" : "records"}`))
      mkdirSync(folder, { recursive: true })
    }
  }).pipe(Effect.catchDefect(() => Effect.void))

  const store = yield* postgres(place)
  const scale = order.profile === "scale"
  const [register, broker] = scale ? yield* Effect.all([redis(place), kafka(place)], { concurrency: 2 }) : [null, null]
  const toPostgres = yield* Proxy.make(store.port)
  const toRedis = register === null ? null : yield* Proxy.make(register.port)
  // Kafka tells its clients its own address, so they would pass a proxy by.
  const proxies = [toPostgres, ...(toRedis === null ? [] : [toRedis])]
  const offsets = broker === null ? null : yield* OffsetWatch.make({ brokers: [`127.0.0.1:${broker.port}`] })
  const options = process.env["NODE_OPTIONS"]
  const base: Readonly<Record<string, string>> = {
    DEADMAN_DATABASE_URL: Redacted.value(store.urlAt(toPostgres.port)),
    ...(toRedis === null ? {} : { DEADMAN_REDIS_URL: `redis://127.0.0.1:${toRedis.port}` }),
    ...(broker === null ? {} : { DEADMAN_KAFKA_BROKERS: `127.0.0.1:${broker.port}` }),
    DEADMAN_LEASE_MS: String(order.leaseMs),
    DEADMAN_MAX_LEASE_LOSSES: String(lossesMax),
    DEADMAN_LOG_FORMAT: "json",
    DEADMAN_LOG_LEVEL: process.env["DEADMAN_LOG_LEVEL"] ?? "warn",
    ...(options === undefined ? {} : { NODE_OPTIONS: options })
  }
  const ports: Array<number> = []
  for (let n = 0; n < servers; n++) ports.push(yield* freePort)

  const child = (name: string, program: string, env: Readonly<Record<string, string>>, record: string | null) =>
    Children.start({ place, script: script(program), env: { ...base, ...env }, log: join(logs, `${name}.log`) }).pipe(
      Effect.map((child): Child => ({
        ...child,
        name,
        ready: () => child.alive() && (record === null || Lines.begun(record)),
        working: () => child.alive() && (record === null || Lines.working(record))
      })),
      Scope.provide(scope)
    )

  const hire: Ground["Service"]["hire"] = (role, n) => {
    const name = `${role}${n}`
    if (role === "server") {
      return child(name, "server", { DEADMAN_PORT: String(ports[n]), DEADMAN_WORKER_THREADS: "0" }, null)
    }
    const record = join(records, `${name}.jsonl`)
    return child(name, "worker", {
      DEADMAN_WORKER_NAME: name,
      DEADMAN_WORKER_THREADS: String(order.threads),
      DEADMAN_HANDLERS: script("chaos-handlers"),
      DEADMAN_CHAOS_RECORD: record,
      // Hours, into the past and into the future.
      DEADMAN_CHAOS_CLOCK_STEP_MS: String((n % 2 === 0 ? 1 : -1) * (3_600_000 + n * 1_000))
    }, record)
  }

  const sum = (one: (proxy: Proxy.Proxy) => Effect.Effect<number>) =>
    Effect.map(Effect.forEach(proxies, one), (counts) => counts.reduce((a, b) => a + b, 0))
  const ground = Ground.of({
    servers,
    load: Effect.sync(() => (loadavg()[0] ?? 0) / cpus().length),
    hire,
    submit: (server, jobs) => submitTo(ports[server] ?? 0, jobs),
    answers: (server) => answering(ports[server] ?? 0),
    services: {
      postgres: store.service,
      ...(register === null ? {} : { redis: register.service }),
      ...(broker === null || offsets === null ? {} : {
        kafka: { ...broker.service, lose: Effect.andThen(broker.service.lose, offsets.forget) }
      })
    },
    network: {
      cut: (share) => sum((proxy) => proxy.cut(share)),
      halfOpen: (share) => sum((proxy) => proxy.halfOpen(share)),
      mend: Effect.forEach(proxies, (proxy) => proxy.mend, { discard: true })
    }
  })

  const database = yield* Layer.buildWithScope(
    Database.layer({
      url: store.urlAt(store.port),
      storePool: 1,
      handlerPool: 2,
      hotTimeoutMs: 3_000,
      applicationName: "deadman-chaos"
    }),
    scope
  )
  const asked = <A, E extends { readonly message: string }>(effect: Effect.Effect<A, E, Database.Database>) =>
    asGround(Effect.provide(effect, database))
  const witness = Witness.of({
    install: asked(WitnessRows.install),
    counts: asked(WitnessRows.counts),
    close: asked(WitnessRows.index),
    renewals: Effect.map(asked(WitnessRows.renewals), (rows) => {
      const byLease = new Map<string, Array<number>>()
      for (const { atMs, lease } of rows) {
        const of = byLease.get(lease)
        if (of === undefined) byLease.set(lease, [atMs])
        else of.push(atMs)
      }
      return byLease
    }),
    jobs: (after, limit) => asked(WitnessRows.jobs(after, limit)),
    transitions: (first, last) => asked(WitnessRows.transitions(first, last)),
    effects: (first, last) => asked(WitnessRows.effects(first, last)),
    passed: Effect.sync(() => offsets?.passed() ?? []),
    vanished: Effect.map(asked(WitnessRows.vanished), (rows) => rows.map(({ job }) => job)),
    lines: asGround(Effect.try({
      try: () => Lines.read(records) as { boots: ReadonlyArray<Boot>; lines: ReadonlyMap<string, ReadonlyArray<Line>> },
      catch: (cause) => ({ message: `the workers' records in ${records} cannot be read: ${String(cause)}` })
    }))
  })
  return Context.make(Ground, ground).pipe(Context.add(Witness, witness))
})

/** Starts the services. The end of the scope ends all that runs, and deletes the data. */
export const layer = (options: Options) => Layer.effectContext(make(options))
