/** The reason in an error's message, for lines that people read: no stack, one line, bounded. Never fails. */

const max = 300

const textOf = (cause: unknown): string => {
  try {
    if (typeof cause === "object" && cause !== null) {
      const { message, name } = cause as { readonly message?: unknown; readonly name?: unknown }
      if (typeof message === "string" && message !== "") return message
      if (typeof name === "string" && name !== "") return name
    }
    return String(cause)
  } catch {
    return "something that cannot be shown"
  }
}

export const because = (cause: unknown): string => textOf(cause).replaceAll(/\s+/g, " ").slice(0, max)
