/**
 * With Kysely: the order and its confirmation commit together, or not at all.
 */
import { type Kysely, sql } from "kysely"

export interface Shop {
  readonly shop_order: { readonly id: string; readonly total: number }
  readonly shop_stock: { readonly left_over: number }
}

export interface Order {
  readonly id: string
  readonly total: number
}

export const placeOrder = (db: Kysely<Shop>, order: Order): Promise<string> =>
  db.transaction().execute(async (tx) => {
    await tx.insertInto("shop_order").values(order).execute()
    const payload = JSON.stringify({ order: order.id })
    const options = JSON.stringify({ idempotency_key: `confirm-${order.id}` })
    const { rows } = await sql<{ job: string }>`
      SELECT deadman.submit('order.confirm', ${payload}, ${options}) AS job
    `.execute(tx)
    // What goes wrong from here on takes the job back as well.
    await tx.updateTable("shop_stock").set((eb) => ({ left_over: eb("left_over", "-", 1) })).execute()
    return rows[0]!.job
  })
