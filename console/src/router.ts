// Routes are in the fragment: `#/stream/chat/room-1?from=…`. A server never sees it.

import { useEffect, useState } from "preact/hooks"

export interface Route {
  page: string
  /** What follows the page: the path of a stream, as it goes into a URL. */
  path: string
  query: URLSearchParams
}

export function parseRoute(hash: string): Route {
  const [location = "", query = ""] = hash.replace(/^#?\/?/, "").split("?", 2)
  const slash = location.indexOf("/")
  return {
    page: (slash < 0 ? location : location.slice(0, slash)) || "streams",
    path: slash < 0 ? "" : location.slice(slash + 1),
    query: new URLSearchParams(query),
  }
}

export function useRoute(): Route {
  const [route, setRoute] = useState(() => parseRoute(location.hash))
  useEffect(() => {
    const onChange = (): void => setRoute(parseRoute(location.hash))
    addEventListener("hashchange", onChange)
    return () => removeEventListener("hashchange", onChange)
  }, [])
  return route
}

export const streamLink = (path: string, query: Record<string, string> = {}): string => {
  const parameters = new URLSearchParams(query)
  return `#/stream/${path}${parameters.size ? `?${parameters}` : ""}`
}

export const go = (hash: string): void => {
  location.hash = hash
}
