import * as DelayedJobsContract from "../../contracts/DelayedJobsContract.ts"
import * as Redis from "../../support/Redis.ts"
import * as TestServers from "../../support/TestServers.ts"

TestServers.describeWithRedis("DelayedJobsRedis", () => {
  DelayedJobsContract.suite("redis", Redis.shared)
})
