"""Fixed limits, each with its reason. Limits that an operator can change are in `settings`.

`docs/limits.md` lists them all, and a test fails when it does not.
"""

from __future__ import annotations

from typing import Final

MAX_INTEGER: Final = 2**53 - 1
"""Largest epoch, sequence number, TTL and sub-offset: clients in every language represent it
exactly."""

PATH_BYTES: Final = 1024
"""Longest stream path, percent-encoded: with a prefix it must fit into a database key."""

PRODUCER_ID_BYTES: Final = 256
"""Longest Producer-Id: it is stored with every entry while the producer is active."""

STREAM_SEQ_BYTES: Final = 256
"""Longest Stream-Seq: it is stored with every entry."""

CONTENT_TYPE_BYTES: Final = 256
"""Longest Content-Type: it is stored with the stream and returned with every read."""

PRODUCER_STATE_BYTES: Final = 4096
"""Producer state in an entry before the least recent producers move to their own rows: every entry
carries it."""

JSON_DEPTH: Final = 512
"""Deepest nesting of a JSON body: every client's parser supports this depth."""

JSON_EVENT_LOOP_BYTES: Final = 256 << 10
"""Largest JSON body that is checked on the event loop: the worst one blocks it for 15 ms."""

JSON_CHECK_STEP_BYTES: Final = 64 << 10
"""Part of a larger body that is parsed at a time: its objects take a hundred times the memory."""

JSON_CHECK_CPU_SECONDS: Final = 20
"""CPU time to check one JSON body: four times what the worst body of 32 MB takes."""

JSON_CHECK_TIMEOUT_SECONDS: Final = 120
"""Time after which the process that checks JSON counts as stuck, even on a busy machine."""

JSON_CHECK_MEMORY_BYTES: Final = 512 << 20
"""Address space of that process, in addition to sixteen times the body: a last resort."""

JSON_CHECKER_IDLE_SECONDS: Final = 60
"""How long that process waits for the next body: starting it takes a tenth of a second."""

JSON_SPLIT_BYTES: Final = 16 << 10
"""Stored JSON that is split into messages per step of the event loop: 8,000 messages at worst."""

SLOT_APPENDS: Final = 64
"""Appends that share a slot: more save little, and the index of a segment names each of them."""

SLOT_BYTES: Final = 64 << 10
"""Bytes of the appends that share a slot: a chunk is longer than its size by at most one slot."""

JOURNAL_ENTRIES: Final = 16_384
"""Entries in the journal of the embedded store that are not in their table: of 1,000 streams, each
has enough by then for a page. With others, which have been folded, they are four times as many at
most; a start reads these in a second."""

JOURNAL_BYTES: Final = 16 << 20
"""Memory that the former take."""

JOURNAL_BODY_BYTES: Final = 8 << 10
"""Largest entry, as it is in its slot, that goes through the journal: writing a larger one twice
would cost more than the pages that are saved."""

FOLD_ENTRIES: Final = 256
"""Entries that one commit folds, and as many as it needs beyond the limits of the journal: other
writes wait for them, for a millisecond or two."""

FOLD_BYTES: Final = 1 << 20
"""Bytes of these entries."""

RIVAL_SLOT_BYTES: Final = 900
"""The same while other processes write to the stream: an attempt, which may be lost to them, then
costs one write unit, with the keys of the item and a state without producers."""

QUEUED_APPENDS: Final = 4096
"""Appends of one process that wait for one stream on DynamoDB; more get 429."""

QUEUED_BYTES: Final = 64 << 20
"""Bytes of these appends: two of the largest bodies."""

FORK_DEPTH: Final = 256
"""Longest chain of forks of forks: a read may have to look at each of them."""

HEADER_COUNT: Final = 128
"""Maximum number of header fields of a request: no client needs more, and parsing takes time."""

HEADER_BYTES: Final = 64 << 10
"""Largest request line and header fields together: most proxies allow no more."""

HEADER_SECONDS: Final = 10
"""Time from the first byte of a request to the end of its header fields: they are small."""

BODY_SECONDS: Final = 30
"""Time for a request body to arrive, in addition to its size divided by the minimum rate."""

BODY_BYTES_PER_SECOND: Final = 64 << 10
"""Minimum rate of a body, however large: poor mobile networks reach it."""

LINGER_SECONDS: Final = 10
"""How long the rest of a rejected request is read and dropped: a reset would hide the response."""

LINGER_BYTES: Final = 64 << 20
"""How much of a rejected request is read and dropped: it costs no memory, but work."""

RESPONSE_STALL_SECONDS: Final = 30
"""How long a client may read nothing of its response: the rest is held in memory."""

SSE_KEEP_ALIVE_SECONDS: Final = 10
"""Silence after which an SSE response gets a comment: proxies end quiet connections after 30 s or
more."""

BURST_SECONDS: Final = 2
"""Seconds' worth of operations that a client may send at once: those queued while it was
offline."""

RATE_LIMITED_CLIENTS: Final = 10_000
"""Clients that a rate limit remembers, and at most twice as many: it is a bound on memory."""

LIVE_RETRY_SECONDS: Final = 5
"""Retry-After for a client with too many live reads: one of them may have ended by then."""

READ_STREAMS: Final = 20
"""Streams that one request for many may name: each is read, and followed, by itself."""

READ_MATCHES: Final = 200
"""Streams that the patterns of one request may match."""

READ_SEARCH_SECONDS: Final = 5
"""Interval at which streams that match a pattern are looked for: that lists all with its prefix."""

MISSING_WAITS_PER_CLIENT: Final = 100
"""Reads of one client that wait for streams that do not exist: the rooms of a page and its tabs."""

MISSING_WAITS: Final = 10_000
"""The same of all clients: a stranger can name any number of streams."""

MISSING_WAITS_SHARE: Final = 3
"""On AWS a client may take one in so many of the waits in TAILRACE_MISSING_WAITS."""

MISSING_POLL_SECONDS: Final = 1
"""Interval at which a stream that another process may create is looked up."""

CLOSED_POLL_REQUESTS: Final = 30
"""Long-polls at the end of one closed stream in CLOSED_POLL_SECONDS: the first reports its end."""

CLOSED_POLL_SECONDS: Final = 10
"""Period in which they are counted, and so the longest time that a client is rejected."""

QUOTA_STREAMS: Final = 10_000
"""Highest limit in a rule of streams_per_prefix: each creation counts the streams."""

HEALTH_SECONDS: Final = 1
"""How long a probe of the store answers all that ask for its health: anyone may."""

PROBE_SECONDS: Final = 5
"""Longest wait for the store in a probe: load balancers wait about as long for an answer."""

START_CHECK_SECONDS: Final = 1
"""Time to look for damage of the database at a start; `tailrace check` looks at all of it."""

SECRET_BYTES: Final = 16
"""Shortest secret that strangers may try to guess: a shorter one can be found by trying."""

LOG_QUEUE_LINES: Final = 20_000
"""Requests whose lines wait to be written: some megabytes. While the log is slower than requests
come, further lines are dropped and counted."""

TOKEN_BYTES: Final = 8 << 10
"""Longest token and signed name: anyone can make the server check a longer one."""

JWKS_BYTES: Final = 128 << 10
"""Largest JWK set: a dozen keys with certificates take a fifth of that."""

JWKS_SECONDS: Final = 3
"""Longest wait for a JWK set: a request waits for it."""

DETAIL_ROWS: Final = 200
"""Producers, forks, segments and connections that one answer lists: it is built in memory."""

LIST_PAGE_STREAMS: Final = 1000
"""Maximum number of streams on one page of the listing: a page is built in memory."""

LIVE_CACHE_SECONDS: Final = 2
"""How long a shared cache may keep a long-poll with data: docs/collapsing.md compares times."""

CURSOR_DIGITS: Final = 15
"""Longest cursor that is parsed as a number, which JavaScript must do exactly, too."""

HISTORY_CACHE_SECONDS: Final = 24 * 3600
"""How long caches may keep a chunk of history: it never changes, and a deletion purges the edge."""

COMPRESS_BYTES: Final = 1024
"""Smallest body that is compressed: a smaller one fits into one packet anyway."""

TAIL_CACHE_SECONDS: Final = 60
"""How long a writer may use a remembered tail: far less than trimmed slots are kept."""

RECENT_SECONDS: Final = 300
"""Silence from which on the pauses between polls for a waiting reader grow: conversations mostly go
on sooner, and polls at the shortest pause cost a reader on Lambda less than its wait."""

POLLS_PER_SECOND: Final = 2000
"""Polls of one process for the waiting readers of all streams, about: more streams are polled less
often. So many take a fifth of a processor, and $330 a month."""

NAME_SHARDS: Final = 16
"""Partitions of names: each takes 1,000 writes a second, and a listing queries all."""

ITEM_BODY_BYTES: Final = 350 << 10
"""Largest body inside a DynamoDB item: with the state beside it the item stays below 400 KB."""

UPLOAD_INTENT_SECONDS: Final = 3600
"""Age at which the object of a large body without an entry is swept: its append has failed by
then."""

ORPHAN_FILE_SECONDS: Final = 24 * 3600
"""How long a file that the database does not name is kept: a wrong restore is noticed by then."""

DAMAGED_OBJECTS: Final = 1000
"""Damaged files or objects that are logged by name, and counted: of more, one cause is likely."""

EXPIRED_SECONDS: Final = 3600
"""How long after its expiry a stream in DynamoDB is removed without a tombstone: no process uses it
any more, since a tail is trusted for a minute, and clocks differ by less."""

SWEEP_ITEMS: Final = 1000
"""Maximum number of items of one kind and partition per sweep: the next sweep continues."""

SEGMENT_SLOTS: Final = 1 << 14
"""Maximum number of slots of a segment, with a million appends: its index is read, and cached, as
a whole."""

INDEX_SLOTS: Final = 1_000_000
"""Appends whose position in segments is kept in memory, and blocks of 16 KiB whose checksum is: 24
MB, little beside the entries themselves."""

JOINED_BYTES: Final = 16 << 20
"""Recently read chunks that are kept as they are sent, so that a thousand readers of one cost one
join; no chunk has more than an eighth of it."""

MERGE_SEGMENTS: Final = 8
"""Neighbors of one level that are merged into one segment of the next: each level rewrites an entry
once."""

UNCOMMITTED_SEGMENT_SECONDS: Final = 6 * 3600
"""Oldest object that compaction commits: an unnamed one is swept a grace period after that."""

AWS_CALL_SECONDS: Final = 3
"""Longest wait for one response of an AWS service: a hundred times what DynamoDB usually takes."""

AWS_CONNECT_SECONDS: Final = 2
"""Longest wait for a connection to AWS: the packet that opens it may be lost once."""

AWS_CALL_ATTEMPTS: Final = 4
"""Attempts per call to AWS unless AWS_MAX_ATTEMPTS is set: clients would not wait for more."""

AWS_CONNECTIONS: Final = 64
"""Connections to one AWS service, and so concurrent calls: at 5 ms each they are 12,800 calls a
second."""

EVENT_STEP_BYTES: Final = 256 << 10
"""Data that is encoded as events per step of the event loop: newlines become seven times as
long."""

CABLE_FRAME_BYTES: Final = 64 << 10
"""Largest frame from a cable client: commands are small, and a whisper is not an upload."""

CABLE_QUEUED_COMMANDS: Final = 8
"""Commands of a cable client that are queued behind one: no more are read meanwhile."""

CABLE_COMMAND_RATE: Final = 100
"""Commands per second of one cable client, besides whispers: more are delayed."""

CABLE_COMMAND_BURST: Final = 2000
"""Commands that a cable client may send at once: on reconnecting it subscribes to everything
again."""

CABLE_STALL_SECONDS: Final = 30
"""How long a cable client may read nothing before it is disconnected: the rest is held in
memory."""

CABLE_PONG_SECONDS: Final = 20
"""How long a cable client may be silent before it is pinged, and then until it answers."""

CABLE_CLOSING_SECONDS: Final = 10
"""How long a cable client may take to confirm that its connection is closed."""

CABLE_CALL_ANSWER_BYTES: Final = 1 << 20
"""Largest answer of the application: each of its frames goes to one client."""

CABLE_CALL_WAIT_SECONDS: Final = 10
"""How long a call of the application waits for others to end: its client waits, too."""

CABLE_CALL_RETRY_SECONDS: Final = 3
"""Pauses, in sum, after which a call whose connection fails is not repeated any more."""

CABLE_DISCONNECT_CALLS: Final = 4096
"""Clients that have gone and of which the application is still to be told."""

BROADCAST_BYTES: Final = 1 << 20
"""Largest body of a broadcast: it is parsed on the event loop in one step."""

BROADCAST_BATCH_MESSAGES: Final = 2000
"""Maximum number of broadcasts in one request: each may be a separate append."""

CABLE_MESSAGE_BYTES: Final = 1 << 20
"""Largest message on a cable, as BROADCAST_BYTES: each client gets it in one frame."""

CABLE_QUEUE_BYTES: Final = 1 << 20
"""Data queued for one cable client: a slower client reconnects and catches up from the log."""

CABLE_SUBSCRIPTIONS: Final = 1000
"""Maximum number of subscriptions of one cable client: each is followed while it is connected."""

CABLE_IDENTIFIER_BYTES: Final = 10 << 10
"""Longest identifier of a subscription: a signed name and 2 KiB of other fields."""

CABLE_IDENTIFIERS_BYTES: Final = 1 << 20
"""Memory for all identifiers of one cable client: enough for its subscriptions at the usual
length."""

CABLE_SESSIONS: Final = 100_000
"""Dropped cable clients whose subscriptions are remembered: others subscribe again."""

CABLE_SESSIONS_BYTES: Final = 16 << 20
"""Memory for all remembered sessions: the oldest are discarded, and their clients subscribe
again."""

CABLE_PRESENCE_BYTES: Final = 512 << 10
"""Ids and infos of all members of one presence list: a client gets the list in one message."""

CABLE_HISTORY_REQUEST_SECONDS: Final = 2
"""How long a resumed client that asked for history before may take to ask again: new messages are
held back."""

CABLE_CLOSE_SECONDS: Final = 2
"""How long a cable client may take to receive the disconnect message of a server that stops."""

GATEWAY_FRAME_BYTES: Final = 128 << 10
"""Largest frame that API Gateway sends to a client."""

GATEWAY_BROADCAST_BYTES: Final = 120 << 10
"""Largest broadcast message that API Gateway delivers: its frame is larger than the message."""

CABLE_MEMBER_BYTES: Final = 4 << 10
"""Id and info of one presence member: a few members must not fill the list."""

GATEWAY_HISTORY_MESSAGES: Final = 2000
"""Messages that a client of API Gateway gets as history: they are sent one by one, within 24 s."""

GATEWAY_CONNECTION_SHARDS: Final = 16
"""Partitions of the connections of API Gateway, and so the most functions that ping them."""

GATEWAY_INDEX_SHARDS: Final = 4
"""Partitions of the connections of API Gateway in the index: it accepts 500 new ones a second, and
a function that pings all of them reads every partition of the index in each round."""

GATEWAY_PART_SUBSCRIBERS: Final = 500
"""Subscribers to whom one function sends a message: with 512 MB, in a quarter of a second. A stream
with more than twice as many has more functions, which send at the same time."""

GATEWAY_PRESENCE_SUBSCRIBERS: Final = 1000
"""Subscribers of a stream from which on they are not told who joins and leaves: if all of them
reconnect, that would be a million frames."""

GATEWAY_DELIVERY_PARTS: Final = 64
"""Functions that send the messages of one stream at the same time."""

GATEWAY_PART_PINGS: Final = 600
"""Pings a second from which on connections of API Gateway are divided between more functions: two
thirds of what one with 256 MB, a seventh of a processor, is able to send."""

GATEWAY_ACCEPT_SECONDS: Final = 5
"""How long API Gateway may take to accept a connection: nothing can be sent on it before."""

GATEWAY_CONNECTION_SECONDS: Final = 6900
"""Age at which a client of API Gateway is asked to reconnect: API Gateway ends it at two hours."""

GATEWAY_PING_SECONDS: Final = 300
"""Longest time between two pings through API Gateway, which ends connections idle for ten
minutes."""

AVISO_BODY_BYTES: Final = 256 << 10
"""Largest body of an Aviso request: the limit that its clients know."""

AVISO_JSON_DEPTH: Final = 128
"""Deepest nesting of an Aviso request: the limit that its clients know."""

AVISO_CLOUD_POINTS: Final = 10_000
"""Maximum number of points of a point cloud, unless its schema allows fewer: comparing takes
time."""

AVISO_CLOUD_BYTES: Final = 60 << 10
"""Largest JSON of a point cloud: it is stored, and sent, with its notification."""

AVISO_POLYGON_POINTS: Final = 5000
"""Maximum number of points of a polygon: each notification is compared with it on the event
loop."""

AVISO_EVENT_BYTES: Final = 1280 << 10
"""Largest entry that is read as a notification: the largest body may become that large."""

AVISO_NAME_BYTES: Final = 255
"""Longest name of an event type without a schema: it is part of a stream's path."""

AVISO_OPEN_FIELDS: Final = 256
"""Maximum number of fields in an identifier without a schema: each is parsed on the event loop."""

AVISO_KEY_BYTES: Final = 256
"""Longest Idempotency-Key: it is stored with its notification."""

SUBSCRIPTION_ID_BYTES: Final = 256
"""Longest id of a subscription: it is part of keys, URLs and every wake."""

SUBSCRIPTION_BODY_BYTES: Final = 1 << 20
"""Largest body of a request to the subscription endpoints: a thousand paths."""

SUBSCRIPTION_STREAMS: Final = 1000
"""Streams that one request may link to a subscription: each is a write."""

SUBSCRIPTION_TEXT_BYTES: Final = 1024
"""Longest description of a subscription, and name of a worker: both are in its record, which every
wake writes anew."""

WAKE_STREAMS: Final = 32
"""Streams that one wake names, and that one request acknowledges: they are one transaction of
DynamoDB, which has at most 100 actions. The next wake has the rest."""

CLAIM_CHECKS: Final = 100
"""Links whose streams are asked for news by a claim that finds nothing pending; a worker that comes
too early for more waits for the wake event."""

LISTED_LINKS: Final = 1000
"""Links that the description of a subscription shows."""

LEASE_LEAST_MS: Final = 1000
"""Shortest lease of a wake, as the protocol has it."""

LEASE_MOST_MS: Final = 600_000
"""Longest lease of a wake, as the protocol has it."""

AVISO_POLL_SECONDS: Final = 1
"""Interval at which a watch polls for the stream of an event type without notifications."""

WEBHOOK_URL_BYTES: Final = 2048
"""Longest URL of a webhook: most servers and proxies accept no longer one."""

WEBHOOK_SECONDS: Final = 10
"""Time for one request to a webhook with its answer, and before that for other requests to end: a
receiver that needs longer answers at once, and calls back when it is done."""

WEBHOOK_CONNECT_SECONDS: Final = 3
"""Time for a name to resolve, and for each of its addresses to accept a connection with TLS."""

WEBHOOK_ADDRESSES: Final = 4
"""Addresses of a webhook that are tried: one usually accepts."""

WEBHOOK_HEAD_BYTES: Final = 16 << 10
"""Largest status line and header fields of a webhook's answer: proxies send a few KiB."""

WEBHOOK_ANSWER_BYTES: Final = 64 << 10
"""Largest answer of a webhook: it only has to say whether the work is done."""

WEBHOOK_CONCURRENCY: Final = 64
"""Requests to webhooks that one process has under way; others wait."""

WEBHOOK_HOST_CONCURRENCY: Final = 16
"""The same to one host: a slow one leaves room for the others."""

WEBHOOK_LOOKUPS: Final = 16
"""Names that one process resolves at once, each in a thread, which cannot be interrupted."""

WAKE_TOKEN_SECONDS: Final = 24 * 3600
"""How long the token of a wake is valid: longer than work lasts whose lease is extended again and
again, since it gets no other token."""
