/** The laws of `Laws.ts` and `RemoteLaws.ts` on the postgres profile. */
import { it } from "@effect/vitest"
import { Layer } from "effect"
import * as Stage from "../faults/Stage.ts"
import * as Suite from "./Suite.ts"
import * as System from "./System.ts"

it.layer(Layer.provideMerge(System.layer, Stage.layer(System.env)), {
  excludeTestServices: true,
  timeout: "2 minutes"
})("on the postgres profile", Suite.suite)
