import { assert, describe, it } from "@effect/vitest"
import { isNotYetValid, type TlsTrouble, tlsTrouble } from "../../src/domain/TlsTrouble.ts"

/** As Node, OpenSSL and the other side's alerts say it. */
const said: ReadonlyArray<readonly [text: string, trouble: TlsTrouble | null]> = [
  ["certificate has expired", "expired"],
  ["Connection error: certificate has expired CERT_HAS_EXPIRED", "expired"],
  ["certificate is not yet valid", "expired"],
  ["CERT_NOT_YET_VALID", "expired"],
  // Ours, as the other side sees it.
  ["ssl/tls alert certificate expired:SSL alert number 45", "own_certificate"],
  ["tlsv13 alert certificate required", "own_certificate"],
  ["tlsv1 alert unknown ca", "own_certificate"],
  ["self-signed certificate in certificate chain SELF_SIGNED_CERT_IN_CHAIN", "unknown_authority"],
  ["unable to verify the first certificate", "unknown_authority"],
  ["Hostname/IP does not match certificate's altnames: Host: localhost. ERR_TLS_CERT_ALTNAME_INVALID", "other_name"],
  ["Client network socket disconnected before secure TLS connection was established", "no_tls"],
  ["packet length too long", "no_tls"],
  ["connect ECONNREFUSED 127.0.0.1:9092", null]
]

describe("TlsTrouble", () => {
  it("is told by the words of a handshake that failed", () => {
    for (const [text, trouble] of said) {
      assert.strictEqual(tlsTrouble(text), trouble, text)
    }
  })

  it("one that is not valid yet is told from one that is over", () => {
    assert.isTrue(isNotYetValid("certificate is not yet valid"))
    assert.isTrue(isNotYetValid("CERT_NOT_YET_VALID"))
    assert.isFalse(isNotYetValid("certificate has expired CERT_HAS_EXPIRED"))
  })
})
