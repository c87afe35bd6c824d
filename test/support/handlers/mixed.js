/** A handler module with a mistake: the second one of its array is a bare function. */
export const handlers = [{ _tag: "deadman/TypedHandler", type: "first", toHandler: () => () => "first" }, () => "second"]
