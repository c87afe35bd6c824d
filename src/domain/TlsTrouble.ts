/** What the words of a failed TLS handshake mean, as Node, OpenSSL and the other side's alerts have them. */

export type TlsTrouble = "unknown_authority" | "other_name" | "own_certificate" | "expired" | "no_tls"

/** The first that fits. */
const troubles: ReadonlyArray<readonly [words: RegExp, trouble: TlsTrouble]> = [
  [/alert.*certificate|certificate required|alert unknown ca/i, "own_certificate"],
  [/CERT_HAS_EXPIRED|CERT_NOT_YET_VALID|certificate (has expired|is not yet valid)/, "expired"],
  [
    /SELF_SIGNED|UNABLE_TO_|CERT_SIGNATURE_FAILURE|CERT_UNTRUSTED|self-signed|unable to (verify|get)|certificate signature failure/,
    "unknown_authority"
  ],
  [/ALTNAME_INVALID|does not match certificate/, "other_name"],
  [/before secure TLS connection|wrong version number|packet length too long|EPROTO/, "no_tls"]
]

/** `null` for all other trouble. */
export const tlsTrouble = (text: string): TlsTrouble | null => troubles.find(([words]) => words.test(text))?.[1] ?? null

/** One that will be valid: this machine may have just started, with a clock that is still to be set. */
export const isNotYetValid = (text: string): boolean => /CERT_NOT_YET_VALID|certificate is not yet valid/.test(text)
