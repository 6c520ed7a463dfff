from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Reply = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Authority(NamedTuple):
    """A certificate authority of the test, and servers with its certificates."""

    client: ssl.SSLContext
    servers: dict[str, ssl.SSLContext]
    """By the name in the certificate."""


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    place = tmp_path_factory.mktemp("authority")
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    root_key = ec.generate_private_key(ec.SECP256R1())
    root_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Test CA")])

    def certify(
        key: ec.EllipticCurvePrivateKey, name: x509.Name, days: int, *extensions: x509.ExtensionType
    ) -> x509.Certificate:
        builder = x509.CertificateBuilder(
            root_name, name, key.public_key(), x509.random_serial_number(), now - 2 * day,
            now + days * day,
        )  # fmt: skip
        for each in extensions:
            builder = builder.add_extension(each, critical=isinstance(each, x509.BasicConstraints))
        return builder.sign(root_key, hashes.SHA256())

    def serve(name: str, days: int = 1) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        try:
            alternative: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(name))
        except ValueError:
            alternative = x509.DNSName(name)
        certificate = certify(key, subject, days, x509.SubjectAlternativeName([alternative]))
        file = place / f"{name}-{days}.pem"
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    root = certify(root_key, root_name, 1, x509.BasicConstraints(ca=True, path_length=0))
    pem = root.public_bytes(serialization.Encoding.PEM).decode()
    names = ("localhost", "127.0.0.1", "other.example")
    servers = {name: serve(name) for name in names} | {"expired": serve("localhost", -1)}
    return Authority(ssl.create_default_context(cadata=pem), servers)


@dataclass
class Receiver:
    """A server on loopback that answers every connection as it is told."""

    reply: Reply
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)
    port: int = 0
    answering: set[asyncio.Task[None] | None] = field(default_factory=set)

    async def serve(
        self, tls: ssl.SSLContext | None, address: str = "127.0.0.1", port: int = 0
    ) -> asyncio.Server:
        server = await asyncio.start_server(self._accept, address, port, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.answering.add(asyncio.current_task())
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            self.requests.append(head + await reader.readexactly(length))
            await self.reply(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            self.answering.discard(asyncio.current_task())


StartReceiver = Callable[..., Awaitable[Receiver]]


@pytest.fixture
async def start_receiver() -> AsyncIterator[StartReceiver]:
    servers: list[asyncio.Server] = []
    receivers: list[Receiver] = []

    async def start(reply: Reply | bytes, tls: ssl.SSLContext | None = None) -> Receiver:
        async def send(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert isinstance(reply, bytes)
            writer.write(reply)
            await writer.drain()

        receiver = Receiver(send if isinstance(reply, bytes) else reply)
        receivers.append(receiver)
        servers.append(await receiver.serve(tls))
        return receiver

    yield start
    for server in servers:
        server.close()
    await until(lambda: not any(receiver.answering for receiver in receivers))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)
