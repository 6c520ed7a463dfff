import type { JSX } from "preact"
import { useEffect, useState } from "preact/hooks"
import { currentCredential, health, onCredentialChange } from "./api"
import { useLoaded } from "./hooks"
import { Icon, type IconName } from "./icons"
import { AccessPage } from "./pages/access"
import { AvisoPage } from "./pages/aviso"
import { CablesPage } from "./pages/cables"
import { StreamPage } from "./pages/stream"
import { StreamsPage } from "./pages/streams"
import { SubscriptionsPage } from "./pages/subscriptions"
import { Button } from "./parts"
import { useRoute, type Route } from "./router"

const PAGES: { page: string; name: string; icon: IconName }[] = [
  { page: "streams", name: "Streams", icon: "streams" },
  { page: "cables", name: "Cables", icon: "cables" },
  { page: "aviso", name: "Aviso", icon: "aviso" },
  { page: "subscriptions", name: "Subscriptions", icon: "subscriptions" },
  { page: "access", name: "Access", icon: "access" },
]

const THEMES = ["auto", "light", "dark"] as const
type Theme = (typeof THEMES)[number]
const ICONS: Record<Theme, IconName> = { auto: "auto", light: "sun", dark: "moon" }

function useTheme(): [Theme, () => void] {
  const [theme, setTheme] = useState<Theme>(() => (localStorage.getItem("tailrace.theme") as Theme | null) ?? "auto")
  useEffect(() => {
    document.documentElement.dataset.theme = theme
    if (theme === "auto") localStorage.removeItem("tailrace.theme")
    else localStorage.setItem("tailrace.theme", theme)
  }, [theme])
  return [theme, () => setTheme(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]!)]
}

export function App(): JSX.Element {
  const route = useRoute()
  const [theme, nextTheme] = useTheme()
  const [generation, setGeneration] = useState(0)
  useEffect(() => onCredentialChange(() => setGeneration((before) => before + 1)), [])
  const current = route.page === "stream" ? "streams" : route.page
  useEffect(() => {
    const name = route.page === "stream" ? decode(route.path) : PAGES.find(({ page }) => page === current)?.name
    document.title = name ? `${name} · Tailrace` : "Tailrace"
  }, [route])
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      const typing = (event.target as HTMLElement).matches("input, textarea, select")
      if (event.key === "/" && !typing) {
        document.querySelector<HTMLInputElement>("[data-search]")?.focus()
        event.preventDefault()
      }
    }
    addEventListener("keydown", onKey)
    return () => removeEventListener("keydown", onKey)
  }, [])
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")!.focus() }}>
        To the content
      </a>
      <div class="app">
        <header class="side">
          <a class="brand" href="#/streams" aria-label="Tailrace">
            <Icon name="streams" />
            <span>Tailrace</span>
          </a>
          <nav aria-label="Pages">
            {PAGES.map(({ page, name, icon }) => (
              <a key={page} href={`#/${page}`} {...(page === current ? { "aria-current": "page" as const } : {})}>
                <Icon name={icon} />
                <span>{name}</span>
              </a>
            ))}
          </nav>
          <div class="side-end">
            <Signed />
            <a class="side-link" href="/docs">
              <Icon name="docs" />
              <span>Documentation</span>
            </a>
            <div class="side-foot">
              <Version />
              <Button icon={ICONS[theme]} kind="quiet" hideLabel label={`Theme: ${theme}`} onClick={nextTheme} />
            </div>
          </div>
        </header>
        <main id="main" tabIndex={-1}>
          <Page key={generation} route={route} />
        </main>
      </div>
    </>
  )
}

function Page({ route }: { route: Route }): JSX.Element {
  switch (route.page) {
    case "stream":
      return <StreamPage key={route.path} path={route.path} query={route.query} />
    case "cables":
      return <CablesPage />
    case "aviso":
      return <AvisoPage />
    case "subscriptions":
      return <SubscriptionsPage id={decode(route.path)} />
    case "access":
      return <AccessPage />
    default:
      return <StreamsPage query={route.query} />
  }
}

const Signed = (): JSX.Element | null =>
  currentCredential() && (
    <a class="side-link" href="#/access">
      <Icon name="lock" />
      <span>{currentCredential()!.kind === "bearer" ? "Token in use" : "Signed name in use"}</span>
    </a>
  )

function Version(): JSX.Element {
  const { value, error } = useLoaded(health, [], 30)
  if (error) return <span class="offline">Server offline</span>
  return <span class="faint">{value ? `Version ${value.version}` : " "}</span>
}

export function decode(path: string): string {
  try {
    return decodeURIComponent(path)
  } catch {
    return path
  }
}
