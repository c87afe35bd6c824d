/** How one logs in to Kafka: apart from the client, so that who only reads the configuration loads no driver. */
import type { Redacted } from "effect"

export const mechanisms = ["plain", "scram-sha-256", "scram-sha-512"] as const

export interface Login {
  readonly mechanism: (typeof mechanisms)[number]
  readonly username: string
  readonly password: Redacted.Redacted
}
