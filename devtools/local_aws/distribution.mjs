// A CloudFront distribution as its CloudFormation template describes it: the tests run what CDK wrote.

const MANAGED = {
  // CachingDisabled
  "4135ea2d-6df8-44a3-9df3-4b5a84be39ad": { MinTTL: 0, DefaultTTL: 0, MaxTTL: 0 },
  // CachingOptimized
  "658327ea-f89d-4fab-a63d-7e88639e58f6": {
    MinTTL: 1,
    DefaultTTL: 86_400,
    MaxTTL: 31_536_000,
    ParametersInCacheKeyAndForwardedToOrigin: { EnableAcceptEncodingBrotli: true, EnableAcceptEncodingGzip: true },
  },
  // AllViewer
  "216adef6-5c7f-47e4-b989-5492eafa07d3": {
    HeadersConfig: { HeaderBehavior: "allViewer" },
    CookiesConfig: { CookieBehavior: "all" },
    QueryStringsConfig: { QueryStringBehavior: "all" },
  },
  // AllViewerExceptHostHeader
  "b689b0a8-53d0-40ab-baf2-68738e2966ac": {
    HeadersConfig: { HeaderBehavior: "allExcept", Headers: ["host"] },
    CookiesConfig: { CookieBehavior: "all" },
    QueryStringsConfig: { QueryStringBehavior: "all" },
  },
}

/** CloudFront's own, where a template says nothing. */
const READ_SECONDS = 30
const CACHEABLE = ["GET", "HEAD"]

/**
 * `{ behaviours, origins, errors }`: the behaviours in the order in which they are tried; origins by
 * id, at the addresses in `places`; the least seconds for which each error status is cached.
 */
export function readDistribution(template, places) {
  const resources = template.Resources
  const ids = Object.keys(resources).filter((id) => resources[id].Type === "AWS::CloudFront::Distribution")
  if (ids.length !== 1) throw new Error(`the template has ${ids.length} distributions, not one`)
  const config = resources[ids[0]].Properties.DistributionConfig
  const all = [...(config.CacheBehaviors ?? []), { ...config.DefaultCacheBehavior, PathPattern: "*" }]
  return {
    behaviours: all.map((behaviour) => readBehaviour(behaviour, resources)),
    origins: new Map(config.Origins.map((origin) => [origin.Id, readOrigin(origin, places)])),
    errors: new Map(
      (config.CustomErrorResponses ?? []).map((each) => [each.ErrorCode, each.ErrorCachingMinTTL ?? 10]),
    ),
  }
}

function readBehaviour(behaviour, resources) {
  const policy = (id, config) => {
    if (id === undefined) return {}
    const name = named(id)
    const found = resources[name]?.Properties[config] ?? MANAGED[name]
    if (found === undefined) throw new Error(`there is no policy ${JSON.stringify(id)}`)
    return found
  }
  const cache = policy(behaviour.CachePolicyId, "CachePolicyConfig")
  const forward = policy(behaviour.OriginRequestPolicyId, "OriginRequestPolicyConfig")
  const key = cache.ParametersInCacheKeyAndForwardedToOrigin ?? {}
  const functionFor = (type) => {
    const found = behaviour.FunctionAssociations?.find((each) => each.EventType === type)
    return found && resources[named(found.FunctionARN)].Properties
  }
  const viewerRequest = functionFor("viewer-request")
  return {
    matches: matcher(behaviour.PathPattern),
    origin: behaviour.TargetOriginId,
    methods: behaviour.AllowedMethods ?? CACHEABLE,
    compress: behaviour.Compress ?? false,
    code: viewerRequest?.FunctionCode,
    responseCode: functionFor("viewer-response")?.FunctionCode,
    hasStore: Boolean(viewerRequest?.FunctionConfig?.KeyValueStoreAssociations?.length),
    responseHeaders: policy(behaviour.ResponseHeadersPolicyId, "ResponseHeadersPolicyConfig"),
    ttl: { min: cache.MinTTL ?? 0, standard: cache.DefaultTTL ?? 86_400, max: cache.MaxTTL ?? 31_536_000 },
    key: {
      query: selection(key.QueryStringsConfig, "QueryString"),
      headers: selection(key.HeadersConfig, "Header"),
      cookies: selection(key.CookiesConfig, "Cookie"),
      encodings: [key.EnableAcceptEncodingBrotli && "br", key.EnableAcceptEncodingGzip && "gzip"].filter(Boolean),
    },
    forward: {
      query: selection(forward.QueryStringsConfig, "QueryString"),
      headers: selection(forward.HeadersConfig, "Header"),
      cookies: selection(forward.CookiesConfig, "Cookie"),
    },
  }
}

/** Which names a part of a policy stands for, as `(name) => boolean`; `none` when there are none. */
function selection(config, what) {
  const behaviour = config?.[`${what}Behavior`] ?? "none"
  const list = config?.[`${what}s`] ?? []
  const fold = (name) => (what === "Header" ? name.toLowerCase() : name)
  const listed = new Set((list.Items ?? list).map(fold))
  switch (behaviour) {
    case "none":
      return none
    case "whitelist":
      return (name) => listed.has(fold(name))
    case "allExcept":
      return (name) => !listed.has(fold(name))
    case "all":
    case "allViewer":
      return () => true
    default:
      throw new Error(`${behaviour} is not part of this stand-in`)
  }
}

export const none = () => false

function readOrigin(origin, places) {
  const place = places[origin.Id]
  if (place === undefined) throw new Error(`nobody said where the origin ${origin.Id} is`)
  const headers = new Map()
  for (const { HeaderName, HeaderValue } of origin.OriginCustomHeaders ?? []) {
    headers.set(HeaderName.toLowerCase(), HeaderValue)
  }
  for (const [name, value] of Object.entries(place.headers ?? {})) headers.set(name.toLowerCase(), value)
  for (const [name, value] of headers) {
    if (typeof value !== "string" || value.includes("{{resolve:")) {
      throw new Error(`the value of ${name} for the origin ${origin.Id} is not in the template: give it`)
    }
  }
  return {
    host: place.host ?? "127.0.0.1",
    port: place.port,
    prefix: place.prefix ?? "",
    headers,
    readSeconds: (origin.CustomOriginConfig ?? origin.VpcOriginConfig)?.OriginReadTimeout ?? READ_SECONDS,
  }
}

function matcher(pattern) {
  const parts = pattern.replace(/^\/?/, "/").split(/([*?])/)
  const source = parts.map((part) => ({ "*": ".*", "?": "." })[part] ?? part.replace(/[\\^$.|+()[\]{}]/g, "\\$&"))
  const expression = new RegExp(`^${source.join("")}$`, "s")
  return (path) => pattern === "*" || expression.test(path)
}

/** The logical id behind a reference. */
function named(value) {
  if (typeof value === "string") return value
  const attribute = value.Ref ?? value["Fn::GetAtt"]
  return Array.isArray(attribute) ? attribute[0] : attribute?.split(".")[0]
}
