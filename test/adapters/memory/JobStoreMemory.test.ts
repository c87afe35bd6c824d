import * as JobStoreMemory from "../../../src/adapters/memory/JobStoreMemory.ts"
import * as JobStoreContract from "../../contracts/JobStoreContract.ts"

JobStoreContract.suite("memory", JobStoreMemory.layer)
JobStoreContract.suiteOfKeys("memory", JobStoreMemory.layerWith({ keyTtlMs: 1_000 }), { keyTtlMs: 1_000 })
