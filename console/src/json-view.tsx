// JSON as a tree that folds. Values keep the text that they were sent with.

import type { JSX } from "preact"
import { useMemo, useState } from "preact/hooks"
import { parseJson, type JsonNode } from "./json"

const OPEN_DEPTH = 4
const SHOWN_AT_ONCE = 100

export function JsonView({ text }: { text: string }): JSX.Element {
  const node = useMemo(() => {
    try {
      return parseJson(text)
    } catch {
      return null
    }
  }, [text])
  if (!node) return <pre class="raw">{text}</pre>
  return (
    <div class="json-tree">
      <Value node={node} depth={0} name={null} last />
    </div>
  )
}

interface ValueProps {
  node: JsonNode
  depth: number
  name: string | null
  last: boolean
}

function Value({ node, depth, name, last }: ValueProps): JSX.Element {
  const comma = last ? "" : ","
  const key = name === null ? null : <span class="json-key">{name}: </span>
  if (node.kind !== "object" && node.kind !== "array") {
    return (
      <div class="json-line">
        {key}
        <span class={`json-${node.kind}`}>{node.text}</span>
        {comma}
      </div>
    )
  }
  const [open, close] = node.kind === "object" ? ["{", "}"] : ["[", "]"]
  if (!node.values.length) {
    return (
      <div class="json-line">
        {key}
        {open}
        {close}
        {comma}
      </div>
    )
  }
  return <Branch node={node} depth={depth} label={key} open={open!} close={`${close}${comma}`} />
}

function Branch(props: {
  node: Extract<JsonNode, { values: JsonNode[] }>
  depth: number
  label: JSX.Element | null
  open: string
  close: string
}): JSX.Element {
  const { node, depth } = props
  const [isOpen, setOpen] = useState(depth < OPEN_DEPTH && node.values.length <= SHOWN_AT_ONCE)
  const [shown, setShown] = useState(SHOWN_AT_ONCE)
  const rest = node.values.length - shown
  const size = node.kind === "object" ? `${node.values.length} keys` : `${node.values.length} items`
  return (
    <div class="json-branch">
      <button type="button" class="json-fold" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        <span class="json-mark" aria-hidden="true" />
        {props.label}
        {props.open}
        {!isOpen && (
          <>
            <span class="json-size"> {size} </span>
            {props.close}
          </>
        )}
      </button>
      {isOpen && (
        <>
          <div class="json-children">
            {node.values.slice(0, shown).map((value, index) => (
              <Value
                key={index}
                node={value}
                depth={depth + 1}
                name={node.kind === "object" ? node.keys[index]! : null}
                last={index === node.values.length - 1}
              />
            ))}
            {rest > 0 && (
              <button type="button" class="json-more" onClick={() => setShown(shown + SHOWN_AT_ONCE)}>
                {Math.min(rest, SHOWN_AT_ONCE)} more of {rest}
              </button>
            )}
          </div>
          <div class="json-line json-close">{props.close}</div>
        </>
      )}
    </div>
  )
}
