# The cache of the edge on loopback: answers by key, and one request for all who ask for the same.
# What may be kept, and for how long, is said by tests/e2e/edge.mjs, which stands on both sides.
vcl 4.1;

import std;

backend edge {
    .host = "127.0.0.1";
    .port = "@BACKEND_PORT@";
    .first_byte_timeout = 180s;
    .between_bytes_timeout = 180s;
}

acl loopback {
    "127.0.0.1";
}

sub vcl_recv {
    if (req.method == "BAN") {
        if (client.ip !~ loopback || req.http.x-tag !~ "^[A-Za-z0-9:_-]+$") {
            return (synth(403));
        }
        ban("obj.http.cache-tag ~ (?i)(^|,\s*)" + req.http.x-tag + "\s*(,|$)");
        return (synth(200));
    }
    set req.hash_ignore_busy = (req.http.x-edge-collapse == "no");
    return (hash);
}

sub vcl_hash {
    hash_data(req.http.x-edge-key);
    return (lookup);
}

sub vcl_miss {
    # Varnish would ask with GET, and the app answers that otherwise.
    if (req.method == "HEAD") {
        return (pass);
    }
    return (fetch);
}

sub vcl_backend_response {
    if (beresp.http.x-edge-ttl ~ "^[0-9]") {
        set beresp.ttl = std.duration(beresp.http.x-edge-ttl, 0s);
        set beresp.grace = std.duration(beresp.http.x-edge-grace, 0s);
        # Who has it longer than that asks the origin whether it has changed, as CloudFront does.
        set beresp.keep = 60s;
    } else {
        # A mark that nobody need wait for such an answer. It is short: CloudFront has none.
        set beresp.uncacheable = true;
        set beresp.ttl = 1s;
        set beresp.grace = 0s;
        set beresp.keep = 0s;
    }
    return (deliver);
}

sub vcl_deliver {
    set resp.http.x-edge-hits = obj.hits;
    return (deliver);
}
