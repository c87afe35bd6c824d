import * as DelayedJobsMemory from "../../../src/adapters/memory/DelayedJobsMemory.ts"
import * as DelayedJobsContract from "../../contracts/DelayedJobsContract.ts"

DelayedJobsContract.suite("memory", DelayedJobsMemory.layer)
