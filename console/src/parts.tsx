// Small parts that several pages use.

import type { ComponentChildren, JSX } from "preact"
import { useEffect, useId, useRef, useState } from "preact/hooks"
import type { ApiError } from "./api"
import { Icon, type IconName } from "./icons"

export function Problem({ error }: { error: ApiError }): JSX.Element {
  return (
    <div class="problem" role="alert">
      <p>
        <strong>{error.code}</strong> {error.message}
      </p>
      {error.isRefusal && (
        <p>
          This needs a credential that permits it. <a href="#/access">Enter one</a>
        </p>
      )}
      {error.requestId && <p class="faint">request {error.requestId}</p>}
    </div>
  )
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }): JSX.Element {
  return (
    <div class="empty">
      <Icon name="streams" />
      <h2>{title}</h2>
      {children}
    </div>
  )
}

export const Loading = (): JSX.Element => (
  <p class="loading" role="status">
    Loading …
  </p>
)

export function Badge({ kind = "", children }: { kind?: string; children: ComponentChildren }): JSX.Element {
  return <span class={`badge ${kind}`}>{children}</span>
}

export function Button({
  icon,
  label,
  kind = "",
  hideLabel = false,
  ...more
}: { icon?: IconName; label: string; kind?: string; hideLabel?: boolean } & Omit<JSX.IntrinsicElements["button"], "label" | "icon">): JSX.Element {
  return (
    <button type="button" class={`button ${kind} ${hideLabel ? "square" : ""}`} {...(hideLabel ? { "aria-label": label, title: label } : {})} {...more}>
      {icon && <Icon name={icon} />}
      {!hideLabel && <span>{label}</span>}
    </button>
  )
}

export function Field({
  label,
  hint,
  children,
}: {
  label: string
  hint?: string | undefined
  children: (id: string) => ComponentChildren
}): JSX.Element {
  const id = useId()
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children(id)}
      {hint && <small>{hint}</small>}
    </div>
  )
}

export function Dialog({
  title,
  onClose,
  children,
}: {
  title: string
  onClose: () => void
  children: ComponentChildren
}): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null)
  const id = useId()
  useEffect(() => dialog.current!.showModal(), [])
  return (
    <dialog ref={dialog} aria-labelledby={id} onClose={onClose}>
      <header>
        <h2 id={id}>{title}</h2>
        <Button icon="close" label="Close" hideLabel kind="quiet" onClick={() => dialog.current!.close()} />
      </header>
      {children}
    </dialog>
  )
}

/** A button that copies a text, and says so. */
export function Copy({ text, label, icon = "copy" }: { text: () => string; label: string; icon?: IconName }): JSX.Element {
  const [copied, setCopied] = useState(false)
  useEffect(() => {
    if (!copied) return undefined
    const timer = setTimeout(() => setCopied(false), 1500)
    return () => clearTimeout(timer)
  }, [copied])
  return (
    <Button
      icon={icon}
      kind="quiet"
      label={copied ? "Copied" : label}
      onClick={() => navigator.clipboard.writeText(text()).then(() => setCopied(true))}
    />
  )
}
