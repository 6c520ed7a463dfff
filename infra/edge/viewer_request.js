import cf from 'cloudfront';
import crypto from 'crypto';

// Runs for every request, before CloudFront looks into its cache. Requests that get the same answer
// leave here as the same request, so that they share one cache entry, or one wait for it.
// The runtime is CloudFront's JavaScript 2.0: ES 5.1 with let, const, arrow functions and async,
// without spread, destructuring, for-of, default arguments or `?.`; at most 10 KB.

// `open` is written here where everybody may do everything: then no credential is looked at.
const ACCESS = 'closed';

const STREAM = '/v1/stream/';
const ALIAS = '/ds/';
const CURSOR = /^[0-9]{1,18}$/;
const READ = ['offset', 'live', 'cursor'];

// Beside reads with live=sse, what has an answer that goes on.
const STREAMED = /^(POST \/api\/v1\/(watch|replay)|(GET|POST) \/events)$/;

// The app ignores these, but CloudFront would act on them: a part of a cached chunk, under the
// headers of the whole chunk, makes a reader skip data.
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
    const streams = request.uri.startsWith(STREAM) || request.uri.startsWith(ALIAS);
    const reads = streams && (request.method === 'GET' || request.method === 'HEAD');
    replaceOwnHeaders(request.headers, event.viewer.ip);
    if (streams) {
        request.querystring = '';
        request.cookies = {};
    }
    if (reads) {
        read(request, given, id);
    }
    if (STREAMED.test(request.method + ' ' + request.uri)) {
        cf.selectRequestOriginById('live');
    }
    if (ACCESS === 'closed' && !(reads && await admit(request, given))) {
        takeAlong(request, streams ? given : {}, reads, id);
    }
    return request;
}

// Nobody but this function and CloudFront says `x-tailrace-...` or names the viewer's host: the
// origin's own Host is that of its function URL, and who connects to it is CloudFront.
function replaceOwnHeaders(headers, ip) {
    remove(headers, Object.keys(headers).filter((name) => name.startsWith('x-tailrace-')));
    headers['x-forwarded-host'] = { value: headers.host.value };
    headers['x-tailrace-viewer'] = { value: ip };
}

function read(request, given, id) {
    const headers = request.headers;
    const live = last(values(given, 'live'));
    const offsets = values(given, 'offset');
    let alone = request.method === 'HEAD';
    if (request.uri.startsWith(ALIAS)) {
        request.uri = STREAM + request.uri.slice(ALIAS.length);
    }
    remove(headers, IGNORED);
    if (request.method === 'GET') {
        request.querystring = canonical(offsets, live, last(values(given, 'cursor')));
        alone = live === 'sse' || (live === '' && offsets[0] === 'now');
        if (live !== '') {
            // Each encoding would wait at the origin for itself, and a 304 for one reader must
            // not be the answer to all who wait with it.
            remove(headers, ['accept-encoding', 'if-none-match']);
        }
        if (live === 'sse') {
            cf.selectRequestOriginById('live');
        }
    }
    if (alone) {
        // A part of the cache key: this answer is for one reader. Others must not wait for it,
        // and HEAD must not be answered from the cached GET of the same URL.
        headers['x-tailrace-reader'] = { value: id };
    }
}

// ACCESS. Who may read, by what this function can verify, leaves the credentials here and shares
// the answer with all others who may. The origin is given a proof instead. Nobody is refused here:
// whatever is not beyond doubt is the origin's to judge, so this is the stricter one of the two.
async function admit(request, given) {
    try {
        const store = cf.kvs();
        const access = await store.get('access', { format: 'json' });
        need(await allows(access, store, request, given));
        remove(request.headers, ['authorization', 'x-signed', 'x-' + access.param]);
        const proof = mac(access.proof, 'edge-token\n' + request.uri, 'hex');
        request.headers['x-tailrace-edge-token'] = { value: proof };
        return true;
    } catch (error) {
        return false;
    }
}

// Credentials in the places where the origin finds them. CloudFront keeps Authorization to itself,
// and of a stream's query passes on only what is part of the cache key.
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

// The rules of `tailrace.auth.authorizer` for reading.
async function allows(access, store, request, given) {
    const headers = request.headers;
    const path = request.uri.slice(STREAM.length);
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

// Patterns that have to be decoded, or with a star elsewhere than at the end, match nothing here.
function matches(patterns, path) {
    return patterns.some((pattern) => {
        const head = pattern.split('*')[0];
        const stars = pattern.slice(head.length);
        return stars === '' ? path === head
            : path.startsWith(head)
                && (stars === '**' || (stars === '*' && path.indexOf('/', head.length) < 0));
    });
}

// What is shown of a kind; none is undefined.
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

// Only in the spelling that is JSON's shortest: no field comes twice, and no number is one that
// others would read differently.
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

// Every key is tried, and every character: how long that takes tells nothing about any of them.
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

// Text, not an object: nothing says in which order CloudFront would write an object's fields.
function canonical(offsets, live, cursor) {
    // The app takes no offset for -1, but on a live read; a repeated one is its to refuse.
    const beginning = live === '' && offsets.length === 1 && offsets[0] === '-1';
    const parts = beginning ? [] : offsets.map((offset) => pair('offset', offset));
    if (live !== '') {
        parts.push(pair('live', live));
    }
    if ((live === 'long-poll' || live === 'sse') && CURSOR.test(cursor)) {
        parts.push(pair('cursor', cursor));
    }
    return parts.join('&');
}

// The values of a parameter, in the order in which they came. CloudFront leaves names and values
// percent-encoded, so that `now` has many spellings.
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
