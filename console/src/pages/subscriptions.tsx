import type { JSX } from "preact"
import { getSubscription, listSubscriptions, type Subscription } from "../api"
import { ago, moment, seconds } from "../format"
import { useLoaded, useTick } from "../hooks"
import { Badge, Empty, Loading, Problem } from "../parts"
import { streamLink } from "../router"

export function SubscriptionsPage({ id }: { id: string }): JSX.Element {
  useTick(1000)
  return id ? <One id={id} /> : <All />
}

function All(): JSX.Element {
  const { value, error } = useLoaded(listSubscriptions, [], 3)
  const absent = error && [400, 404].includes(error.status)
  return (
    <div class="page">
      <header class="head">
        <h1>Subscriptions</h1>
        <p class="lead">Workers that are woken when a stream has something new for them.</p>
      </header>
      {absent && (
        <Empty title="No subscriptions here">
          <p>This server does not serve them.</p>
        </Empty>
      )}
      {error && !absent && <Problem error={error} />}
      {!value && !error && <Loading />}
      {value && !value.subscriptions.length && (
        <Empty title="No subscriptions yet">
          <p>
            They are created at <code>/v1/stream/__ds/subscriptions</code>.
          </p>
        </Empty>
      )}
      {value && value.subscriptions.length > 0 && (
        <table>
          <thead>
            <tr>
              <th scope="col">Subscription</th>
              <th scope="col">Streams</th>
              <th scope="col">State</th>
              <th scope="col" class="number">
                Lease
              </th>
              <th scope="col" class="number">
                Created
              </th>
            </tr>
          </thead>
          <tbody>
            {value.subscriptions.map((each) => (
              <tr key={each.id}>
                <th scope="row">
                  <a href={`#/subscriptions/${encodeURIComponent(each.id)}`}>{each.id}</a> <Badge>{each.type}</Badge>
                </th>
                <td>{each.pattern ? <code>{each.pattern}</code> : <span class="faint">named ones</span>}</td>
                <td>
                  <Badge kind={each.status === "failed" ? "closed" : "json"}>{each.status}</Badge>
                </td>
                <td class="number">{seconds(each.lease_ttl_ms / 1000)}</td>
                <td class="number">{ago(each.created_at)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </div>
  )
}

const SHOWN = ["streams", "webhook", "id", "subscription_id", "created_at", "lease_ttl_ms", "status", "type"]

function One({ id }: { id: string }): JSX.Element {
  const { value, error } = useLoaded(() => getSubscription(id), [id], 3)
  return (
    <div class="page">
      <header class="head">
        <div class="title">
          <nav aria-label="Pages above" class="crumbs">
            <a href="#/subscriptions">Subscriptions</a>
          </nav>
          <h1>{id}</h1>
        </div>
      </header>
      {error && <Problem error={error} />}
      {!value && !error && <Loading />}
      {value && <Card subscription={value} />}
    </div>
  )
}

function Card({ subscription }: { subscription: Subscription }): JSX.Element {
  // What a newer server adds, such as leases and retries, is shown by its own names.
  const more = Object.entries(subscription).filter(([name]) => !SHOWN.includes(name))
  return (
    <div class="details">
      <section class="card">
        <h2>State</h2>
        <dl>
          <div>
            <dt>Type</dt>
            <dd>{subscription.type}</dd>
          </div>
          <div>
            <dt>Status</dt>
            <dd>
              <Badge kind={subscription.status === "failed" ? "closed" : "json"}>{subscription.status}</Badge>
              {subscription.status === "failed" && " the webhook failed, and is tried again"}
            </dd>
          </div>
          <div>
            <dt>Lease</dt>
            <dd>{seconds(subscription.lease_ttl_ms / 1000)}</dd>
          </div>
          <div>
            <dt>Created</dt>
            <dd>{moment(subscription.created_at)}</dd>
          </div>
          {subscription.webhook && (
            <div>
              <dt>Webhook</dt>
              <dd>
                <code>{subscription.webhook.url}</code>
              </dd>
            </div>
          )}
          {more.map(([name, value]) => (
            <div key={name}>
              <dt>{name.replaceAll("_", " ")}</dt>
              <dd>{typeof value === "object" ? <code>{JSON.stringify(value)}</code> : String(value)}</dd>
            </div>
          ))}
        </dl>
      </section>
      <section class="card">
        <h2>Streams</h2>
        <table>
          <thead>
            <tr>
              <th scope="col">Stream</th>
              <th scope="col">Link</th>
              <th scope="col">Acknowledged</th>
            </tr>
          </thead>
          <tbody>
            {(subscription.streams ?? []).map((link) => (
              <tr key={`${link.path} ${link.link_type}`}>
                <th scope="row">
                  <a href={streamLink(link.path)}>{link.path}</a>
                </th>
                <td>{link.link_type}</td>
                <td>
                  <code>{link.acked_offset}</code>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </div>
  )
}
