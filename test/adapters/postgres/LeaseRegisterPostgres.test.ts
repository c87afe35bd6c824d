import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { Database } from "../../../src/adapters/postgres/Database.ts"
import * as LeaseRegisterPostgres from "../../../src/adapters/postgres/LeaseRegisterPostgres.ts"
import { LeaseRegister } from "../../../src/ports/LeaseRegister.ts"
import * as LeaseRegisterContract from "../../contracts/LeaseRegisterContract.ts"
import * as Ids from "../../support/Ids.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as Rows from "../../support/Rows.ts"

const layer = Layer.provideMerge(LeaseRegisterPostgres.layer, Postgres.layer)

LeaseRegisterContract.suite("postgres", layer, {
  clock: "live",
  prepare: (leases, leaseMs) => Rows.leases(leases, leaseMs)
})

it.layer(layer, { excludeTestServices: true })("LeaseRegisterPostgres", (it) => {
  it.effect("the register is the record: holding makes no row, and releasing takes none away", () =>
    Effect.gen(function*() {
      const register = yield* LeaseRegister
      const [standing, unknown] = [Ids.leaseId(), Ids.leaseId()]
      yield* Rows.leases([standing], 5_000)
      yield* register.hold([{ lease: unknown, leaseMs: 5_000 }])
      yield* register.release([standing])
      const { tokens } = yield* register.look([standing, unknown])
      assert.deepStrictEqual(Array.from(tokens.keys()), [standing])
      assert.isTrue(register.isRecord)
    }))

  it.effect("holding again moves no token, so that it proves nothing to a reaper", () =>
    Effect.gen(function*() {
      const register = yield* LeaseRegister
      const lease = Ids.leaseId()
      yield* Rows.leases([lease], 5_000)
      const before = yield* register.look([lease])
      yield* register.hold([{ lease, leaseMs: 5_000 }])
      assert.strictEqual((yield* register.look([lease])).tokens.get(lease), before.tokens.get(lease))
    }))

  it.effect("a claim that was cut off makes renewals answer check", () =>
    Effect.gen(function*() {
      const register = yield* LeaseRegister
      const lease = Ids.leaseId()
      yield* Rows.leases([lease], 5_000)
      yield* Rows.query(`UPDATE deadman.lease SET revoked = '[{"id": "x"}]' WHERE id = $1::uuid`, [lease])
      assert.deepStrictEqual(yield* register.renew([{ lease, leaseMs: 5_000 }]), ["check"])
    }))

  it.effect("a row that somebody locks makes the renewal fail in time, and says nothing of what was sent", () =>
    Effect.gen(function*() {
      const register = yield* LeaseRegister
      const database = yield* Database
      const lease = Ids.leaseId()
      yield* Rows.leases([lease], 5_000)
      const error = yield* database.transaction("handler", (session) =>
        Effect.andThen(
          session.query(`SELECT id FROM deadman.lease WHERE id = $1::uuid FOR UPDATE`, [lease]),
          Effect.flip(register.renew([{ lease, leaseMs: 5_000 }]))
        ))
      assert.strictEqual(error._tag, "LeaseRegisterUnavailable")
      assert.notInclude(`${error.message} ${String(error.cause)}`, lease)
      assert.notInclude(String(error.cause), "UPDATE")
      assert.deepStrictEqual(yield* register.renew([{ lease, leaseMs: 5_000 }]), ["held"])
    }))
})
