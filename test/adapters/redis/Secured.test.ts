/** A Redis with TLS and a user of few rights: all of it works there, and what is wrong is said. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Logger, Redacted } from "effect"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Checkup from "../../../src/adapters/redis/Checkup.ts"
import * as DelayedJobsRedis from "../../../src/adapters/redis/DelayedJobsRedis.ts"
import * as LeaseRegisterRedis from "../../../src/adapters/redis/LeaseRegisterRedis.ts"
import * as Redis from "../../../src/adapters/redis/Redis.ts"
import type { JobId } from "../../../src/domain/JobId.ts"
import { DelayedJobs } from "../../../src/ports/DelayedJobs.ts"
import { LeaseRegister } from "../../../src/ports/LeaseRegister.ts"
import * as Certificates from "../../support/Certificates.ts"
import { eventually } from "../../support/Eventually.ts"
import * as Ids from "../../support/Ids.ts"
import * as RedisServer from "../../support/RedisServer.ts"
import * as TestServers from "../../support/TestServers.ts"
import { freePort } from "../../support/ThrowawayServer.ts"
import * as TlsServer from "../../support/TlsServer.ts"

/** As docs/scale.md lists them. */
const rights =
  "+eval +evalsha +del +info +get +set +pttl +pexpire +zadd +zrem +zscore +zrangebyscore +zremrangebyrank " +
  "+zremrangebyscore +client|setname +select"

const password = "p@ss/word#1 %"

const secured = Effect.gen(function*() {
  const authority = Certificates.authority("Deadman test authority")
  const own = authority.issue("redis", ["localhost"])
  const folder = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "deadman-test-redis-tls-"))),
    (folder) => Effect.sync(() => rmSync(folder, { recursive: true, force: true }))
  )
  const file = (name: string, text: string) => {
    writeFileSync(join(folder, name), text)
    return join(folder, name)
  }
  const port = yield* freePort
  const server = yield* RedisServer.start({
    settings: {
      "tls-port": String(port),
      "tls-cert-file": file("cert.pem", own.cert),
      "tls-key-file": file("key.pem", own.key),
      "tls-ca-cert-file": file("ca.pem", authority.cert),
      "tls-auth-clients": "yes"
    }
  })
  yield* server.call("ACL", "SETUSER", "ada", "on", `>${password}`, "~deadman:*", "-@all", ...rights.split(" "))
  const client = authority.issue("worker")
  const url = (login: string, host = "localhost") => Redacted.make(`rediss://${login}@${host}:${port}/0`)
  return {
    server,
    url,
    ada: `ada:${encodeURIComponent(password)}`,
    pem: { ca: authority.cert, own: { cert: client.cert, key: Redacted.make(client.key) } }
  }
})

TestServers.describeWithRedis("a Redis with TLS and users", () => {
  it.live("a user with the rights that the docs list can do all that is asked of it", () =>
    Effect.gen(function*() {
      const { ada, pem, server, url } = yield* secured
      const adapters = Layer.mergeAll(LeaseRegisterRedis.layer, DelayedJobsRedis.layer).pipe(
        Layer.provide(Redis.layer({ url: url(ada), pem, name: "deadman-test" }))
      )
      yield* Effect.gen(function*() {
        const register = yield* LeaseRegister
        const lease = Ids.leaseId()
        yield* register.hold([{ lease, leaseMs: 5_000 }])
        yield* register.flag([lease])
        assert.deepStrictEqual(yield* register.renew([{ lease, leaseMs: 5_000 }]), ["check"])
        const { tokens } = yield* register.look([lease])
        assert.isTrue(yield* register.markLapsed(lease, tokens.get(lease) ?? null))
        yield* register.release([lease])
        const delayed = yield* DelayedJobs
        const id: JobId = Ids.jobId()
        yield* delayed.schedule([{ id, runAtMs: 1_000 }])
        yield* delayed.filled(60_000)
        assert.deepStrictEqual(yield* delayed.due(2_000, 10), { ids: [id], nextMs: null, wantsFill: false })
        yield* delayed.forget([id])
      }).pipe(Effect.provide(adapters))
      const facts = yield* Checkup.look({ url: url(ada), pem })
      assert.strictEqual(facts.role, "master")
      // What was refused, and nobody noticed.
      assert.deepStrictEqual(yield* server.call("ACL", "LOG"), [])
    }).pipe(Effect.scoped))

  it.live("what is wrong is told from an outage, with what to do and without the password", () =>
    Effect.gen(function*() {
      const { ada, pem, url } = yield* secured
      const guess = "nobody-has-this"
      const stranger = Certificates.authority("Somebody else's authority")
      const theirs = stranger.issue("worker")
      const old = yield* TlsServer.start(stranger.issue("redis", ["localhost"], ["200101000000Z", "210101000000Z"]))
      const wrong: ReadonlyArray<readonly [Redis.Options, RegExp]> = [
        [{ url: url(`ada:${guess}`), pem }, /^WRONGPASS.*Mend the user, the password/],
        [{ url: url(ada), pem: { ...pem, ca: stranger.cert } }, /authority's in DEADMAN_REDIS_SSL_CA/],
        [{ url: url(ada), pem: { ...pem, ca: null } }, /authority's in DEADMAN_REDIS_SSL_CA/],
        [{ url: url(ada, "127.0.0.1"), pem }, /as its certificate does/],
        [{ url: url(ada), pem: { ...pem, own: null } }, /client certificate.*DEADMAN_REDIS_SSL_CERT/],
        [
          { url: url(ada), pem: { ...pem, own: { cert: theirs.cert, key: Redacted.make(theirs.key) } } },
          /client certificate.*DEADMAN_REDIS_SSL_CERT/
        ],
        [
          { url: Redacted.make(`rediss://localhost:${old}/0`), pem: { ca: stranger.cert, own: null } },
          /expired.*renew it, or mend this machine's clock/
        ]
      ]
      yield* Effect.forEach(wrong, ([options, words], n) =>
        Effect.gen(function*() {
          const { advice, message } = yield* Effect.flip(Checkup.look(options))
          assert.match(`${message}. ${advice}`, words, String(n))
          assert.notInclude(message, guess)
        }), { concurrency: 4 })
    }).pipe(Effect.scoped))

  it.live("with the wrong authority it starts, and says what to mend", () =>
    Effect.gen(function*() {
      const { ada, pem, url } = yield* secured
      const said: Array<string> = []
      const logger = Logger.make(({ message }) => {
        said.push(String(message))
      })
      const ca = Certificates.authority("Somebody else's authority").cert
      yield* Layer.build(
        Redis.layer({ url: url(ada), pem: { ...pem, ca } }).pipe(Layer.provide(Logger.layer([logger])))
      )
      yield* eventually(
        "it is said",
        Effect.sync(() => said.some((line) => /redis does not answer \(.*DEADMAN_REDIS_SSL_CA\)/.test(line)))
      )
      assert.notInclude(said.join("\n"), "p@ss")
    }).pipe(Effect.scoped))
})
