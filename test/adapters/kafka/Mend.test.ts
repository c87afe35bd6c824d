import { assert, describe, it } from "@effect/vitest"
import { readFileSync } from "node:fs"
import * as Mend from "../../../src/adapters/kafka/Mend.ts"

describe("the mending of kafkajs", () => {
  it("changes the functions that it knows, once", () => {
    const methods = () => Mend.patches.map((patch) => Mend.prototypeOf(patch)[patch.method])
    const before = methods()
    assert.deepStrictEqual(before.map(Mend.shapeOf), Mend.patches.map(({ shape }) => shape))
    Mend.mend()
    const after = methods()
    assert.isTrue(after.every((method, n) => method !== before[n]))
    Mend.mend()
    assert.deepStrictEqual(methods(), after)
  })

  it("the version is pinned", () => {
    const { dependencies } = JSON.parse(readFileSync("package.json", "utf8"))
    assert.strictEqual(dependencies.kafkajs, "2.2.4")
  })

  it.each(Mend.patches)("another $method is refused loudly", (patch) => {
    const prototype = Mend.prototypeOf(patch)
    const method = prototype[patch.method]
    prototype[patch.method] = function() {
      return 1
    }
    assert.throws(Mend.mend, "Mend.ts is still needed")
    if (method !== undefined) {
      prototype[patch.method] = method
    }
  })

  it("an idle connection arms no timer, and a busy one does", () => {
    Mend.mend()
    const schedule = Mend.prototypeOf(Mend.patches[0]!)["scheduleCheckPendingRequests"]!
    const idle = { pending: [], throttledUntil: -1, throttleCheckTimeoutId: null }
    schedule.call(idle)
    assert.isNull(idle.throttleCheckTimeoutId)
    const busy = { pending: [{}], throttledUntil: -1, throttleCheckTimeoutId: null as NodeJS.Timeout | null }
    schedule.call(busy)
    assert.isNotNull(busy.throttleCheckTimeoutId)
    clearTimeout(busy.throttleCheckTimeoutId!)
  })

  it("a consumer that starts again is the member that it was, and no other", () => {
    const connect = Mend.patches[1]!.mend(function(this: object) {
      return this
    })
    const group = (memberId: string | null, id: string | null) => ({ memberId, assigners: [{}, { member: { id } }] })
    const joined = (memberId: string | null, id: string | null) => connect.call(group(memberId, id))
    assert.include(joined(null, "before") as object, { memberId: "before" })
    assert.include(joined("now", "before") as object, { memberId: "now" })
    assert.include(joined(null, null) as object, { memberId: null })
    assert.include(connect.call({ memberId: null, assigners: [{}] }) as object, { memberId: null })
  })
})
