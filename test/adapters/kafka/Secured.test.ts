/** A Kafka with TLS, logins and rights: jobs go over it, and what is wrong with a login or a certificate is said. */
import { assert, it } from "@effect/vitest"
import { Context, Effect, Exit, Layer, Logger, Queue, Redacted } from "effect"
import {
  AclOperationTypes,
  AclPermissionTypes,
  AclResourceTypes,
  type ConsumerConfig,
  Kafka,
  logLevel,
  type ProducerConfig,
  ResourcePatternTypes
} from "kafkajs"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { inspect } from "node:util"
import * as Checkup from "../../../src/adapters/kafka/Checkup.ts"
import * as Client from "../../../src/adapters/kafka/Client.ts"
import * as Consumer from "../../../src/adapters/kafka/Consumer.ts"
import type { Login } from "../../../src/adapters/kafka/Login.ts"
import * as Producer from "../../../src/adapters/kafka/Producer.ts"
import * as Topics from "../../../src/adapters/kafka/Topics.ts"
import { JobType, queueDefault } from "../../../src/domain/Job.ts"
import type { JobId } from "../../../src/domain/JobId.ts"
import type { Pem } from "../../../src/domain/Pem.ts"
import type { Delivery } from "../../../src/ports/Transport.ts"
import * as ApiClient from "../../support/ApiClient.ts"
import * as Certificates from "../../support/Certificates.ts"
import * as Cli from "../../support/Cli.ts"
import { freshDatabase } from "../../support/Database.ts"
import { eventually } from "../../support/Eventually.ts"
import * as Ids from "../../support/Ids.ts"
import * as Processes from "../../support/Processes.ts"
import * as SecuredKafka from "../../support/SecuredKafka.ts"
import * as TestServers from "../../support/TestServers.ts"
import * as Stage from "./Stage.ts"

class Secured
  extends Context.Service<Secured, SecuredKafka.SecuredKafka>()("deadman/test/adapters/kafka/Secured.test/Secured")
{
  static readonly layer = Layer.effect(Secured, SecuredKafka.start).pipe(Layer.orDie)
}

const login = (mechanism: Login["mechanism"], username: string, password: string): Login => ({
  mechanism,
  username,
  password: Redacted.make(password)
})

const ada = login("plain", "ada", SecuredKafka.adasPassword)
const guess = "a password that nobody has"

const trusting = (ca: string): Pem => ({ ca, own: null })

const { CREATE, DESCRIBE, READ, WRITE } = AclOperationTypes

/** What docs/scale.md lists, and nothing else. */
const listed = { ready: [CREATE, READ, WRITE], dead: [CREATE, WRITE] }

const grant = Effect.fnUntraced(function*(principal: string, prefix = "", { dead, ready } = listed) {
  const { plain } = yield* Secured
  const all = (resourceType: AclResourceTypes, resourceName: string, operations: ReadonlyArray<AclOperationTypes>) =>
    operations.map((operation) => ({
      resourceType,
      resourceName,
      resourcePatternType: ResourcePatternTypes.LITERAL,
      principal: `User:${principal}`,
      host: "*",
      operation,
      permissionType: AclPermissionTypes.ALLOW
    }))
  const acl = [
    ...all(AclResourceTypes.TOPIC, `${prefix}jobs.ready`, ready),
    ...all(AclResourceTypes.TOPIC, `${prefix}jobs.dead`, dead),
    ...all(AclResourceTypes.GROUP, `${prefix}deadman`, [READ])
  ]
  const admin = new Kafka({ brokers: [plain], logLevel: logLevel.NOTHING }).admin()
  yield* Effect.promise(() => admin.connect().then(() => admin.createAcls({ acl })).finally(() => admin.disconnect()))
})

/** Workers and submits that speak so, and what they log. */
const stage = Effect.fnUntraced(function*(prefix: string, spoken: Client.Options) {
  const { plain } = yield* Secured
  const said: Array<string> = []
  const logger = Logger.make(({ message }) => {
    said.push(String(message))
  })
  const runs = new Map<string, number>()
  const count = ({ id }: { readonly id: string }) =>
    Effect.sync(() => {
      runs.set(id, (runs.get(id) ?? 0) + 1)
    })
  const system = yield* Effect.provide(
    Effect.gen(function*() {
      const system = yield* Stage.make(plain, prefix, spoken)
      return { ...system, theWorker: yield* system.worker({ fast: count }, { slots: 4 }) }
    }),
    Logger.layer([logger])
  )
  return { ...system, said, once: (ids: ReadonlyArray<string>) => ids.every((id) => runs.get(id) === 1) }
})

TestServers.describeWithKafka("a Kafka with TLS and logins", () => {
  it.layer(Secured.layer, { excludeTestServices: true, timeout: "2 minutes" })("", (it) => {
    it.effect(
      "jobs go over it with a password or a certificate, by the rights that the docs list",
      () =>
        Effect.gen(function*() {
          const { authority, eve, mutual, secured, setPassword } = yield* Secured
          const tls = trusting(authority.cert)
          const password = "þ%, =\\\"x"
          yield* setPassword("bob", "scram-sha-256", password)
          const ways: ReadonlyArray<readonly [principal: string, spoken: Client.Options]> = [
            ["ada", { brokers: [secured], tls, login: ada }],
            ["bob", { brokers: [secured], tls, login: login("scram-sha-256", "bob", password) }],
            ["CN=eve", { brokers: [mutual], tls: { ...tls, own: { ...eve, key: Redacted.make(eve.key) } } }]
          ]
          yield* Effect.forEach(ways, ([principal, spoken], n) =>
            Effect.gen(function*() {
              const prefix = `secured${n}.`
              yield* grant(principal, prefix)
              const { completed, lag, offsets, once, submit, theWorker } = yield* stage(prefix, spoken)
              yield* eventually(
                `${principal} is in the group`,
                Effect.map(theWorker.reasons, ({ length }) => length === 0),
                "60 seconds"
              )
              const ids: Array<JobId> = []
              yield* eventually(
                `the ids of ${principal} go by the topic`,
                Effect.gen(function*() {
                  // Whoever sends while the others make their topics may have to try again, and what was sent is found.
                  ids.push(...(yield* submit("fast", 6)))
                  yield* Effect.sleep("200 millis")
                  // The broker tells of a topic before it knows it.
                  const committed = yield* Effect.exit(offsets)
                  return Exit.isSuccess(committed) && committed.value.some((offset) => offset > 0)
                })
              )
              yield* eventually(`the jobs of ${principal} are done`, completed(ids))
              yield* eventually("nothing is left to commit", Effect.map(lag, (lag) => lag === 0))
              assert.isTrue(once(ids))
            }), { concurrency: "unbounded" })
        }).pipe(Effect.scoped)
    )

    it.effect("what is wrong is told from an outage, in seconds, with what to do and without the password", () =>
      Effect.gen(function*() {
        const { authority, mutual, plain, secured } = yield* Secured
        const tls = trusting(authority.cert)
        const stranger = Certificates.authority("Somebody else's authority")
        const theirs = stranger.issue("eve")
        const [, port] = secured.split(":")
        const wrong: ReadonlyArray<readonly [Client.Options, RegExp]> = [
          [
            { brokers: [secured], tls, login: login("plain", "ada", guess) },
            /Mend .*SASL_USERNAME and .*SASL_PASSWORD/
          ],
          [{ brokers: [secured], tls, login: login("scram-sha-512", "nobody", guess) }, /Mend .*SASL_PASSWORD/],
          [{ brokers: [secured], tls: trusting(stranger.cert), login: ada }, /authority's in DEADMAN_KAFKA_SSL_CA/],
          [{ brokers: [secured], tls: { ca: null, own: null }, login: ada }, /authority's in DEADMAN_KAFKA_SSL_CA/],
          [{ brokers: [`localhost:${port}`], tls, login: ada }, /as their certificates do/],
          [{ brokers: [plain], tls, login: ada }, /may not speak TLS/],
          [{ brokers: [plain], login: ada }, /takes no login/],
          [{ brokers: [secured] }, /hangs up like this: see DEADMAN_KAFKA_SSL/],
          [{ brokers: [secured], tls }, /hangs up like this: see .* DEADMAN_KAFKA_SASL_MECHANISM/],
          [{ brokers: [mutual], tls }, /DEADMAN_KAFKA_SSL_CERT/],
          [
            { brokers: [mutual], tls: { ...tls, own: { cert: theirs.cert, key: Redacted.make(theirs.key) } } },
            /DEADMAN_KAFKA_SSL_CERT/
          ]
        ]
        yield* Effect.forEach(wrong, ([options, advice], n) =>
          Effect.gen(function*() {
            const error = yield* Effect.flip(Checkup.look(options))
            assert.match(error.advice ?? `none for: ${error.reason}`, advice, String(n))
            assert.include(error.message, error.advice ?? "")
            for (const shown of [inspect(error, { depth: 10, showHidden: true }), JSON.stringify(error)]) {
              assert.notInclude(shown, guess)
              assert.notInclude(shown, SecuredKafka.adasPassword)
            }
          }), { concurrency: 4 })
        const kafka = yield* Client.make({ brokers: [secured], tls, login: ada })
        const denied = yield* Effect.flip(Topics.ensure(kafka, Client.namesOf({ brokers: [], prefix: "nobodys." })))
        assert.match(denied.message, /^creating the topics .*authori.*rights that docs\/scale\.md lists$/i)
        const gone = yield* Effect.flip(Checkup.look({ brokers: [`127.0.0.1:${yield* Processes.freePort}`], tls }))
        assert.isNull(gone.advice, gone.message)
      }))

    it.effect("with a wrong password jobs are done all the same, and the log says what to mend", () =>
      Effect.gen(function*() {
        const { authority, secured } = yield* Secured
        const { completed, once, said, submit, theWorker } = yield* stage("refused.", {
          brokers: [secured],
          tls: trusting(authority.cert),
          login: login("plain", "ada", guess)
        })
        const ids = yield* submit("fast", 40)
        yield* eventually("they are done", completed(ids), "60 seconds")
        assert.isTrue(once(ids))
        for (const what of ["publishing to Kafka", "taking deliveries from Kafka"]) {
          yield* eventually(
            `it is said of ${what}`,
            Effect.sync(() =>
              said.some((line) => line.startsWith(what) && line.includes("DEADMAN_KAFKA_SASL_PASSWORD"))
            ),
            "60 seconds"
          )
        }
        assert.notInclude(said.join("\n"), guess)
        assert.isTrue((yield* theWorker.reasons).some((reason) => reason.includes("hints")))
      }).pipe(Effect.scoped))

    it.effect("who may see the topics and not use them says what to mend, seldom, and goes on when it is granted", () =>
      Effect.gen(function*() {
        const { authority, secured } = yield* Secured
        const prefix = "unused."
        yield* grant("ada", prefix, { ready: [CREATE, DESCRIBE], dead: [CREATE, DESCRIBE] })
        const options = { brokers: [secured], prefix, tls: trusting(authority.cert), login: ada }
        const names = Client.namesOf(options)
        const said: Array<string> = []
        const logger = Logger.make(({ message }) => {
          said.push(String(message))
        })
        const kafka = yield* Client.make(options)
        const madeMs = { producer: Array<number>(), consumer: Array<number>() }
        const counted: Kafka = Object.assign(Object.create(kafka) as Kafka, {
          producer: (config: ProducerConfig) => {
            madeMs.producer.push(performance.now())
            return kafka.producer(config)
          },
          consumer: (config: ConsumerConfig) => {
            madeMs.consumer.push(performance.now())
            return kafka.consumer(config)
          }
        })
        const startMs = performance.now()
        const [producer, consumer] = yield* Effect.all([
          Producer.make(counted, names),
          Consumer.make(counted, names, yield* Queue.unbounded<Delivery>())
        ]).pipe(Effect.provide(Logger.layer([logger])))
        const advice = /failed .*authori.*rights that docs\/scale\.md lists\)$/i
        const saidOf = (what: string) => said.filter((line) => line.startsWith(what))
        // The pauses between four tries, at least: those of a worker are drawn, down to half of it.
        const ways = [
          { what: "publishing to Kafka", way: "producer", leastMs: 1_400 },
          { what: "taking deliveries from Kafka", way: "consumer", leastMs: 700 }
        ] as const
        yield* eventually(
          "each was refused three times, and it is said what to mend",
          Effect.sync(() => {
            producer.offer([Ids.jobId()])
            return ways.every(({ way, what }) =>
              madeMs[way].length >= 4 && saidOf(what).some((line) => advice.test(line))
            )
          })
        )
        const lines = 1 + Math.floor((performance.now() - startMs) / 10_000)
        for (const { leastMs, way, what } of ways) {
          assert.isAtMost(saidOf(what).length, lines, said.join("\n"))
          const [first = 0, , , fourth = 0] = madeMs[way]
          assert.isAtLeast(fourth - first, leastMs, what)
        }
        assert.isFalse(producer.answers())

        yield* grant("ada", prefix, { ready: [READ, WRITE], dead: [] })
        yield* eventually(
          "both work again",
          Effect.sync(() => {
            producer.offer([Ids.jobId()])
            return ways.every(({ what }) => saidOf(what).some((line) => line.includes("works again")))
          })
        )
        assert.isTrue(producer.answers())
        assert.isTrue(yield* consumer.healthy)

        const connections = madeMs.producer.length
        const letter = { id: Ids.jobId(), type: JobType.make("fast"), queue: queueDefault, attempts: 1, diedAtMs: 0 }
        // Had the first ended the connection, the others would have waited for another one.
        for (const reason of ["attempts_exhausted", "rejected", "cancelled"] as const) {
          const refused = yield* Effect.flip(producer.announceDead([{ ...letter, reason }]))
          assert.include(refused.message, "rights that docs/scale.md lists")
        }
        assert.isTrue(producer.answers())
        assert.strictEqual(madeMs.producer.length, connections)
      }).pipe(Effect.scoped))

    it.effect(
      "a password that is changed under the programs is an outage, and ends when it is right again",
      () =>
        Effect.gen(function*() {
          const { authority, secured, setPassword } = yield* Secured
          const password = "until tomorrow"
          yield* setPassword("deadman", "scram-sha-512", password)
          yield* grant("deadman")
          const folder = yield* Effect.acquireRelease(
            Effect.sync(() => mkdtempSync(join(tmpdir(), "deadman-test-ca-"))),
            (folder) => Effect.sync(() => rmSync(folder, { recursive: true, force: true }))
          )
          const ca = join(folder, "ca.pem")
          yield* Effect.sync(() => writeFileSync(ca, authority.cert))
          const env = {
            DEADMAN_DATABASE_URL: Redacted.value((yield* freshDatabase).url),
            DEADMAN_KAFKA_BROKERS: secured,
            DEADMAN_KAFKA_SSL: "true",
            DEADMAN_KAFKA_SSL_CA: ca,
            DEADMAN_KAFKA_SASL_MECHANISM: "SCRAM-SHA-512",
            DEADMAN_KAFKA_SASL_USERNAME: "deadman",
            DEADMAN_KAFKA_SASL_PASSWORD: password
          }
          const port = yield* Processes.freePort
          const server = yield* Processes.start("server", { ...env, DEADMAN_PORT: String(port) })
          const api = ApiClient.make(port)
          const kafkaIs = (state: "up" | "away", degraded: boolean) =>
            Effect.map(
              api.send("GET", "/ready"),
              ({ body, status }) =>
                status === 200 && body.services?.kafka === state && (body.degraded?.length > 0) === degraded
            )
          const runs = Effect.fnUntraced(function*(count: number) {
            const jobs = Array.from({ length: count }, () => ({ type: "noop" }))
            const { body } = yield* api.send("POST", "/jobs/batch", jobs)
            const ids = (body.jobs as ReadonlyArray<{ readonly id: string }>).map(({ id }) => id)
            yield* Processes.eventually(
              () => `the jobs are done; the server said:\n${server.output().slice(-2_000)}`,
              Effect.map(
                api.send("GET", `/jobs?id=${ids.join(",")}`),
                ({ body }) =>
                  body.jobs.length === count &&
                  body.jobs.every(({ deliveries, state }: { readonly deliveries: number; readonly state: string }) =>
                    state === "completed" && deliveries === 1
                  )
              ),
              "60 seconds"
            )
          })
          const comes = (what: string, state: "up" | "away", degraded: boolean) =>
            Processes.eventually(
              () => `${what}; the server said:\n${server.output().slice(-2_000)}`,
              kafkaIs(state, degraded),
              "60 seconds"
            )
          yield* comes("it is in the group", "up", false)
          yield* runs(20)

          const doctor = (changed: Readonly<Record<string, string>>) =>
            Effect.map(Cli.run(["doctor"], { env: { ...env, ...changed } }), ({ err, out }) => out + err)
          const [well, refused] = yield* Effect.all([doctor({}), doctor({ DEADMAN_KAFKA_SASL_PASSWORD: guess })], {
            concurrency: 2
          })
          assert.match(well, /ok +kafka +jobs\.ready: 6 partitions/)
          assert.match(refused, /BAD +kafka +cannot be used: .*authentication failed/i)
          assert.include(refused, "DEADMAN_KAFKA_SASL_PASSWORD")

          yield* setPassword("deadman", "scram-sha-512", "from today")
          yield* comes("the login is refused", "away", true)
          yield* runs(20)
          assert.include(server.output(), "DEADMAN_KAFKA_SASL_PASSWORD")
          yield* setPassword("deadman", "scram-sha-512", password)
          yield* comes("it is in the group again", "up", false)
          yield* runs(20)
          yield* server.signal("SIGTERM")
          assert.strictEqual(yield* server.exit("10 seconds"), 0)
          for (const shown of [server.output(), well, refused]) {
            assert.notInclude(shown, password)
            assert.notInclude(shown, guess)
          }
        }).pipe(Effect.scoped)
    )
  })
})
