import * as SessionsMemory from "../../../src/adapters/memory/SessionsMemory.ts"
import * as SessionsContract from "../../contracts/SessionsContract.ts"

SessionsContract.suite("memory", SessionsMemory.layer)
