/** The adapter's connections to a fresh database, for a suite. */
import { Context, Effect, Layer, type Redacted } from "effect"
import * as Database from "../../src/adapters/postgres/Database.ts"
import { freshDatabase } from "./Database.ts"

/** Where the suite's database is. */
export class Url extends Context.Service<Url, Redacted.Redacted>()("deadman/test/support/Postgres/Url") {}

export const layer: Layer.Layer<Database.Database | Url> = Layer.unwrap(Effect.map(
  freshDatabase,
  ({ url }) => Layer.merge(Database.layer({ url }), Layer.succeed(Url, url))
))
