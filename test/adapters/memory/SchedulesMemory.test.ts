import { Layer } from "effect"
import * as JobStoreMemory from "../../../src/adapters/memory/JobStoreMemory.ts"
import * as SchedulesMemory from "../../../src/adapters/memory/SchedulesMemory.ts"
import * as SchedulesContract from "../../contracts/SchedulesContract.ts"

SchedulesContract.suite("memory", Layer.provideMerge(SchedulesMemory.layer, JobStoreMemory.layer))
