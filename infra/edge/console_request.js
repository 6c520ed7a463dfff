// Runs for each request of `/`: browsers get the console, which is in a bucket, and all other clients
// plain text. The language is that of `viewer_request.js`.

const TEXT = '';
const EXAMPLE = 'http://localhost:4437';

function handler(event) {
    const request = event.request;
    const accept = request.headers.accept;
    const fields = accept ? accept.multiValue || [accept] : [];
    if (fields.some((field) => field.value.indexOf('text/html') >= 0)) {
        request.uri = '/index.html';
        request.querystring = {};
        return request;
    }
    const own = 'https://' + request.headers.host.value;
    return {
        statusCode: 200,
        statusDescription: 'OK',
        headers: {
            'content-type': { value: 'text/plain; charset=utf-8' },
            'cache-control': { value: 'no-cache' },
            vary: { value: 'accept' },
            'x-content-type-options': { value: 'nosniff' },
        },
        body: { encoding: 'text', data: TEXT.split(EXAMPLE).join(own) },
    };
}
