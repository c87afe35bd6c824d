/** Certificates and keys as text in PEM: how this process and a service that speaks TLS come to trust each other. */
import { Redacted } from "effect"

export interface Pem {
  /** Whom to trust, instead of the well-known authorities. */
  readonly ca: string | null
  /** Who we are, for servers that ask. */
  readonly own: { readonly cert: string; readonly key: Redacted.Redacted } | null
}

/** As Node's TLS is told, and with it the drivers. */
export const tlsOptions = ({ ca, own }: Pem) => ({
  ...(ca === null ? {} : { ca }),
  ...(own === null ? {} : { cert: own.cert, key: Redacted.value(own.key) })
})
