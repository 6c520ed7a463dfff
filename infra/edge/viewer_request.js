import cf from 'cloudfront';
import crypto from 'crypto';

// Runs for every request, before the cache lookup. It makes requests that get the same response
// identical, so that they share one cache entry, or one pending request to the origin.
// The runtime is CloudFront's JavaScript 2.0: ES 5.1 with let, const, arrow functions and async,
// without spread, destructuring, for-of, default arguments or `?.`; at most 10 KB.
// `viewer_response.js` runs for the responses.

// A deployment with `access=open` has `open` here, and then no credentials are verified.
const ACCESS = 'closed';

const STREAMS = '/v1/stream/';
// The second mount, where a stream that does not exist yet reads as empty; a deployment replaces
// this with its own, or with '' if it has none.
const SECOND = '/ds/';
const MANY = '/v1/read';

// How long a long-poll waits, in seconds: the length of the intervals that cache keys name. A
// deployment replaces it. Cursors of readers count intervals of 20 s.
const WAIT = 20;
const EPOCH = 1728432000;
const CURSOR = /^[0-9]{1,15}$/;
const TOKEN = /^[0-9]{16}_[0-9]{16}$/;
// The live reads whose readers share responses; a deployment with `sse=shared` adds `sse`.
const SHARED = ['long-poll'];
const STARTS = ['offset', 'last', 'since'];
const READ = STARTS.concat(['live', 'cursor']);

// Requests for the origin `live` other than reads with live=sse: responses that stream. A deployment
// with containers has more, and another name for this origin and for `wait`.
const STREAMED = /^(POST \/api\/v1\/(watch|replay)|(GET|POST) \/events)$/;

// The app ignores these, but CloudFront would act on them: a part of a cached chunk with the
// headers of the whole chunk would make a reader skip data.
const IGNORED = ['range', 'if-range', 'if-match', 'if-modified-since', 'if-unmodified-since'];

const PATH = /^[A-Za-z0-9_~!$&'()*+,;=:@-]+([./][A-Za-z0-9_~!$&'()*+,;=:@-]+)*$/;
const BEARER = /^bearer ([!-~]+)$/i;
const SIGNED = /^([A-Za-z0-9+/]+={0,2})--([0-9a-f]{64})$/;
const JWS = /^(([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+))\.([A-Za-z0-9_-]+)$/;
const FIELDS = ['alg', 'typ', 'kid'];
const TOKEN_BYTES = 8192;
const PATH_BYTES = 1024;
const SKEW = 30;

async function handler(event) {
    const request = event.request;
    const given = request.querystring;
    const id = event.context.requestId;
    const mount = mountOf(request.uri);
    const reads = mount && (request.method === 'GET' || request.method === 'HEAD');
    const live = last(values(given, 'live')).replace(/^false$/, '');
    replaceOwnHeaders(request.headers, event.viewer.ip);
    if (mount) {
        request.querystring = '';
        request.cookies = {};
    }
    if (mount && request.uri.startsWith(mount + '__ds/')) {
        // Subscriptions: only their public keys are shared, and the origin checks credentials.
        const keys = request.method === 'GET' && request.uri === mount + '__ds/jwks.json';
        takeAlong(request, given, !keys, id);
        return request;
    }
    if (reads) {
        read(request, given, mount, live, id);
    }
    const follows = request.method === 'GET' && (mount || request.uri === MANY);
    if (STREAMED.test(request.method + ' ' + request.uri) || (follows && live === 'sse')) {
        cf.selectRequestOriginById('live');
    } else if (follows && live === 'long-poll') {
        cf.selectRequestOriginById('wait');
    }
    if (ACCESS === 'closed' && !(reads && await admit(request, mount, given))) {
        takeAlong(request, mount ? given : {}, reads, id);
    }
    return request;
}

function mountOf(uri) {
    return [STREAMS, SECOND].filter((mount) => mount && uri.startsWith(mount))[0];
}

// Only this function and CloudFront may set `x-tailrace-...` and `x-forwarded-host`. The origin needs
// them because its Host is that of its function URL, and its peer is CloudFront.
function replaceOwnHeaders(headers, ip) {
    remove(headers, Object.keys(headers).filter((name) => name.startsWith('x-tailrace-')));
    headers['x-forwarded-host'] = { value: headers.host.value };
    headers['x-tailrace-viewer'] = { value: ip };
}

function read(request, given, mount, live, id) {
    const headers = request.headers;
    let alone = request.method === 'HEAD';
    remove(headers, IGNORED);
    if (request.method === 'GET') {
        const starts = startsOf(headers, given, mount, live);
        const held = last(values(given, 'cursor'));
        let cursor = CURSOR.test(held) ? held : '';
        const shared = SHARED.indexOf(live) >= 0;
        if (shared) {
            // Not in the cache key, and not forwarded: it is for the viewer-response function.
            headers['x-tailrace-cursor'] = { value: cursor || '0' };
            cursor = sharedCursor(cursor);
        }
        request.querystring = canonical(starts, live, cursor);
        alone = (live === 'sse' && !shared) || (live === '' && starts[0] === 'offset=now')
            || starts.some((start) => !start.startsWith('offset='));
        if (live !== '') {
            // Otherwise each encoding would have its own request to the origin, and a 304 meant
            // for one reader would be the response to all that share its request.
            remove(headers, ['accept-encoding', 'if-none-match']);
        }
    }
    if (alone) {
        // Part of the cache key: this response is for one reader. Others must not wait for it,
        // and a HEAD must not get the cached response of a GET for the same URL.
        headers['x-tailrace-reader'] = { value: id };
    }
}

// The cursor in the cache key. Readers that came at different times hold different cursors, but here
// it only counts whether one is ahead of the time. So all that wait share one of two requests, and
// none meets the 204 that it has just got: that took WAIT, and so the interval is another one.
function sharedCursor(held) {
    const now = Date.now() / 1000 - EPOCH;
    return String(Math.floor(now / WAIT) + (Number(held) > Math.floor(now / 20) ? 1 : 0));
}

// Where a read begins, as parameters in one spelling. The app refuses more than one.
function startsOf(headers, given, mount, live) {
    const eventId = headers['last-event-id'];
    if (live === 'sse' && eventId && !eventId.multiValue && TOKEN.test(eventId.value)) {
        // The last event that the client got, so it is newer than what the URL says.
        return [pair('offset', eventId.value)];
    }
    const starts = [];
    STARTS.forEach((name) => values(given, name).forEach((value) => {
        const beginning = name === 'offset' && mount === SECOND && /^0?$/.test(value);
        starts.push(pair(name, beginning ? '-1' : value));
    }));
    return starts;
}

// ACCESS. If this function can verify that the client may read the stream, it replaces the
// credentials by an edge token, so that all authorized readers share one response. It refuses no
// request: the origin decides whatever is not certain here, so these rules are the stricter ones.
async function admit(request, mount, given) {
    try {
        const store = cf.kvs();
        const access = await store.get('access', { format: 'json' });
        need(await allows(access, store, request, mount, given));
        remove(request.headers, ['authorization', 'x-signed', 'x-' + access.param]);
        const proof = mac(access.proof, 'edge-token\n' + request.uri, 'hex');
        request.headers['x-tailrace-edge-token'] = { value: proof };
        return true;
    } catch (error) {
        return false;
    }
}

// Moves credentials to headers that reach the origin: CloudFront does not forward Authorization, and
// of a stream's query it forwards only what is in the cache key.
function takeAlong(request, given, reads, id) {
    const headers = request.headers;
    const query = Object.keys(given).map(decoded).filter((name) => READ.indexOf(name) < 0)
        .map((name) => values(given, name).map((value) => pair(name, value)).join('&'));
    if (query.length) {
        headers['x-tailrace-query'] = { value: query.join('&') };
    }
    if (headers.authorization) {
        headers['x-tailrace-authorization'] = headers.authorization;
        delete headers.authorization;
    }
    if (reads) {
        headers['x-tailrace-reader'] = { value: id };
    }
}

// The rules of `tailrace.auth.authorizer` for reads.
async function allows(access, store, request, mount, given) {
    const headers = request.headers;
    const path = request.uri.slice(mount.length);
    need(path.length <= PATH_BYTES && PATH.test(path) && path.split('/')[0] !== '__ds');
    const bearer = one(headers.authorization, []);
    const signed = one(headers['x-signed'], values(given, 'signed'));
    const jid = one(headers['x-' + access.param], values(given, access.param));
    const now = Date.now() / 1000;
    let identified = false;
    let allowed = false;
    if (signed !== undefined) {
        need(nameIn(signed, access.signed) === path);
        allowed = true;
    }
    if (jid !== undefined && access.identify) {
        identify(claimsIn(jid, access.tokens), now);
        identified = true;
    }
    if (bearer !== undefined) {
        need(access.bearer);
        const claims = claimsIn(BEARER.exec(bearer)[1], access.tokens);
        allowed = grants(claims, access, path, now) || allowed;
        identified = true;
    }
    need(identified || !access.enforce);
    return allowed || (access.public && matches((await store.get('public')).split(' '), path));
}

function grants(claims, access, path, now) {
    const audiences = list(claims.aud, []);
    need(access.audience ? audiences.indexOf(access.audience) >= 0 : audiences.length === 0);
    need((claims.iss === undefined ? '' : claims.iss) === access.issuer);
    need(claims.sub === undefined || typeof claims.sub === 'string');
    need(whole(claims.exp) > now && claims.exp <= now + access.age);
    [claims.nbf, claims.iat].forEach((time) => need(time === undefined || whole(time) <= now + SKEW));
    const scopes = claims.scope === undefined ? [] : claims.scope.split(' ');
    const admin = scopes.indexOf('admin') >= 0;
    const streams = list(claims.streams, admin ? ['**'] : []);
    return (admin || scopes.indexOf('read') >= 0) && matches(streams, path);
}

function identify(claims, now) {
    need(claims.exp === undefined || whole(claims.exp) > now);
    need(claims.nbf === undefined || whole(claims.nbf) <= now);
    need(typeof claims.ext === 'string');
}

// Patterns that need decoding, or have a star before their end, match nothing here.
function matches(patterns, path) {
    return patterns.some((pattern) => {
        const head = pattern.split('*')[0];
        const stars = pattern.slice(head.length);
        return stars === '' ? path === head
            : path.startsWith(head)
                && (stars === '**' || (stars === '*' && path.indexOf('/', head.length) < 0));
    });
}

// The only credential of its kind, or undefined.
function one(field, inQuery) {
    const inHeader = field === undefined ? [] : [field.value];
    const shown = inHeader.concat(inQuery).filter((value) => value !== '');
    need(inQuery.length < 2 && !(field && field.multiValue));
    need(shown.length < 2 || shown[0] === shown[1]);
    return shown[0];
}

function nameIn(token, keys) {
    const parts = SIGNED.exec(token);
    need(token.length <= TOKEN_BYTES && parts[1].length % 4 === 0);
    need(verifies(parts[1], parts[2], keys, 'hex'));
    return JSON.parse(ascii(parts[1]));
}

function claimsIn(token, keys) {
    const parts = JWS.exec(token);
    need(token.length <= TOKEN_BYTES);
    const header = objectIn(parts[2]);
    need(header.alg === 'HS256' && Object.keys(header).every((name) => FIELDS.indexOf(name) >= 0));
    need(verifies(parts[1], parts[4], keys, 'base64url'));
    return objectIn(parts[3]);
}

// Accepts only the shortest form of JSON: it has no duplicate fields, and no numbers that other
// parsers would read differently.
function objectIn(segment) {
    need(segment.length % 4 !== 1);
    const padding = '==='.slice((segment.length + 3) % 4);
    const text = ascii(segment.replace(/-/g, '+').replace(/_/g, '/') + padding);
    const value = JSON.parse(text);
    need(text[0] === '{' && JSON.stringify(value) === text);
    return value;
}

function ascii(encoded) {
    const text = atob(encoded);
    need(/^[ -~]*$/.test(text));
    return text;
}

// Compares with every key, and every character, so that the time taken reveals nothing about them.
function verifies(text, shown, keys, encoding) {
    return keys.filter((key) => same(mac(key, text, encoding), shown)).length > 0;
}

function mac(key, text, encoding) {
    return crypto.createHmac('sha256', key).update(text).digest(encoding);
}

function same(made, shown) {
    let difference = made.length ^ shown.length;
    made.split('').forEach((_, at) => {
        difference |= made.charCodeAt(at) ^ shown.charCodeAt(at);
    });
    return difference === 0;
}

function list(value, otherwise) {
    const found = value === undefined ? otherwise : typeof value === 'string' ? [value] : value;
    need(Array.isArray(found) && found.every((each) => typeof each === 'string'));
    return found;
}

function whole(time) {
    need(typeof time === 'number' && Math.floor(time) === time);
    return time;
}

function need(holds) {
    if (!holds) {
        throw new Error('cannot tell');
    }
}

// Text, not an object: CloudFront does not document in which order it would write fields.
function canonical(starts, live, cursor) {
    // To the app no offset means -1, except on live reads.
    const parts = live === '' && starts.join('&') === 'offset=-1' ? [] : starts.slice();
    if (live !== '') {
        parts.push(pair('live', live));
    }
    if ((live === 'long-poll' || live === 'sse') && cursor !== '') {
        parts.push(pair('cursor', cursor));
    }
    return parts.join('&');
}

// The values of a parameter, in order. CloudFront leaves names and values percent-encoded, so `now`
// may be spelled in many ways.
function values(querystring, name) {
    const found = [];
    Object.keys(querystring).filter((key) => decoded(key) === name).forEach((key) => {
        const field = querystring[key];
        (field.multiValue || [field]).forEach((each) => found.push(decoded(each.value)));
    });
    return found;
}

function decoded(text) {
    try {
        return decodeURIComponent(text.replace(/\+/g, ' '));
    } catch (error) {
        return text;
    }
}

function pair(name, value) {
    return encodeURIComponent(name) + '=' + encodeURIComponent(value);
}

function last(found) {
    return found.length ? found[found.length - 1] : '';
}

function remove(headers, names) {
    names.forEach((name) => delete headers[name]);
}
