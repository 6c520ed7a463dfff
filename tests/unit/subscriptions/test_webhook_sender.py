"""Requests to webhooks: to the address that was checked, and never slow, large or misled."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tailrace.errors import WebhookFailed, WebhookUrlRejected
from tailrace.limits import (
    WEBHOOK_ANSWER_BYTES,
    WEBHOOK_CONCURRENCY,
    WEBHOOK_HEAD_BYTES,
    WEBHOOK_HOST_CONCURRENCY,
    WEBHOOK_LOOKUPS,
)
from tailrace.protocols.subscriptions import webhook_sender
from tailrace.protocols.subscriptions.webhook_sender import WebhookAnswer, WebhookSender
from tests.unit.subscriptions.conftest import Authority, Receiver, StartReceiver, until

OK = b'HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n{"done":true}'
DONE = WebhookAnswer(200, b'{"done":true}')

PRIVATE_ANSWERS: tuple[list[str], ...] = (
    ["127.0.0.1"],
    ["::1"],
    ["10.1.2.3"],
    ["169.254.169.254"],
    ["fd00:ec2::254"],
    ["100.64.0.1"],
    ["::ffff:127.0.0.1"],
    ["64:ff9b::7f00:1"],
    ["2002:7f00:1::"],
    ["0.0.0.0"],
    ["::"],
    ["224.0.0.1"],
    ["fe80::1%eth0"],
    ["93.184.215.14", "127.0.0.1"],
    ["93.184.215.14", "2606:4700::1", "fe80::1"],
    [],
)


@dataclass
class Names:
    """A resolver: gives its answers one after the other, and the last one again and again."""

    answers: list[Sequence[str]]
    asked: list[tuple[str, int]] = field(default_factory=list)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append((host, port))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def development(**more: Any) -> WebhookSender:
    return WebhookSender(allow_loopback=True, **more)


async def post(sender: WebhookSender, port: int, host: str = "127.0.0.1") -> WebhookAnswer:
    return await sender.send(f"http://{host}:{port}/hook?a=1", b"{}", {"x-test": "1"})


# Where a request goes


@pytest.mark.parametrize("addresses", PRIVATE_ANSWERS)
async def test_names_with_an_address_that_is_not_public_are_refused(addresses: list[str]) -> None:
    sender = WebhookSender(allow_loopback=False, resolve=Names([addresses]))
    with pytest.raises(WebhookUrlRejected):
        await sender.check_destination("https://hooks.example/")
    with pytest.raises(WebhookFailed):
        await sender.send("https://hooks.example/", b"", {})


async def test_public_names_are_accepted_and_addresses_checked_without_a_lookup() -> None:
    sender = WebhookSender(allow_loopback=False, resolve=Names([["93.184.215.14"]]))
    await sender.check_destination("https://hooks.example/")
    sender = WebhookSender(allow_loopback=False)
    await sender.check_destination("https://93.184.215.14/")
    with pytest.raises(WebhookUrlRejected):
        await sender.check_destination("https://127.0.0.1/")


@pytest.mark.parametrize("allow_loopback", [False, True])
async def test_dns_rebinding_reaches_nothing(
    start_receiver: StartReceiver, authority: Authority, allow_loopback: bool
) -> None:
    """The name is public when it is checked, and loopback when the webhook is sent."""
    receiver = await start_receiver(OK)
    names = Names([["93.184.215.14"], ["127.0.0.1"]])
    sender = WebhookSender(allow_loopback=allow_loopback, resolve=names, tls=authority.client)
    with_port = "https://rebind.example:8443/"
    await sender.check_destination(with_port)
    for _ in range(2):
        with pytest.raises(WebhookFailed, match="not public"):
            await sender.send(with_port, b"", {})
    assert receiver.connections == 0


async def test_it_connects_to_the_address_that_was_checked_and_resolves_once(
    start_receiver: StartReceiver,
) -> None:
    """A second lookup would give another address, where nothing listens."""
    receiver = await start_receiver(OK)
    names = Names([["127.0.0.1"], ["127.0.0.2"]])
    assert await post(development(resolve=names), receiver.port, "localhost") == DONE
    assert names.asked == [("localhost", receiver.port)]


async def test_it_connects_to_what_was_checked_whatever_the_system_resolves(
    start_receiver: StartReceiver,
) -> None:
    """The system resolves the name to an address where another receiver listens."""
    other = await start_receiver(OK)
    checked = Receiver(other.reply)
    server = await checked.serve(None, "127.0.0.2", other.port)
    sender = development(resolve=Names([["127.0.0.2"]]))
    assert await post(sender, other.port, "localhost") == DONE
    assert (checked.connections, other.connections) == (1, 0)
    await until(lambda: not checked.answering)
    server.close()


async def test_a_loopback_name_that_leads_elsewhere_is_refused() -> None:
    sender = development(resolve=Names([["93.184.215.14"]]))
    with pytest.raises(WebhookFailed, match="not public"):
        await post(sender, 3000, "localhost")


async def test_the_next_address_is_tried(start_receiver: StartReceiver) -> None:
    receiver = await start_receiver(OK)
    names = Names([["127.0.0.2", "127.0.0.3", "127.0.0.1"]])
    assert await post(development(resolve=names), receiver.port, "localhost") == DONE


async def test_names_are_resolved_by_the_system(start_receiver: StartReceiver) -> None:
    receiver = await start_receiver(OK)
    assert await post(development(), receiver.port, "localhost") == DONE


async def test_a_name_that_does_not_resolve_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    sender = WebhookSender(allow_loopback=False)
    with pytest.raises(WebhookFailed):
        await sender.send("https://hooks.example/", b"", {})
    with pytest.raises(WebhookUrlRejected) as rejected:
        await sender.check_destination("https://hooks.example/")
    private = WebhookSender(allow_loopback=False, resolve=Names([["10.0.0.1"]]))
    with pytest.raises(WebhookUrlRejected) as internal:
        await private.check_destination("https://hooks.example/")
    assert str(rejected.value) == str(internal.value), "tells internal names from others"


async def test_a_rejected_url_is_not_sent_to() -> None:
    with pytest.raises(WebhookFailed):
        await WebhookSender(allow_loopback=False).send("http://127.0.0.1:1/", b"", {})


async def test_proxies_of_the_environment_are_not_used(
    start_receiver: StartReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, receiver = await start_receiver(OK), await start_receiver(OK)
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
    assert await post(development(), receiver.port) == DONE
    assert (proxy.connections, receiver.connections) == (0, 1)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_answers(start_receiver: StartReceiver, status: int) -> None:
    target = await start_receiver(OK)
    location = f"http://127.0.0.1:{target.port}/"
    receiver = await start_receiver(
        f"HTTP/1.1 {status} Moved\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n".encode()
    )
    assert await post(development(), receiver.port) == (status, b"")
    assert target.connections == 0


# TLS


async def test_a_certificate_must_be_of_the_name(
    start_receiver: StartReceiver, authority: Authority
) -> None:
    sender = development(tls=authority.client)
    for name, fits in (("localhost", True), ("127.0.0.1", False), ("other.example", False)):
        receiver = await start_receiver(OK, authority.servers[name])
        url = f"https://localhost:{receiver.port}/"
        if fits:
            assert await sender.send(url, b"", {}) == DONE
        else:
            with pytest.raises(WebhookFailed, match="certificate"):
                await sender.send(url, b"", {})
            assert receiver.requests == []


async def test_a_certificate_of_an_address(
    start_receiver: StartReceiver, authority: Authority
) -> None:
    receiver = await start_receiver(OK, authority.servers["127.0.0.1"])
    url = f"https://127.0.0.1:{receiver.port}/"
    assert await development(tls=authority.client).send(url, b"", {}) == DONE


async def test_expired_and_unknown_certificates_are_refused(
    start_receiver: StartReceiver, authority: Authority
) -> None:
    expired = await start_receiver(OK, authority.servers["expired"])
    unknown = await start_receiver(OK, authority.servers["localhost"])
    for receiver, tls in ((expired, authority.client), (unknown, None)):
        with pytest.raises(WebhookFailed, match="certificate"):
            await development(tls=tls).send(f"https://localhost:{receiver.port}/", b"", {})
        assert receiver.requests == []


async def test_plain_http_on_a_tls_port_and_the_reverse_fail(
    start_receiver: StartReceiver, authority: Authority
) -> None:
    plain = await start_receiver(OK)
    secure = await start_receiver(OK, authority.servers["localhost"])
    sender = development(tls=authority.client)
    with pytest.raises(WebhookFailed):
        await sender.send(f"https://localhost:{plain.port}/", b"", {})
    with pytest.raises(WebhookFailed):
        await sender.send(f"http://localhost:{secure.port}/", b"", {})


# The request


async def test_the_request(start_receiver: StartReceiver) -> None:
    receiver = await start_receiver(OK)
    await post(development(), receiver.port)
    head, _, body = receiver.requests[0].partition(b"\r\n\r\n")
    assert head.decode().split("\r\n") == [
        "POST /hook?a=1 HTTP/1.1",
        f"host: 127.0.0.1:{receiver.port}",
        "content-length: 2",
        "user-agent: tailrace",
        "accept: application/json",
        "accept-encoding: identity",
        "connection: close",
        "x-test: 1",
    ]
    assert body == b"{}"


@pytest.mark.parametrize(
    ("name", "value"), [("x", "1\r\ny: 2"), ("x\r\ny", "1"), ("x:", "1"), ("", "1"), ("x", "\0")]
)
async def test_headers_cannot_add_others(name: str, value: str) -> None:
    with pytest.raises(ValueError, match="header"):
        await development().send("http://127.0.0.1:1/", b"", {name: value})


# Answers

GOOD_ANSWERS = {
    "with a length": OK,
    "in chunks": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    b'7\r\n{"done"\r\n6;x=y\r\n:true}\r\n0\r\nx-trailer: 1\r\n\r\n',
    "until the end": b'HTTP/1.0 200 OK\r\n\r\n{"done":true}',
    "after informational ones": b"HTTP/1.1 100 Continue\r\n\r\n"
    b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" + OK,
    "with more behind it": OK + b"HTTP/1.1 500 No\r\ncontent-length: 3\r\n\r\nno!",
}


@pytest.mark.parametrize("answer", GOOD_ANSWERS.values(), ids=GOOD_ANSWERS)
@pytest.mark.parametrize("step", [1, 7, 1 << 20])
async def test_answers_are_read(start_receiver: StartReceiver, answer: bytes, step: int) -> None:
    async def reply(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for begin in range(0, len(answer), step):
            writer.write(answer[begin : begin + step])
            await asyncio.sleep(0)

    receiver = await start_receiver(reply)
    assert await post(development(), receiver.port) == DONE


@pytest.mark.parametrize("status", [200, 202, 204, 304, 400, 404, 410, 429, 500, 503])
async def test_every_status_is_an_answer(start_receiver: StartReceiver, status: int) -> None:
    receiver = await start_receiver(b"HTTP/1.1 %d X\r\ncontent-length: 0\r\n\r\n" % status)
    assert await post(development(), receiver.port) == (status, b"")


async def test_the_largest_answer(start_receiver: StartReceiver) -> None:
    body = b"x" * WEBHOOK_ANSWER_BYTES
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body)
    receiver = await start_receiver(head + body)
    assert await post(development(), receiver.port) == (200, body)


BAD_ANSWERS = {
    "nothing": b"",
    "no HTTP": b"220 mail.example ESMTP\r\n",
    "an older version": b'{"done":true}',
    "binary": bytes(range(256)) * 8,
    "half a head": b"HTTP/1.1 200 OK\r\ncontent-le",
    "half a body": b'HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n{"done"',
    "half of the chunks": b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n7\r\n{"done"',
    "bad chunks": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx",
    "both framings": b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n"
    b"0\r\n\r\n",
    "a negative length": b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
    "a switch of protocols": b"HTTP/1.1 101 X\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nxx",
    "informational answers only": b"HTTP/1.1 100 Continue\r\n\r\n" * 3,
}


@pytest.mark.parametrize("answer", BAD_ANSWERS.values(), ids=BAD_ANSWERS)
async def test_garbled_answers_have_failed(start_receiver: StartReceiver, answer: bytes) -> None:
    receiver = await start_receiver(answer)
    with pytest.raises(WebhookFailed):
        await post(development(), receiver.port)
    assert receiver.connections == 1, "a request is not repeated here"


ENDLESS = {
    "body": (b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 4096),
    "length": (b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n", b"x" * 4096),
    "chunks": (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 512),
    "chunk extension": (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;", b"x" * 4096),
    "trailers": (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n",
        b"x-trailer: 1\r\n" * 256,
    ),
    "status": (b"HTTP/1.1 200 ", b"x" * 4096),
    "header": (b"HTTP/1.1 200 OK\r\nx: ", b"x" * 4096),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n" * 512),
    "informational": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 128),
}


@pytest.mark.parametrize(("begin", "more"), ENDLESS.values(), ids=ENDLESS)
async def test_endless_answers_are_cut_off(
    start_receiver: StartReceiver, begin: bytes, more: bytes
) -> None:
    written = 0

    async def reply(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(begin)
        while True:
            writer.write(more)
            await writer.drain()
            written += len(more)

    receiver = await start_receiver(reply)
    with pytest.raises(WebhookFailed, match=f"{WEBHOOK_ANSWER_BYTES}|{WEBHOOK_HEAD_BYTES}|HTTP"):
        await post(development(), receiver.port)
    # What the buffers of the system hold is written, too.
    assert written < 32 << 20


SLOW = {
    "no answer": [],
    "half a head": [b"HTTP/1.1 200 OK\r\n"],
    "half a body": [b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n", b'{"done'],
}


@pytest.mark.parametrize("pieces", SLOW.values(), ids=SLOW)
@pytest.mark.parametrize("drip", [False, True])
async def test_slow_answers_are_cut_off(
    start_receiver: StartReceiver,
    monkeypatch: pytest.MonkeyPatch,
    pieces: list[bytes],
    drip: bool,
) -> None:
    monkeypatch.setattr(webhook_sender, "WEBHOOK_SECONDS", 0.3)
    gone = asyncio.Event()

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
        if drip and pieces:
            writer.write(b"x")
        await reader.read()
        gone.set()

    receiver = await start_receiver(reply)
    with pytest.raises(WebhookFailed, match="no answer within"):
        await post(development(), receiver.port)
    async with asyncio.timeout(30):
        await gone.wait()


async def test_a_receiver_that_accepts_no_tls_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(webhook_sender, "WEBHOOK_CONNECT_SECONDS", 0.3)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read()
        writer.close()
        gone.set()

    gone = asyncio.Event()
    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(WebhookFailed, match="no connection within"):
        await development().send(f"https://localhost:{port}/", b"", {})
    async with asyncio.timeout(30):
        await gone.wait()
    server.close()


async def test_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(WebhookFailed, match="connection failed"):
        await post(development(), port)


# Concurrency


async def test_requests_to_one_host_leave_room_for_others(start_receiver: StartReceiver) -> None:
    release = asyncio.Event()
    waiting = 0

    async def reply(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal waiting
        waiting += 1
        await release.wait()
        writer.write(OK)

    slow, quick = await start_receiver(reply), await start_receiver(OK)
    sender = development()
    posts = [asyncio.create_task(post(sender, slow.port)) for _ in range(WEBHOOK_CONCURRENCY)]
    await until(lambda: waiting == WEBHOOK_HOST_CONCURRENCY)
    # Another name of the same machine is another host.
    assert await post(sender, quick.port, "localhost") == DONE
    assert waiting == WEBHOOK_HOST_CONCURRENCY
    release.set()
    assert await asyncio.gather(*posts) == [DONE] * WEBHOOK_CONCURRENCY
    assert sender._hosts == {}


async def test_a_request_that_finds_no_slot_in_time_has_failed(
    start_receiver: StartReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_sender, "WEBHOOK_HOST_CONCURRENCY", 1)
    release = asyncio.Event()

    async def reply(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.write(OK)

    receiver = await start_receiver(reply)
    sender = development()
    first = asyncio.create_task(post(sender, receiver.port))
    await until(lambda: receiver.requests != [])
    with monkeypatch.context() as shorter:
        shorter.setattr(webhook_sender, "WEBHOOK_SECONDS", 0.1)
        with pytest.raises(WebhookFailed, match="too many"):
            await post(sender, receiver.port)
    release.set()
    assert await first == DONE
    assert await post(sender, receiver.port) == DONE


async def test_slow_lookups_are_bounded_and_leave_the_executor_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release, slow = threading.Event(), 0

    def look_up(*_: object, **__: object) -> list[Any]:
        nonlocal slow
        slow += 1
        release.wait(60)
        raise socket.gaierror(socket.EAI_AGAIN, "later")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(webhook_sender, "WEBHOOK_CONNECT_SECONDS", 0.2)
    sender = WebhookSender(allow_loopback=False)
    checks = [
        sender.check_destination(f"https://hooks{number}.example/")
        for number in range(WEBHOOK_LOOKUPS + 4)
    ]
    outcomes = await asyncio.gather(*checks, return_exceptions=True)
    assert all(isinstance(each, WebhookUrlRejected) for each in outcomes)
    assert slow == WEBHOOK_LOOKUPS
    assert await asyncio.to_thread(lambda: "free") == "free"
    release.set()
    # The slots of lookups that nobody waits for any more are free again.
    resolver = sender._resolve
    assert isinstance(resolver, webhook_sender._HostResolver)
    await until(lambda: not resolver._free.locked())


async def test_a_cancelled_request_frees_its_slot(start_receiver: StartReceiver) -> None:
    async def reply(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    receiver = await start_receiver(reply)
    sender = development()
    sending = asyncio.create_task(post(sender, receiver.port))
    await until(lambda: receiver.requests != [])
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert sender._hosts == {}
    assert sender._slots._value == WEBHOOK_CONCURRENCY
