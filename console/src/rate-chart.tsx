// Messages and bytes of each of the last seconds.

import type { JSX } from "preact"
import { useEffect, useRef, useState } from "preact/hooks"
import { bytes, count } from "./format"
import type { Mode } from "./messages"

const SECONDS = 60
const WIDTH = 240
const HEIGHT = 40

/** `totals`: how much has come live so far. */
export function RateChart({ totals, mode }: { totals: () => { rows: number; bytes: number }; mode: Mode }): JSX.Element {
  const [points, setPoints] = useState<{ rows: number; bytes: number }[]>(() =>
    Array.from({ length: SECONDS }, () => ({ rows: 0, bytes: 0 })),
  )
  const before = useRef(totals())
  useEffect(() => {
    const timer = setInterval(() => {
      const now = totals()
      const point = { rows: Math.max(0, now.rows - before.current.rows), bytes: Math.max(0, now.bytes - before.current.bytes) }
      before.current = now
      setPoints((old) => [...old.slice(1), point])
    }, 1000)
    return () => clearInterval(timer)
  }, [totals])
  const value = (point: { rows: number; bytes: number }): number => (mode === "json" ? point.rows : point.bytes)
  const peak = Math.max(...points.map(value))
  const top = Math.max(1, peak)
  const line = points
    .map((point, index) => `${((index / (SECONDS - 1)) * WIDTH).toFixed(1)},${(HEIGHT - 2 - (value(point) / top) * (HEIGHT - 6)).toFixed(1)}`)
    .join("L")
  const latest = points.at(-1)!
  const spoken = `${mode === "json" ? `${count(latest.rows)} messages/s, ` : ""}${bytes(latest.bytes)}/s`
  return (
    <figure class="rate">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={`Rate of the last minute: now ${spoken}`}>
        <path class="rate-area" d={`M0,${HEIGHT}L${line}L${WIDTH},${HEIGHT}Z`} />
        <path class="rate-line" d={`M${line}`} />
      </svg>
      <figcaption>
        <strong data-rate={mode === "json" ? latest.rows : latest.bytes}>{mode === "json" ? `${count(latest.rows)}/s` : `${bytes(latest.bytes)}/s`}</strong>
        <span>{mode === "json" ? `${bytes(latest.bytes)}/s` : "last minute"}</span>
        <span>peak {mode === "json" ? count(peak) : bytes(peak)}</span>
      </figcaption>
    </figure>
  )
}
