/** Where a Redis is and how it is spoken to, as its driver wants it, and what to do when it will not have us. */
import { Redacted } from "effect"
import { isIP } from "node:net"
import { type Pem, tlsOptions } from "../../domain/Pem.ts"
import { type TlsTrouble, tlsTrouble } from "../../domain/TlsTrouble.ts"

/** What `redis://user:password@host:port/db` says, or `null` if it is none. No options in the query: ours are the ones. */
export const parse = (text: string) => {
  try {
    const url = new URL(text)
    const db = /^\/?(\d{0,4})$/.exec(url.pathname)?.[1]
    if (!["redis:", "rediss:"].includes(url.protocol) || url.hostname === "" || db === undefined || url.search !== "") {
      return null
    }
    const host = url.hostname.replace(/^\[|\]$/g, "")
    return {
      host,
      port: url.port === "" ? 6_379 : Number(url.port),
      db: Number(db),
      ...(url.username === "" ? {} : { username: decodeURIComponent(url.username) }),
      ...(url.password === "" ? {} : { password: decodeURIComponent(url.password) }),
      // The driver does not say it, and a server behind a name of its own among others cannot be reached without.
      ...(url.protocol === "rediss:" ? { tls: isIP(host) === 0 ? { servername: host } : {} } : {})
    }
  } catch {
    return null
  }
}

export const of = (url: Redacted.Redacted, pem: Pem | undefined) => {
  const target = parse(Redacted.value(url))
  return target?.tls === undefined || pem === undefined
    ? target
    : { ...target, tls: { ...target.tls, ...tlsOptions(pem) } }
}

/** Only what authentication and the choice of a database answer. */
export const isHopeless = (message: string): boolean =>
  /^(WRONGPASS|NOAUTH|NOPERM)|invalid password|DB index is out of range/.test(message)

const tlsAdvices: Readonly<Record<TlsTrouble, string>> = {
  unknown_authority:
    "It is not known who signed its certificate: name the file with its authority's in DEADMAN_REDIS_SSL_CA",
  other_name: "Name it in DEADMAN_REDIS_URL as its certificate does",
  own_certificate:
    "It wants a client certificate, or another one: see DEADMAN_REDIS_SSL_CERT and DEADMAN_REDIS_SSL_KEY",
  expired: "Its certificate is over or not valid yet: renew it, or mend this machine's clock",
  no_tls: "That port may not speak TLS: name another in DEADMAN_REDIS_URL, or write redis://"
}

/** What to do about what no waiting cures; `null` for an outage. */
export const adviceOf = (message: string): string | null => {
  const trouble = tlsTrouble(message)
  return isHopeless(message)
    ? "Mend the user, the password or the database number in DEADMAN_REDIS_URL, or give that user its rights"
    : trouble === null
    ? null
    : tlsAdvices[trouble]
}
