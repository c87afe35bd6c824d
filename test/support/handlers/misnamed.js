/** A module whose handler no job can have: names of types have no blanks. */
export const handlers = { "send mail": () => null }
