/** Small words in lines for people. */

/** `1 job`, `2 jobs`. */
export const counted = (n: number, one: string, many: string = `${one}s`): string => `${n} ${n === 1 ? one : many}`
