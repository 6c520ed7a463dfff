// A list of any length, of which only the visible rows are in the page.

import type { ComponentChildren, JSX, RefObject } from "preact"
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks"

export const ROW_HEIGHT = 28
const MARGIN_ROWS = 8

interface Props {
  label: string
  count: number
  /** How many rows were removed at the beginning so far: the view stays where it is. */
  dropped: number
  /** Whether the view stays at the end when rows are added. */
  pinned: boolean
  onPinned(pinned: boolean): void
  selected: number | null
  onSelect(index: number): void
  onOpen?(index: number): void
  row(index: number): ComponentChildren
  scroller?: RefObject<HTMLDivElement>
}

export function VirtualList(props: Props): JSX.Element {
  const own = useRef<HTMLDivElement>(null)
  const list = props.scroller ?? own
  const [view, setView] = useState({ top: 0, height: 600 })
  const droppedBefore = useRef(props.dropped)
  const { count, pinned } = props

  useEffect(() => {
    const element = list.current!
    const observer = new ResizeObserver(() => setView({ top: element.scrollTop, height: element.clientHeight }))
    observer.observe(element)
    return () => observer.disconnect()
  }, [])

  useLayoutEffect(() => {
    const element = list.current!
    if (pinned) {
      element.scrollTop = count * ROW_HEIGHT
    } else if (props.dropped !== droppedBefore.current) {
      element.scrollTop -= (props.dropped - droppedBefore.current) * ROW_HEIGHT
    }
    droppedBefore.current = props.dropped
    if (element.scrollTop !== view.top) setView({ top: element.scrollTop, height: element.clientHeight })
  }, [count, pinned, props.dropped])

  const onScroll = (): void => {
    const element = list.current!
    const atEnd = element.scrollTop + element.clientHeight >= count * ROW_HEIGHT - 2 * ROW_HEIGHT
    if (atEnd !== pinned && (atEnd || element.scrollTop < view.top)) props.onPinned(atEnd)
    setView({ top: element.scrollTop, height: element.clientHeight })
  }

  const show = (index: number): void => {
    const element = list.current!
    const top = index * ROW_HEIGHT
    if (top < element.scrollTop) element.scrollTop = top
    else if (top + ROW_HEIGHT > element.scrollTop + element.clientHeight) {
      element.scrollTop = top + ROW_HEIGHT - element.clientHeight
    }
  }

  const onKeyDown = (event: KeyboardEvent): void => {
    const page = Math.max(1, Math.floor(view.height / ROW_HEIGHT) - 1)
    const from = props.selected ?? (event.key === "ArrowUp" || pinned ? count : -1)
    const target = {
      ArrowDown: from + 1,
      ArrowUp: from - 1,
      PageDown: from + page,
      PageUp: from - page,
      Home: 0,
      End: count - 1,
    }[event.key]
    if (event.key === "Enter" && props.selected !== null) props.onOpen?.(props.selected)
    if (target === undefined || !count) return
    event.preventDefault()
    const index = Math.min(count - 1, Math.max(0, target))
    props.onPinned(event.key === "End")
    props.onSelect(index)
    show(index)
  }

  const first = Math.max(0, Math.floor(view.top / ROW_HEIGHT) - MARGIN_ROWS)
  const stop = Math.min(count, Math.ceil((view.top + view.height) / ROW_HEIGHT) + MARGIN_ROWS)
  const rows: JSX.Element[] = []
  for (let index = first; index < stop; index += 1) {
    rows.push(
      <div
        key={index + props.dropped}
        id={`row-${index + props.dropped}`}
        role="option"
        class={index === props.selected ? "row selected" : "row"}
        aria-selected={index === props.selected}
        aria-posinset={index + 1}
        aria-setsize={count}
        onClick={() => {
          props.onSelect(index)
          props.onOpen?.(index)
        }}
      >
        {props.row(index)}
      </div>,
    )
  }
  return (
    <div
      ref={list}
      class="list"
      role="listbox"
      tabIndex={0}
      aria-label={props.label}
      {...(props.selected !== null && props.selected >= first && props.selected < stop
        ? { "aria-activedescendant": `row-${props.selected + props.dropped}` }
        : {})}
      onScroll={onScroll}
      onKeyDown={onKeyDown}
    >
      <div role="presentation" class="list-space" style={{ height: `${count * ROW_HEIGHT}px` }}>
        <div role="presentation" style={{ transform: `translateY(${first * ROW_HEIGHT}px)` }}>
          {rows}
        </div>
      </div>
    </div>
  )
}
