/**
 * With `postgres` (postgres.js): the order and its confirmation commit together, or not at all.
 */
import type { Sql } from "postgres"

export interface Order {
  readonly id: string
  readonly total: number
}

export const placeOrder = (sql: Sql, order: Order): Promise<string> =>
  sql.begin(async (sql) => {
    await sql`INSERT INTO shop_order (id, total) VALUES (${order.id}, ${order.total})`
    const [row] = await sql<[{ job: string }]>`
      SELECT deadman.submit(
        'order.confirm',
        ${sql.json({ order: order.id })},
        ${sql.json({ idempotency_key: `confirm-${order.id}` })}
      ) AS job`
    // What goes wrong from here on takes the job back as well.
    await sql`UPDATE shop_stock SET left_over = left_over - 1`
    return row.job
  })
