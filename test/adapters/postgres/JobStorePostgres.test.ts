import { Layer } from "effect"
import * as JobStorePostgres from "../../../src/adapters/postgres/JobStorePostgres.ts"
import * as JobStoreContract from "../../contracts/JobStoreContract.ts"
import * as Clock from "../../support/Clock.ts"
import * as Postgres from "../../support/Postgres.ts"

JobStoreContract.suite(
  "postgres",
  Layer.provide(JobStorePostgres.layer({ wake: true, keyTtlMs: 60_000 }), Postgres.layer),
  { pass: Clock.wait }
)
