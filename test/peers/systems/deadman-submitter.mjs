/** Deadman's submitter in the measuring process, which is configured as its programs are. */
import { Context, Effect, Exit, Layer, Redacted, Scope } from "effect"
import * as Migrations from "../../../src/adapters/postgres/Migrations.ts"
import * as Backoff from "../../../src/domain/Backoff.ts"
import { JobType, queueDefault } from "../../../src/domain/Job.ts"
import { Submitter } from "../../../src/ports/Submitter.ts"
import * as Adapters from "../../../src/programs/Adapters.ts"
import * as Loops from "../../../src/programs/process/Loops.ts"
import * as GroupCommit from "../../../src/programs/submit/GroupCommit.ts"

const type = JobType.make("bench")

export const migrate = (url) => Effect.runPromise(Migrations.migrate(Redacted.make(url)))

const draft = (data) => ({
  type,
  queue: queueDefault,
  payload: JSON.stringify(data),
  priority: 0,
  maxAttempts: 10,
  backoff: Backoff.defaults,
  timeoutMs: null,
  runAtMs: null,
  tags: [],
  key: null,
  resubmittedFrom: null
})

export const producer = async () => {
  const scope = Scope.makeUnsafe()
  const services = await Effect.runPromise(
    Layer.build(
      GroupCommit.layer.pipe(Layer.provideMerge(Adapters.layer("server")), Layer.provide(Loops.layer))
    ).pipe(Scope.provide(scope))
  )
  const submitter = Context.get(services, Submitter)
  return {
    add: (data) =>
      new Promise((resolve, reject) =>
        submitter.submitThen(draft(data), (answer) => answer._tag === "Created" ? resolve(answer) : reject(answer))
      ),
    addBulk: (all) => Effect.runPromise(submitter.submitAll(all.map(draft))),
    close: () => Effect.runPromise(Scope.close(scope, Exit.void))
  }
}
