// The messages of a stream that the page holds, as rows of one height.

import { splitArray } from "./json"

export type Mode = "json" | "text" | "binary"

export interface Row {
  /** The number of the message; of text and binary data the byte at which the row begins. */
  at: number
  text: string
  /** Of binary data only. */
  bytes?: Uint8Array<ArrayBuffer>
  size: number
  /** The offset from which a read gets this row, with others before it perhaps; empty: unknown. */
  from: string
  /** When it came, if it came live. */
  seen: number
}

/** Rows that are kept; older ones can be loaded again. */
export const MOST_ROWS = 200_000
const DROPPED_AT_ONCE = 20_000
const HEX_BYTES = 16

export const modeOf = (contentType: string): Mode => {
  const type = contentType.split(";")[0]!.trim().toLowerCase()
  if (type === "application/json") return "json"
  return type.startsWith("text/") ? "text" : "binary"
}

/** How much data lies before the position of an offset: messages, or bytes. */
export const lengthAt = (offset: string): number => Number(offset.split("_")[1] ?? 0)

const encoder = new TextEncoder()

/** The length of a text in UTF-8. */
export function byteLength(text: string): number {
  let length = text.length
  for (let index = 0; index < text.length; index += 1) {
    const code = text.charCodeAt(index)
    if (code > 0x7f) length += code > 0x7ff && (code < 0xd800 || code > 0xdfff) ? 2 : 1
  }
  return length
}

export class MessageLog {
  rows: Row[] = []
  /** How many rows were dropped at the beginning. */
  dropped = 0
  received = 0
  receivedBytes = 0
  private previous: string

  constructor(
    readonly mode: Mode,
    start: string,
  ) {
    this.previous = start
  }

  /** Adds the data of a batch, which ends at an offset. */
  push(data: string[], next: string, isBase64: boolean, seen: number): void {
    if (data.length) {
      const end = lengthAt(next)
      if (this.mode === "json") this.pushJson(data, end, seen)
      else if (this.mode === "text" && !isBase64) this.pushText(data.join(""), end, seen)
      else this.pushBytes(data, end, isBase64, seen)
      if (this.rows.length > MOST_ROWS) {
        const surplus = this.rows.length - MOST_ROWS + DROPPED_AT_ONCE
        this.rows.splice(0, surplus)
        this.dropped += surplus
      }
    }
    this.previous = next
  }

  private pushJson(data: string[], end: number, seen: number): void {
    const texts = data.flatMap(splitArray)
    let at = end - texts.length
    for (const text of texts) {
      const size = byteLength(text)
      this.rows.push({ at, text, size, from: this.previous, seen })
      this.receivedBytes += size
      at += 1
    }
    this.received += texts.length
  }

  private pushText(text: string, end: number, seen: number): void {
    const total = byteLength(text)
    this.receivedBytes += total
    let at = end - total
    const lines = text.split("\n")
    lines.forEach((line, index) => {
      const size = byteLength(line) + (index < lines.length - 1 ? 1 : 0)
      const last = this.rows.at(-1)
      if (index === 0 && last && !this.endsLine) {
        // The line of which the beginning came before.
        this.rows[this.rows.length - 1] = { ...last, text: last.text + line, size: last.size + size, seen }
      } else if (size) {
        this.rows.push({ at, text: line, size, from: this.previous, seen })
        this.received += 1
      }
      at += size
    })
    this.endsLine = text.endsWith("\n")
  }

  private endsLine = true

  private pushBytes(data: string[], end: number, isBase64: boolean, seen: number): void {
    const parts = data.map((each) => (isBase64 ? decodeBase64(each) : encoder.encode(each)))
    const total = parts.reduce((sum, each) => sum + each.length, 0)
    this.receivedBytes += total
    let at = end - total
    for (const part of parts) {
      for (let begin = 0; begin < part.length; ) {
        const last = this.rows.at(-1)
        const room = last?.bytes && last.at + last.size === at ? HEX_BYTES - last.size : 0
        const piece = part.slice(begin, begin + (room > 0 ? room : HEX_BYTES))
        if (last?.bytes && room > 0) {
          const bytes = new Uint8Array(last.size + piece.length)
          bytes.set(last.bytes)
          bytes.set(piece, last.size)
          this.rows[this.rows.length - 1] = { ...last, bytes, text: printable(bytes), size: bytes.length, seen }
        } else {
          this.rows.push({ at, text: printable(piece), bytes: piece, size: piece.length, from: this.previous, seen })
          this.received += 1
        }
        begin += piece.length
        at += piece.length
      }
    }
  }
}

function decodeBase64(text: string): Uint8Array<ArrayBuffer> {
  const binary = atob(text.replace(/\s/g, ""))
  const bytes = new Uint8Array(binary.length)
  for (let index = 0; index < binary.length; index += 1) bytes[index] = binary.charCodeAt(index)
  return bytes
}

export const printable = (bytes: Uint8Array): string =>
  Array.from(bytes, (byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : "·")).join("")

export const hex = (bytes: Uint8Array): string =>
  Array.from(bytes, (byte, index) => byte.toString(16).padStart(2, "0") + (index === 7 ? " " : "")).join(" ")

/** Any data as a dump with offsets. */
export function hexDump(bytes: Uint8Array, begin: number, most = 4096): string {
  const lines: string[] = []
  for (let at = 0; at < Math.min(bytes.length, most); at += HEX_BYTES) {
    const piece = bytes.subarray(at, at + HEX_BYTES)
    lines.push(`${(begin + at).toString(16).padStart(8, "0")}  ${hex(piece).padEnd(48)}  ${printable(piece)}`)
  }
  if (bytes.length > most) lines.push(`… ${bytes.length - most} more bytes`)
  return lines.join("\n")
}
