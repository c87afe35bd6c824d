/** A handler module in TypeScript: Node loads it as it is, from 22.18 on. */
import { again, type Handler, Rejected } from "../../../src/programs/worker/HandlerApi.ts"

const greets: Handler = ({ payload }) => `hello ${String(payload)}`

const refuses: Handler = () => {
  throw new Rejected("not this one")
}

const twice: Handler = ({ delivery }) => delivery === 1 ? again(0) : delivery

export const handlers = { greets, refuses, twice }
