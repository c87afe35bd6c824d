/** The ways to one Postgres that are not a name and a port: its socket, and an IPv6 address, with TLS as well. */
import { assert, it } from "@effect/vitest"
import { Effect, Queue, Redacted, Schema } from "effect"
import { networkInterfaces } from "node:os"
import { join } from "node:path"
import * as Checkup from "../../../src/adapters/postgres/Checkup.ts"
import * as Database from "../../../src/adapters/postgres/Database.ts"
import * as Migrations from "../../../src/adapters/postgres/Migrations.ts"
import { Deadman, Job } from "../../../src/programs/deadman.ts"
import * as Certificates from "../../support/Certificates.ts"
import * as Files from "../../support/Files.ts"
import * as PostgresServer from "../../support/PostgresServer.ts"

const { file } = Files.make()

const lanes = ["hot", "quick", "vital", "read", "handler"] as const
const here =
  `SELECT host(inet_server_addr()) AS address, (SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()) AS tls`

/** A container may be without. Everything else is tried there all the same. */
const hasIpv6 = Object.values(networkInterfaces()).some((all) => all?.some(({ address }) => address === "::1"))

const twice = Job.define({ type: "addresses.twice", payload: Schema.Finite, result: Schema.Finite })

const runsJobs = (databaseUrl: string) =>
  Effect.gen(function*() {
    const deadman = yield* Effect.acquireRelease(
      Effect.promise(() =>
        Deadman.start({ databaseUrl, logLevel: "none", handlers: [twice.handle((number) => number * 2)] })
      ),
      (deadman) => Effect.promise(() => deadman.stop())
    )
    const job = yield* Effect.promise(() => deadman.submit(twice, 21).then((job) => deadman.wait(job)))
    assert.strictEqual(job.result, 42)
  }).pipe(Effect.scoped)

/** Every kind of connection there is. */
const used = (databaseUrl: string, seen: { readonly address: string | null; readonly tls: boolean }, ca: string) =>
  Effect.gen(function*() {
    const url = Redacted.make(databaseUrl)
    const pem = { ca, own: null }
    yield* Migrations.migrate(url, pem)
    yield* Effect.gen(function*() {
      const { listen, query } = yield* Database.Database
      for (const lane of lanes) {
        assert.deepStrictEqual<unknown>(yield* query(lane, here), [seen], lane)
      }
      const { notifications } = yield* listen("deadman_addresses")
      yield* query("read", `SELECT pg_notify('deadman_addresses', 'hello')`)
      assert.strictEqual((yield* Queue.take(notifications)).payload, "hello")
    }).pipe(Effect.provide(Database.layer({ url, pem })))
    const { isOpen } = yield* Checkup.look(url, pem)
    assert.isFalse(isOpen)
  }).pipe(Effect.scoped)

it.live("jobs run over a socket in each of its spellings, and over IPv6 with TLS and without", () =>
  Effect.gen(function*() {
    const authority = Certificates.authority("Deadman test authority")
    const server = yield* PostgresServer.start({
      tls: { ...authority.issue("postgres", ["localhost", "::1"]), ca: authority.cert },
      settings: { listen_addresses: hasIpv6 ? "127.0.0.1,::1" : "127.0.0.1", unix_socket_directories: "." },
      hba: ["local all all scram-sha-256", "host all all ::1/128 scram-sha-256"]
    })
    const { password, port, username } = new URL(Redacted.value(server.url))
    const login = `${username}:${password}`
    const folder = join(server.dataDir, "postgres", "data")
    const ca = file("authority.pem", authority.cert)
    const over = `sslmode=verify-full&sslrootcert=${ca}`
    const socket = { address: null, tls: false }
    const sockets = [
      [`postgres://${login}@/deadman?host=${folder}&port=${port}`, socket],
      [
        `postgres:///deadman?host=${encodeURIComponent(folder)}&port=${port}&user=${username}&password=${password}`,
        socket
      ],
      [`postgres://${login}@${encodeURIComponent(folder)}:${port}/deadman`, socket]
    ] as const
    const ipv6 = [
      [`postgres://${login}@[::1]:${port}/deadman`, { address: "::1", tls: false }],
      [`postgres://${login}@[::1]:${port}/deadman?${over}`, { address: "::1", tls: true }],
      [`postgres://${login}@/deadman?host=::1&port=${port}&${over}`, { address: "::1", tls: true }]
    ] as const
    const ways = hasIpv6 ? [...sockets, ...ipv6] : sockets
    yield* Effect.forEach(ways, ([url, seen]) => used(url, seen, authority.cert), { discard: true })
    yield* Effect.forEach([sockets[0][0], ...(hasIpv6 ? [ipv6[1][0]] : [])], runsJobs, {
      concurrency: "unbounded",
      discard: true
    })
  }).pipe(Effect.scoped))
