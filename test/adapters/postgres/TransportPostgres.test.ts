import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Metric, Queue, Redacted } from "effect"
import { TestClock } from "effect/testing"
import * as Database from "../../../src/adapters/postgres/Database.ts"
import * as TransportPostgres from "../../../src/adapters/postgres/TransportPostgres.ts"
import { JobType, queueDefault } from "../../../src/domain/Job.ts"
import { Transport, type Wake } from "../../../src/ports/Transport.ts"
import * as TransportContract from "../../contracts/TransportContract.ts"
import { freshDatabase } from "../../support/Database.ts"
import { eventually } from "../../support/Eventually.ts"
import * as HalfOpenProxy from "../../support/HalfOpenProxy.ts"
import * as Ids from "../../support/Ids.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as Rows from "../../support/Rows.ts"

const layer = Layer.provideMerge(TransportPostgres.layer, Postgres.layer)

const listeners = `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE 'LISTEN%'`

TransportContract.suite("postgres", layer, {
  deliveries: false,
  disconnect: Rows.query(`SELECT pg_terminate_backend(l.pid) FROM (${listeners}) l`),
  garbage: Rows.query(
    `SELECT pg_notify('deadman_wake', p) FROM unnest(ARRAY['', 'zzz', 'v:', 'v:a:1:b', repeat('x', 7000)]) p`
  )
})

it("every wake is read back from its payload, and nothing else is", () => {
  assert.deepStrictEqual(TransportPostgres.decode("r"), { _tag: "Ready" })
  assert.deepStrictEqual(TransportPostgres.decode("d"), { _tag: "Due" })
  const [lease, id] = [Ids.leaseId(), Ids.jobId()]
  assert.deepStrictEqual(TransportPostgres.decode(`v:${lease}:12:${id}`), { _tag: "Revoked", lease, id, epoch: 12 })
  for (const payload of ["", "R", "rr", `v:${lease}:x:${id}`, `v:${lease}:1:${id}:`, `v:${lease}:1`, "v:::"]) {
    assert.isNull(TransportPostgres.decode(payload), payload)
  }
})

it.layer(layer, { excludeTestServices: true, timeout: "2 minutes" })("TransportPostgres", (it) => {
  it.effect("one connection listens for all subscribers of a process", () =>
    Effect.gen(function*() {
      const transport = yield* Transport
      yield* Effect.forEach(Array.from({ length: 3 }), () => transport.subscribe({ worker: true }))
      assert.lengthOf(yield* Rows.query(listeners), 1)
    }).pipe(Effect.scoped))

  it.effect("a dead letter goes out on its own channel", () =>
    Effect.gen(function*() {
      const database = yield* Database.Database
      const transport = yield* Transport
      const { notifications } = yield* database.listen(TransportPostgres.deadChannel)
      const letter = { id: Ids.jobId(), type: JobType.make("noop"), queue: queueDefault, attempts: 3, diedAtMs: 12 }
      yield* transport.announceDead([{ ...letter, reason: "rejected" }])
      const { payload } = yield* Queue.take(notifications)
      assert.deepStrictEqual(JSON.parse(payload), {
        id: letter.id,
        type: "noop",
        queue: "default",
        attempts: 3,
        reason: "rejected",
        died_at_ms: 12
      })
    }).pipe(Effect.scoped))

  it.effect("what cannot be read is counted", () =>
    Effect.gen(function*() {
      const transport = yield* Transport
      const { wakes } = yield* transport.subscribe({ worker: true })
      const garbage = Metric.counter("deadman_garbage_messages_total", {
        description: "Transport messages that could not be read and were skipped",
        incremental: true
      })
      const before = Number((yield* Metric.value(garbage)).count)
      yield* Rows.query(`SELECT pg_notify('deadman_wake', 'unreadable')`)
      yield* transport.wake([{ _tag: "Due" }])
      yield* Queue.take(wakes)
      assert.strictEqual(Number((yield* Metric.value(garbage)).count), before + 1)
    }).pipe(Effect.scoped))
})

const throughProxy = (options: TransportPostgres.Options) =>
  Effect.gen(function*() {
    const { url } = yield* freshDatabase
    const target = new URL(Redacted.value(url))
    const proxy = yield* HalfOpenProxy.make({ port: Number(target.port) })
    target.port = String(proxy.port)
    const transport = yield* Layer.build(
      Layer.provide(
        TransportPostgres.layerWith(options),
        Database.layer({ url: Redacted.make(target.href) })
      )
    )
    const direct = yield* Layer.build(Database.layer({ url }))
    const notify = Effect.provideContext(Rows.query(`SELECT pg_notify('deadman_wake', 'd')`), direct)
    return { proxy, transport, notify }
  })

it.live(
  "a connection that is silently dead is found out and replaced, and wakes come again",
  () =>
    Effect.gen(function*() {
      const { notify, proxy, transport } = yield* throughProxy({ pingEveryMs: 500, pingWithinMs: 500 })
      const { healthy, wakes } = yield* Effect.provideContext(
        Effect.flatMap(Transport, (transport) => transport.subscribe({ worker: true })),
        transport
      )
      yield* notify
      assert.deepStrictEqual(yield* Queue.take(wakes), { _tag: "Due" } satisfies Wake)
      yield* proxy.halfOpen
      yield* notify
      assert.deepStrictEqual(yield* Queue.take(wakes), { _tag: "Resumed" } satisfies Wake)
      assert.isTrue(yield* healthy)
      yield* notify
      assert.deepStrictEqual(yield* Queue.take(wakes), { _tag: "Due" } satisfies Wake)
      // The driver gives the old connection up, so that none of them pile up.
      yield* eventually("the dead connection is let go", Effect.map(proxy.connections, (n) => n === 1), "60 seconds")
    }).pipe(Effect.scoped)
)

it.live("a notification of our own that does not come back makes it ask at once", () =>
  Effect.gen(function*() {
    const { proxy, transport } = yield* throughProxy({ pingEveryMs: 600_000, pingWithinMs: 500, echoWithinMs: 300 })
    yield* Effect.gen(function*() {
      const transport = yield* Transport
      const { wakes } = yield* transport.subscribe({ worker: true })
      yield* proxy.halfOpen
      // The proxy swallows what the old connections of the pool send as well: new ones take their place.
      yield* eventually(
        "a wake could be sent",
        Effect.map(Effect.exit(transport.wake([{ _tag: "Ready" }])), (exit) => exit._tag === "Success"),
        "60 seconds"
      )
      // By nothing but the lost echo: a silent connection would be asked after ten minutes.
      assert.deepStrictEqual(yield* Queue.take(wakes), { _tag: "Resumed" } satisfies Wake)
    }).pipe(Effect.provideContext(transport))
  }).pipe(Effect.scoped))

it.effect("a notification of our own that does not come back is not forgotten where the silence is looked at meanwhile", () =>
  Effect.gen(function*() {
    let pings = 0
    const silent = Database.Database.of({
      query: () => Effect.succeed([]),
      transaction: () => Effect.die("not asked for"),
      listen: () =>
        Effect.map(Queue.unbounded<Database.Notification>(), (notifications) => ({
          notifications,
          ping: () => Effect.sync(() => void pings++)
        }))
    })
    // The first look at the silence comes after 2.4 s.
    const built = yield* Layer.build(
      Layer.provide(TransportPostgres.layerWith({ phaseMs: 2_400 }), Layer.succeed(Database.Database, silent))
    )
    yield* Effect.gen(function*() {
      const transport = yield* Transport
      const subscribed = yield* Effect.forkChild(transport.subscribe({ worker: true }))
      yield* TestClock.adjust("2 seconds")
      yield* Fiber.join(subscribed)
      yield* transport.wake([{ _tag: "Ready" }])
      yield* TestClock.adjust("1001 millis")
      assert.strictEqual(pings, 1)
    }).pipe(Effect.provideContext(built))
  }).pipe(Effect.scoped))
