/**
 * What to do about an error of Kafka that no waiting cures: a login, a certificate or a right that is wrong, or a listener
 * that speaks another way than we do. Everything else is taken for an outage, and ends by itself.
 */
import { isNotYetValid, type TlsTrouble, tlsTrouble } from "../../domain/TlsTrouble.ts"

/** By the words of the error, the first that fits. */
const advices: ReadonlyArray<readonly [words: RegExp, advice: string]> = [
  [/mechanism is not supported/, "Name a mechanism that the broker offers in DEADMAN_KAFKA_SASL_MECHANISM"],
  [
    /SASL state/,
    "This listener takes no login: leave DEADMAN_KAFKA_SASL_MECHANISM and its company out, or name another port in " +
    "DEADMAN_KAFKA_BROKERS"
  ],
  [/authentication failed/i, "Mend DEADMAN_KAFKA_SASL_USERNAME and DEADMAN_KAFKA_SASL_PASSWORD"],
  [/authoriz(ed|ation)/i, "Give its user the rights that docs/scale.md lists"]
]

const tlsAdvices: Readonly<Record<TlsTrouble, string>> = {
  unknown_authority:
    "It is not known who signed the broker's certificate: name the file with its authority's in DEADMAN_KAFKA_SSL_CA",
  other_name: "Name the brokers in DEADMAN_KAFKA_BROKERS, and in their advertised.listeners, as their certificates do",
  own_certificate:
    "The broker wants a client certificate, or another one: see DEADMAN_KAFKA_SSL_CERT and DEADMAN_KAFKA_SSL_KEY",
  expired: "The broker's certificate is over or not valid yet: renew it, or mend this machine's clock",
  no_tls: "That port may not speak TLS: name another in DEADMAN_KAFKA_BROKERS, or leave DEADMAN_KAFKA_SSL out"
}

/** What is asked first on a connection. */
const greetings = /^(connecting|listing topics|asking for the brokers)$/

interface Said {
  readonly message?: unknown
  readonly code?: unknown
  readonly cause?: unknown
  readonly errors?: unknown
}

/** What an error says, and the first of those that it stands for: kafkajs's own sum says nothing. */
export const reasonOf = (error: unknown): string => {
  const { errors, message } = Object(error) as Said
  const text = typeof message === "string" && message !== "" ? message : String(error)
  return Array.isArray(errors) && errors.length > 0 ? `${text} (${reasonOf(errors[0])})` : text
}

/** Of the error and of what it was made from. */
const textOf = (cause: unknown): string => {
  const found: Array<string> = []
  for (let next = cause; typeof next === "object" && next !== null && found.length < 5;) {
    const said: Said = next
    found.push(`${reasonOf(said)} ${String(said.code ?? "")}`)
    next = said.cause
  }
  return found.join(" ")
}

const knownOf = (text: string): string | null => advices.find(([words]) => words.test(text))?.[1] ?? null

/**
 * Whether the broker answers and refuses. A port that hangs up before that may be a wrong one, and is advised below, but is
 * more often a broker that starts anew behind a proxy: an outage, until it is known better. A certificate that is not valid
 * yet will be.
 */
export const isRefusal = (cause: unknown): boolean => {
  const text = textOf(cause)
  const trouble = tlsTrouble(text)
  return knownOf(text) !== null || (trouble !== null && trouble !== "no_tls" && !isNotYetValid(text))
}

/** What to do about it; `null` for an outage that nobody can do anything about here. */
export const of = (doing: string, cause: unknown): string | null => {
  const text = textOf(cause)
  const known = knownOf(text)
  if (known !== null) {
    return known
  }
  const trouble = tlsTrouble(text)
  if (trouble !== null) {
    return tlsAdvices[trouble]
  }
  // A broker that dies looks so too, but not when it is asked again.
  return greetings.test(doing) && text.includes("Closed connection")
    ? "A broker that wants TLS or a login hangs up like this: see DEADMAN_KAFKA_SSL and DEADMAN_KAFKA_SASL_MECHANISM"
    : null
}
