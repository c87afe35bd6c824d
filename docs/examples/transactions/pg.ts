/**
 * With `pg`: the order and its confirmation commit together, or not at all.
 */
import type { Pool } from "pg"

export interface Order {
  readonly id: string
  readonly total: number
}

export const placeOrder = async (pool: Pool, order: Order): Promise<string> => {
  const client = await pool.connect()
  try {
    await client.query("BEGIN")
    await client.query("INSERT INTO shop_order (id, total) VALUES ($1, $2)", [order.id, order.total])
    const { rows } = await client.query<{ job: string }>(
      "SELECT deadman.submit($1, $2, $3) AS job",
      ["order.confirm", { order: order.id }, { idempotency_key: `confirm-${order.id}` }]
    )
    // What goes wrong from here on takes the job back as well.
    await client.query("UPDATE shop_stock SET left_over = left_over - 1")
    await client.query("COMMIT")
    return rows[0]!.job
  } catch (error) {
    await client.query("ROLLBACK")
    throw error
  } finally {
    client.release()
  }
}
