// How numbers, sizes and times are shown.

const COUNT = new Intl.NumberFormat("en")
const UNITS = ["B", "kB", "MB", "GB", "TB"]

export const count = (value: number): string => COUNT.format(value)

export function bytes(value: number): string {
  let unit = 0
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000
    unit += 1
  }
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`
}

/** One as a word in the singular, others in the plural. */
export const plural = (value: number, word: string): string => `${count(value)} ${word}${value === 1 ? "" : "s"}`

export function seconds(value: number): string {
  const [size, unit] = ([[86_400, "d"], [3_600, "h"], [60, "min"], [1, "s"]] as const).find(([each]) => value >= each) ?? [1, "s"]
  return `${Math.round(value / size)} ${unit}`
}

export function ago(instant: string, now = Date.now()): string {
  const passed = (now - Date.parse(instant)) / 1000
  return passed < 1 ? "now" : passed < 0 ? `in ${seconds(-passed)}` : `${seconds(passed)} ago`
}

export const moment = (instant: string): string =>
  new Date(instant).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" })

export const clock = (milliseconds: number): string => {
  const time = new Date(milliseconds)
  return `${time.toLocaleTimeString("en-GB")}.${String(time.getMilliseconds()).padStart(3, "0")}`
}
