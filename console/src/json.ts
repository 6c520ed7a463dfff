// JSON as its text: a message is shown byte for byte, so numbers are never converted.

export type JsonNode =
  | { kind: "object"; keys: string[]; values: JsonNode[] }
  | { kind: "array"; values: JsonNode[] }
  | { kind: "string" | "number" | "literal"; text: string }

const QUOTE = 34
const BACKSLASH = 92

/** The index after the string that begins at `at`. */
function stringEnd(text: string, at: number): number {
  for (let index = at + 1; index < text.length; index += 1) {
    const code = text.charCodeAt(index)
    if (code === BACKSLASH) index += 1
    else if (code === QUOTE) return index + 1
  }
  throw new SyntaxError("a string does not end")
}

/** The texts of the elements of a JSON array. */
export function splitArray(array: string): string[] {
  const parts: string[] = []
  let depth = 0
  let begin = -1
  for (let index = 0; index < array.length; index += 1) {
    const code = array.charCodeAt(index)
    if (code === QUOTE) {
      if (begin < 0) begin = index
      index = stringEnd(array, index) - 1
    } else if (code === 91 || code === 123) {
      depth += 1
      if (depth === 2 && begin < 0) begin = index
    } else if (code === 93 || code === 125 || (code === 44 && depth === 1)) {
      if (depth === 1 && begin >= 0) {
        parts.push(array.slice(begin, index).trimEnd())
        begin = -1
      }
      if (code !== 44) depth -= 1
    } else if (begin < 0 && depth === 1 && code > 32) {
      begin = index
    }
  }
  return parts
}

const NUMBER = /-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?/y
const LITERAL = /true|false|null/y
const SPACE = /[ \t\r\n]*/y

/** Parses a text that the server has accepted as JSON. */
export function parseJson(text: string): JsonNode {
  let at = 0
  const match = (pattern: RegExp): string | undefined => {
    pattern.lastIndex = at
    const found = pattern.exec(text)
    if (found) at = pattern.lastIndex
    return found?.[0]
  }
  const expect = (character: string): void => {
    match(SPACE)
    if (text[at] !== character) throw new SyntaxError(`expected ${character} at ${at}`)
    at += 1
  }
  const string = (): string => {
    match(SPACE)
    if (text.charCodeAt(at) !== QUOTE) throw new SyntaxError(`expected a string at ${at}`)
    const begin = at
    at = stringEnd(text, at)
    return text.slice(begin, at)
  }
  const items = (close: string, each: () => void): void => {
    match(SPACE)
    if (text[at] === close) {
      at += 1
      return
    }
    for (;;) {
      each()
      match(SPACE)
      if (text[at] !== ",") break
      at += 1
    }
    expect(close)
  }
  const value = (): JsonNode => {
    match(SPACE)
    const first = text[at]
    if (first === "{") {
      at += 1
      const keys: string[] = []
      const values: JsonNode[] = []
      items("}", () => {
        keys.push(string())
        expect(":")
        values.push(value())
      })
      return { kind: "object", keys, values }
    }
    if (first === "[") {
      at += 1
      const values: JsonNode[] = []
      items("]", () => values.push(value()))
      return { kind: "array", values }
    }
    if (first === '"') return { kind: "string", text: string() }
    const number = match(NUMBER)
    if (number !== undefined) return { kind: "number", text: number }
    const literal = match(LITERAL)
    if (literal !== undefined) return { kind: "literal", text: literal }
    throw new SyntaxError(`no value at ${at}`)
  }
  const node = value()
  match(SPACE)
  if (at < text.length) throw new SyntaxError(`text after the value at ${at}`)
  return node
}
