import cf from 'cloudfront';

// Runs for every request, before CloudFront looks into its cache. Requests that get the same answer
// leave here as the same request, so that they share one cache entry, or one wait for it.
// The runtime is CloudFront's JavaScript 2.0: ES 5.1 with let, const, arrow functions and async,
// without spread, destructuring, for-of, default arguments or `?.`; at most 10 KB.

const STREAM = '/v1/stream/';
const ALIAS = '/ds/';
const CURSOR = /^[0-9]{1,18}$/;

// The app ignores these, but CloudFront would act on them: a part of a cached chunk, under the
// headers of the whole chunk, makes a reader skip data.
const IGNORED = ['range', 'if-range', 'if-match', 'if-modified-since', 'if-unmodified-since'];

async function handler(event) {
    const request = event.request;
    const answer = await admit(request);
    if (answer) {
        return answer;
    }
    vouch(request.headers);
    if (request.uri.startsWith(STREAM) || request.uri.startsWith(ALIAS)) {
        const given = parameters(request.querystring);
        request.querystring = '';
        request.cookies = {};
        if (request.method === 'GET' || request.method === 'HEAD') {
            read(request, given, event.context.requestId);
        }
    }
    return request;
}

// ACCESS. The place where a token will be verified, before anything else is looked at: a response
// that is returned here ends the request. The token is out of the URL before the cache lookup,
// because only `offset`, `live` and `cursor` stay, and Authorization is not part of the cache key.
async function admit(request) {
    return undefined;
}

// Nobody but this function and CloudFront says `x-tailrace-...` or names the viewer's host: the
// origin's own Host is that of its function URL.
function vouch(headers) {
    remove(headers, Object.keys(headers).filter((name) => name.startsWith('x-tailrace-')));
    headers['x-forwarded-host'] = { value: headers.host.value };
}

function read(request, given, id) {
    const headers = request.headers;
    const live = last(given.live);
    let alone = request.method === 'HEAD';
    if (request.uri.startsWith(ALIAS)) {
        request.uri = STREAM + request.uri.slice(ALIAS.length);
    }
    remove(headers, IGNORED);
    if (request.method === 'GET') {
        request.querystring = canonical(given.offset, live, last(given.cursor));
        alone = live === 'sse' || (live === '' && given.offset[0] === 'now');
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

// The values of the parameters that matter, in the order in which they came. CloudFront leaves
// names and values percent-encoded, so that `now` has many spellings.
function parameters(querystring) {
    const found = { offset: [], live: [], cursor: [] };
    Object.keys(querystring).forEach((key) => {
        const name = decoded(key);
        const field = querystring[key];
        if (found.hasOwnProperty(name)) {
            (field.multiValue || [field]).forEach((each) => found[name].push(decoded(each.value)));
        }
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
    return name + '=' + encodeURIComponent(value);
}

function last(values) {
    return values.length ? values[values.length - 1] : '';
}

function remove(headers, names) {
    names.forEach((name) => delete headers[name]);
}
