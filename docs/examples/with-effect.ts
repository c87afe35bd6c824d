/** The same for programs in Effect: handlers that need services, and Layers in place of promises. */
// #region effect
import { CurrentJob, Deadman, Job } from "deadman"
import { Context, Effect, Layer, Schema } from "effect"

class Mailer extends Context.Service<Mailer, {
  readonly send: (to: string) => Effect.Effect<void>
}>()("example/Mailer") {}

const welcome = Job.define({ type: "user.welcome", payload: Schema.Struct({ to: Schema.String }) })

const welcomer = welcome.handle(({ to }) =>
  Effect.gen(function*() {
    const { job, log } = yield* CurrentJob
    const mailer = yield* Mailer
    yield* log(`delivery ${job.delivery}`)
    yield* mailer.send(to)
  })
)

const program = Effect.gen(function*() {
  const client = yield* Deadman.Client
  const job = yield* client.submit(welcome, { to: "ada@example.org" })
  const ended = yield* client.wait(job)
  yield* Effect.sync(() => console.log(ended.state))
})

const MailerLayer = Layer.succeed(Mailer, { send: (to) => Effect.sync(() => console.log("welcome,", to)) })
const DeadmanLayer = Deadman.layer({ handlers: [welcomer] }).pipe(Layer.provide(MailerLayer))

await Effect.runPromise(program.pipe(Effect.provide(DeadmanLayer)))
// #endregion
