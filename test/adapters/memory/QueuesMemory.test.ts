import { Layer } from "effect"
import * as JobStoreMemory from "../../../src/adapters/memory/JobStoreMemory.ts"
import * as QueuesMemory from "../../../src/adapters/memory/QueuesMemory.ts"
import * as QueuesContract from "../../contracts/QueuesContract.ts"

QueuesContract.suite("memory", Layer.provideMerge(QueuesMemory.layer, JobStoreMemory.layer))
