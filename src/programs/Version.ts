/** The version of this package: read from package.json when bundled, so there is one place for it. */
import manifest from "../../package.json" with { type: "json" }

export const version: string = manifest.version
