/**
 * With Effect SQL: the order and its confirmation commit together, or not at all.
 */
import { Job, Transaction } from "deadman"
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"

export const confirmOrder = Job.define({
  type: "order.confirm",
  payload: Schema.Struct({ order: Schema.String })
})

export interface Order {
  readonly id: string
  readonly total: number
}

export const placeOrder = (order: Order) =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    return yield* sql.withTransaction(Effect.gen(function*() {
      yield* sql`INSERT INTO shop_order (id, total) VALUES (${order.id}, ${order.total})`
      const job = yield* Transaction.submit(confirmOrder, { order: order.id }, {
        idempotencyKey: `confirm-${order.id}`
      })
      // What goes wrong from here on takes the job back as well.
      yield* sql`UPDATE shop_stock SET left_over = left_over - 1`
      return job
    }))
  })
