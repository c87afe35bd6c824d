/** Loaded by Deadman's worker, as a user's handlers are. */
export const handlers = { bench: async (job) => globalThis.deadmanOnJob(job.payload) }
