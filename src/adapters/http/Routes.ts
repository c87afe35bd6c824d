/** Which paths there are, read off the definition: so that a wrong method is told from a wrong path. */

interface Route {
  readonly pattern: RegExp
  readonly method: string
}

interface Definition {
  readonly groups: Readonly<
    Record<string, {
      readonly endpoints: Readonly<Record<string, { readonly path: string; readonly method: string }>>
    }>
  >
}

export const routesOf = (api: Definition, more: ReadonlyArray<string>): ReadonlyArray<Route> => {
  const routes: Array<Route> = more.map((path) => ({ pattern: new RegExp(`^${path}$`), method: "GET" }))
  for (const group of Object.values(api.groups)) {
    for (const endpoint of Object.values(group.endpoints)) {
      const path = endpoint.path.replace(/\/$/, "").replaceAll(/:[a-z]+/g, "[^/]+")
      routes.push({ pattern: new RegExp(`^${path === "" ? "/" : path}$`), method: endpoint.method })
    }
  }
  return routes
}

/** The methods of a path; none if there is no such path. */
export const methodsOf = (routes: ReadonlyArray<Route>, path: string): ReadonlyArray<string> => {
  const methods = new Set(routes.filter(({ pattern }) => pattern.test(path)).map(({ method }) => method))
  if (methods.has("GET")) {
    methods.add("HEAD")
  }
  return Array.from(methods)
}
