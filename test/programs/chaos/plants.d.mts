export declare const faults: Readonly<Record<string, ReadonlyArray<readonly [from: string, to: string]>>>
