import * as TransportMemory from "../../../src/adapters/memory/TransportMemory.ts"
import * as TransportContract from "../../contracts/TransportContract.ts"

TransportContract.suite("memory", TransportMemory.layer, { deliveries: false })
TransportContract.suite("memory, delivering", TransportMemory.layerDelivering, { deliveries: true })
