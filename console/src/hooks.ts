import { useCallback, useEffect, useRef, useState } from "preact/hooks"
import { ApiError } from "./api"

export type Loaded<T> = { value: T | null; error: ApiError | null; loading: boolean; reload(): void }

const toApiError = (error: unknown): ApiError =>
  error instanceof ApiError ? error : new ApiError(0, "UNEXPECTED", String((error as Error)?.message ?? error))

/** Loads a value now, when `key` changes, and every so many seconds while the page is seen. */
export function useLoaded<T>(load: () => Promise<T>, key: unknown[], everySeconds = 0): Loaded<T> {
  const [state, setState] = useState<{ value: T | null; error: ApiError | null; loading: boolean }>({
    value: null,
    error: null,
    loading: true,
  })
  const latest = useRef(0)
  const reload = useCallback(() => {
    const turn = ++latest.current
    load().then(
      (value) => turn === latest.current && setState({ value, error: null, loading: false }),
      (error: unknown) =>
        turn === latest.current && setState((before) => ({ ...before, error: toApiError(error), loading: false })),
    )
  }, key)
  useEffect(() => {
    setState({ value: null, error: null, loading: true })
    reload()
    if (!everySeconds) return undefined
    const timer = setInterval(() => document.visibilityState === "visible" && reload(), everySeconds * 1000)
    return () => clearInterval(timer)
  }, [reload, everySeconds])
  return { ...state, reload }
}

/** Runs something that the user asked for, and keeps its error. */
export function useAction(): { busy: boolean; error: ApiError | null; run(action: () => Promise<unknown>): Promise<boolean>; clear(): void } {
  const [state, setState] = useState<{ busy: boolean; error: ApiError | null }>({ busy: false, error: null })
  return {
    ...state,
    async run(action) {
      setState({ busy: true, error: null })
      try {
        await action()
        setState({ busy: false, error: null })
        return true
      } catch (error) {
        setState({ busy: false, error: toApiError(error) })
        return false
      }
    },
    clear: () => setState({ busy: false, error: null }),
  }
}

/** Renders again each so many milliseconds. */
export function useTick(milliseconds: number): number {
  const [tick, setTick] = useState(0)
  useEffect(() => {
    const timer = setInterval(() => setTick((before) => before + 1), milliseconds)
    return () => clearInterval(timer)
  }, [milliseconds])
  return tick
}
