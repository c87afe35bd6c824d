import { Context, Effect, Layer } from "effect"
import * as LeaseRegisterMemory from "../../../src/adapters/memory/LeaseRegisterMemory.ts"
import { LeaseRegister } from "../../../src/ports/LeaseRegister.ts"
import * as LeaseRegisterContract from "../../contracts/LeaseRegisterContract.ts"

class Forget extends Context.Service<Forget, Effect.Effect<void>>()(
  "deadman/test/adapters/memory/LeaseRegisterMemory.test/Forget"
) {}

const layer = Layer.effectContext(Effect.map(
  LeaseRegisterMemory.makeForgetful,
  ({ forget, service }) => Context.make(LeaseRegister, service).pipe(Context.add(Forget, forget))
))

LeaseRegisterContract.suite("memory", layer, {
  clock: "test",
  keptMs: (leaseMs) => 4 * leaseMs,
  forget: Effect.flatten(Forget)
})
