"""Every fixed limit, each with its reason. What an operator may change is in `settings`.

`docs/limits.md` lists them all, and a test fails when it does not.
"""

from __future__ import annotations

from typing import Final

MAX_INTEGER: Final = 2**53 - 1
"""Largest epoch, sequence, TTL and sub-offset: what every client language holds exactly."""

PATH_BYTES: Final = 1024
"""Longest stream path, percent-encoded: it has to fit a database key together with a prefix."""

PRODUCER_ID_BYTES: Final = 256
"""Longest Producer-Id: it is stored with every entry while the producer is active."""

STREAM_SEQ_BYTES: Final = 256
"""Longest Stream-Seq: it is stored with every entry."""

CONTENT_TYPE_BYTES: Final = 256
"""Longest Content-Type: it is stored with the stream and echoed with every read."""

PRODUCER_BUDGET: Final = 4096
"""Bytes of producer state an entry carries before the coldest producers move to their own rows."""

JSON_DEPTH: Final = 512
"""Deepest nesting of a JSON body: every client's parser reads that much."""

JSON_LOOP_BYTES: Final = 256 << 10
"""Largest JSON body that is checked on the event loop: the worst one takes 15 ms there."""

JSON_PIECE_BYTES: Final = 64 << 10
"""What is parsed at once of a larger one: its objects take a hundred times the memory."""

JSON_CHECK_SECONDS: Final = 20
"""CPU time for the check of one JSON body: four times what the worst one of 32 MB takes."""

JSON_CHECK_WAIT: Final = 120
"""Seconds after which the process that checks JSON counts as stuck, be the machine ever so busy."""

JSON_CHECK_MEMORY: Final = 512 << 20
"""Address space of that process, besides sixteen times the body: a last resort."""

JSON_IDLE_SECONDS: Final = 60
"""How long that process waits for the next body: starting it takes a tenth of a second."""

JSON_SPLIT_BYTES: Final = 16 << 10
"""Stored JSON that is taken apart in one turn of the event loop: at worst 8,000 messages."""

FORK_DEPTH: Final = 256
"""Longest chain of forks of forks: a read may have to look at each of them."""

HEADER_COUNT: Final = 128
"""Most header fields of a request: parsing more is work without use."""

HEADER_BYTES: Final = 64 << 10
"""Largest request line and header fields together, as most proxies allow at most."""

HEAD_SECONDS: Final = 10
"""Longest time from the first byte of a request to the end of its header fields: they are small."""

BODY_SECONDS: Final = 30
"""Time that a request's body has to arrive, besides what its size gets at the least rate."""

BODY_RATE: Final = 64 << 10
"""Bytes a second at which a body is not too slow, however large: poor mobile networks have that."""

LINGER_SECONDS: Final = 10
"""How long what a refused client still sends is read and dropped: a reset would hide its answer."""

LINGER_BYTES: Final = 64 << 20
"""How much of it: nothing is kept, but reading it is work that a stranger can ask for."""

STALLED_SECONDS: Final = 30
"""How long a client may take nothing of its answer: what waits for it is kept in memory."""

BURST_SECONDS: Final = 2
"""Seconds' worth of appends that a client may send at once: what queued while it was away."""

KNOWN_CLIENTS: Final = 10_000
"""Clients that a limit remembers, and at most twice as many: the others begin anew."""

LIVE_RETRY_SECONDS: Final = 5
"""When a client with too many live reads may ask again: one of them may have ended by then."""

SPIN_REQUESTS: Final = 30
"""Long-polls at the end of one closed stream in SPIN_SECONDS: its end is told by the first."""

SPIN_SECONDS: Final = 10
"""Span in which they are counted, and so the longest time that a client is kept off."""

QUOTA_STREAMS: Final = 10_000
"""Most streams a rule of streams_per_prefix may allow: each creation counts them."""

TOKEN_BYTES: Final = 8 << 10
"""Longest token and signed name: checking a longer one is work that a stranger can ask for."""

JWKS_BYTES: Final = 128 << 10
"""Largest set of public keys that is read: a dozen keys with certificates have a fifth of that."""

JWKS_SECONDS: Final = 3
"""Longest wait for a set of public keys: somebody's request waits for it."""

LIST_PAGE: Final = 1000
"""Most streams one page of the listing holds."""

CURSOR_DIGITS: Final = 18
"""Longest cursor that is taken for a number; a longer one was not made by this server."""

TAIL_TRUST_SECONDS: Final = 60
"""How long a writer may build on a tail it remembers: far less than trimmed slots are kept."""

TURN_SECONDS: Final = 10
"""How long an append waits for others of its process on the same stream: clients wait no longer."""

NAME_SHARDS: Final = 16
"""Partitions that names are spread over: each takes 1,000 writes a second, a listing asks each."""

ITEM_BODY_BYTES: Final = 350 << 10
"""Largest body inside a DynamoDB item: with the state beside it the item stays below 400 KB."""

CLAIM_SECONDS: Final = 3600
"""Age at which the object of a large body whose entry never came is swept."""

ORPHAN_SECONDS: Final = 24 * 3600
"""How long a file that the database does not name is kept: a wrong restore is noticed by then."""

SWEEP_ITEMS: Final = 1000
"""Most items of one kind and partition that one sweep looks at: it comes back for the rest."""

SEGMENT_SLOTS: Final = 1 << 16
"""Most slots of a segment: its index is read, and kept, as a whole."""

MERGE_SEGMENTS: Final = 8
"""Neighbours of one level that become one segment of the next: each rewrites its entries once."""

OBJECT_SECONDS: Final = 6 * 3600
"""Oldest object that compaction commits; unclaimed ones are swept a grace period after that."""

CALL_SECONDS: Final = 3
"""Longest wait for one answer of DynamoDB: a hundred times what it usually takes."""

CONNECT_SECONDS: Final = 2
"""Longest wait for a connection to AWS: the packet that opens one may be lost once."""

CALL_ATTEMPTS: Final = 4
"""Tries of one call to AWS unless AWS_MAX_ATTEMPTS says otherwise: more would outlast clients."""

EVENT_PIECE_BYTES: Final = 256 << 10
"""Data that becomes events in one turn of the event loop: as newlines it is seven times as much."""

CABLE_FRAME_BYTES: Final = 64 << 10
"""Largest frame that a cable client may send: commands are small, and a whisper is no upload."""

CABLE_WAITING_COMMANDS: Final = 8
"""Commands of a cable client that wait for one before them; meanwhile no more are read."""

CABLE_COMMAND_RATE: Final = 100
"""Commands a second of one cable client, besides whispers: a faster one has to wait."""

CABLE_COMMAND_BURST: Final = 2000
"""Commands that it may send at once: it subscribes to everything anew when it comes back."""

CABLE_STALL_SECONDS: Final = 30
"""How long a cable client may take nothing of what is written to it before it is let go."""

BROADCAST_BYTES: Final = 1 << 20
"""Largest body of a broadcast: it is parsed at once, and nobody else is served meanwhile."""

BROADCAST_BATCH: Final = 2000
"""Most broadcasts in one request: each may be an append of its own."""

CABLE_MESSAGE_BYTES: Final = 1 << 20
"""Largest message that goes over a cable, as BROADCAST_BYTES: each client gets it in one frame."""

CABLE_QUEUE_BYTES: Final = 1 << 20
"""What may wait to be sent to one cable client: one that is slower reconnects and catches up."""

CABLE_SUBSCRIPTIONS: Final = 1000
"""Most subscriptions of one cable client: each is followed for as long as it is connected."""

CABLE_IDENTIFIER_BYTES: Final = 10 << 10
"""Longest identifier of a subscription: a signed name, and 2 KiB of fields around it."""

CABLE_IDENTIFIERS_BYTES: Final = 1 << 20
"""Memory of all identifiers of one cable client: as many as it may have, of the usual length."""

CABLE_SESSIONS: Final = 100_000
"""Dropped cable clients whose subscriptions are remembered: the others subscribe again."""

CABLE_SESSIONS_BYTES: Final = 16 << 20
"""Memory of what is remembered of them all: the oldest make room, and subscribe again."""

CABLE_PRESENCE_BYTES: Final = 512 << 10
"""Ids and infos of those who are at one stream: who asks gets them all in one message."""

CABLE_HOLD_SECONDS: Final = 10
"""How long a client that resumed may take to say what it missed before it gets what is new."""

CABLE_CLOSE_SECONDS: Final = 2
"""How long a cable client may take to hear that the server stops."""

CABLE_POST_BYTES: Final = 128 << 10
"""Largest frame that API Gateway sends to a client."""

CABLE_BROADCAST_BYTES: Final = 120 << 10
"""Largest message that a broadcast may have where API Gateway delivers it: its frame says more."""

CABLE_MEMBER_BYTES: Final = 4 << 10
"""Id and info of one who is at a stream: everybody is told, and few must not use up the list."""

CABLE_REPLAY_MESSAGES: Final = 2000
"""Messages that API Gateway's clients get as history: they are sent one by one, within 24 s."""

CABLE_SHARDS: Final = 4
"""Partitions that connections of API Gateway are spread over: it takes 500 new ones a second."""

CABLE_ACCEPT_SECONDS: Final = 5
"""How long API Gateway may take to accept a connection: nothing can be sent on it before."""

CABLE_LIFETIME_SECONDS: Final = 6900
"""Age at which clients of API Gateway are asked to come anew: it ends what is two hours old."""

CABLE_QUIET_SECONDS: Final = 300
"""Longest time between two pings through API Gateway, which ends what is silent for ten minutes."""

AVISO_BODY_BYTES: Final = 256 << 10
"""Largest body of an Aviso request, as its clients know it."""

AVISO_JSON_DEPTH: Final = 128
"""Deepest nesting of an Aviso request, as its clients know it."""

AVISO_CLOUD_POINTS: Final = 10_000
"""Most points of a point cloud, unless its schema says fewer."""

AVISO_CLOUD_BYTES: Final = 60 << 10
"""Largest JSON of a point cloud: it is kept, and sent, with its notification."""

AVISO_POLYGON_POINTS: Final = 5000
"""Most pairs of a polygon: each notification is compared with it on the event loop."""

AVISO_EVENT_BYTES: Final = 1280 << 10
"""Largest entry that is taken for a notification: the largest body may become that large."""

AVISO_KEY_BYTES: Final = 256
"""Longest Idempotency-Key."""

AVISO_POLL_SECONDS: Final = 1
"""Between two looks for the stream of an event type of which there is no notification yet."""
