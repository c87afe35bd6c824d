/** A report for every night, whoever is up, and never two of one night. */
// #region nightly
import { Deadman, Job } from "deadman"
import { Schema } from "effect"

const report = Job.define({
  type: "report.nightly",
  payload: Schema.Struct({ recipients: Schema.Array(Schema.String) })
})

const reporter = report.handle(({ recipients }, { log }) => {
  log(`for ${recipients.length} recipients`)
})

const deadman = await Deadman.start({ handlers: [reporter] })

// Every process may say so at its start: a schedule is known by its name.
const schedule = await deadman.schedule("nightly-report", {
  cron: "30 2 * * *",
  zone: "Europe/Zurich",
  job: report,
  payload: { recipients: ["ops@example.org"] },
  missed: "latest", // after an outage one report, not one for each night
  overlap: "skip"
})
// #endregion

// #region see
const at = new Intl.DateTimeFormat("en-GB", { timeZone: "Europe/Zurich", timeStyle: "short" })
console.log("next at", at.format(schedule.nextFireMs ?? 0))

// To see one tonight rather than wait for it: a schedule that ticks every second.
await deadman.schedule("every-second", { everyMs: 1_000, job: report, payload: { recipients: [] } })
let made = 0
while (made === 0) {
  await new Promise((resolve) => setTimeout(resolve, 100))
  made = (await deadman.list({ type: "report.nightly", state: "completed" })).jobs.length
}
await deadman.unschedule("every-second")
console.log("ran", made > 0)
await deadman.stop()
// #endregion
