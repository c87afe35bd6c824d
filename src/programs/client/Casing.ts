/** Names as TypeScript writes them and as JSON does: `maxAttempts` and `max_attempts`. */

export const snake = (name: string): string => name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
/** Also within a text. */
export const camel = (text: string): string => text.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())

/** What is not said is left out. */
export const snakeFields = (given: object): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(given).filter(([, value]) => value !== undefined).map(([name, value]) => [snake(name), value])
  )

/** Of the fields themselves; what stands in them is left as it is. */
export const camelFields = (given: object): Record<string, unknown> =>
  Object.fromEntries(Object.entries(given).map(([name, value]) => [camel(name), value]))
