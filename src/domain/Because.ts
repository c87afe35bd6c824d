/** The reason in an error's message, for lines that people read: no stack, one line, bounded. */

const max = 300

export const because = (cause: unknown): string => {
  const text = cause instanceof Error ? cause.message || cause.name : String(cause)
  return text.replaceAll(/\s+/g, " ").slice(0, max)
}
