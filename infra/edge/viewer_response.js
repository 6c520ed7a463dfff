// Runs for each response of a stream that is not an error, on its way from the cache to one reader.
// The language is that of `viewer_request.js`.

const CURSOR = /^[0-9]{1,15}$/;

function handler(event) {
    const headers = event.response.headers;
    const request = event.request;
    const shared = headers['stream-cursor'];
    // The viewer-request function put it into the header, and another one into the query.
    const held = request.headers['x-tailrace-cursor'] || request.querystring.cursor;
    if (shared && held && CURSOR.test(held.value)) {
        // Readers with different cursors share the response, but each must get a greater one.
        shared.value = String(Math.max(Number(shared.value), Number(held.value) + 1));
    }
    const caching = headers['cache-control'];
    const type = headers['content-type'];
    if (type && /event-stream/.test(type.value) && caching && /max-age/.test(caching.value)) {
        // The edge gives events to all that wait for them, and no other cache may keep them.
        caching.value = 'no-cache';
    }
    // The response headers policy adds it, for errors.
    delete headers['retry-after'];
    return event.response;
}
