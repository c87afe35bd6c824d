/**
 * With Drizzle: the order and its confirmation commit together, or not at all.
 */
import { sql } from "drizzle-orm"
import type { NodePgDatabase } from "drizzle-orm/node-postgres"
import { integer, pgTable, text } from "drizzle-orm/pg-core"

const shopOrder = pgTable("shop_order", { id: text().primaryKey(), total: integer().notNull() })
const shopStock = pgTable("shop_stock", { leftOver: integer("left_over").notNull() })

export interface Order {
  readonly id: string
  readonly total: number
}

export const placeOrder = (db: NodePgDatabase, order: Order): Promise<string> =>
  db.transaction(async (tx) => {
    await tx.insert(shopOrder).values(order)
    const payload = JSON.stringify({ order: order.id })
    const options = JSON.stringify({ idempotency_key: `confirm-${order.id}` })
    const { rows } = await tx.execute<{ job: string }>(
      sql`SELECT deadman.submit('order.confirm', ${payload}, ${options}) AS job`
    )
    // What goes wrong from here on takes the job back as well.
    await tx.update(shopStock).set({ leftOver: sql`${shopStock.leftOver} - 1` })
    return rows[0]!.job
  })
