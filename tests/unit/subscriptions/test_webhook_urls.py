"""Where webhooks may be: every spelling and address by which a request would leave the internet."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from tailrace.errors import WebhookUrlRejected
from tailrace.limits import WEBHOOK_URL_BYTES
from tailrace.protocols.subscriptions.webhook_urls import (
    is_loopback,
    is_public,
    parse_webhook_url,
)

ACCEPTED = {
    "https://hooks.example/in": ("hooks.example", 443, "/in"),
    "https://hooks.example": ("hooks.example", 443, "/"),
    "https://hooks.example?a=1": ("hooks.example", 443, "/?a=1"),
    "HTTPS://Hooks.EXAMPLE:8443/In?a=%20b&c[]=d": ("hooks.example", 8443, "/In?a=%20b&c[]=d"),
    "https://xn--bcher-kva.example/": ("xn--bcher-kva.example", 443, "/"),
    "https://a-1.b2.example:443/x/../y": ("a-1.b2.example", 443, "/x/../y"),
    "https://8.8.8.8/hook": ("8.8.8.8", 443, "/hook"),
    "https://[2606:4700::1111]:8443/": ("2606:4700::1111", 8443, "/"),
    "https://[2606:4700:0:0:0:0:0:1111]/": ("2606:4700::1111", 443, "/"),
}

NOT_HTTPS = (
    "http://hooks.example/in",
    "http://8.8.8.8/in",
    "ftp://hooks.example/",
    "file:///etc/passwd",
    "gopher://hooks.example:70/_x",
    "javascript:alert(1)",
    "//hooks.example/in",
    "hooks.example/in",
    "https:hooks.example",
    "https:/hooks.example/in",
    "",
)

ODD_SPELLINGS = (
    "https://user@hooks.example/",
    "https://user:password@hooks.example/",
    "https://hooks.example@127.0.0.1/",
    "https://127.0.0.1%40hooks.example/",
    "https://hooks.example#@127.0.0.1/",
    "https://hooks.example/#fragment",
    "https://hooks.example/#",
    "https://hooks.example\\@127.0.0.1/",
    "https:\\\\hooks.example/",
    "https://hooks.example/a b",
    "https://hooks.example/\t",
    "https://hooks.example/\r\nHost: other",
    "https://hooks\n.example/",
    " https://hooks.example/",
    "https://hooks.example/\x00",
    "https://hooks.example/ü",
    "https://hooks.example/%zz",
    "https://hooks.example/<x>",
    "https://bücher.example/",
    "https://ｈooks.example/",
    "https://①②⑦.⓪.⓪.①/",
    "https://127。0。0。1/",
    "https://hooks.example./",
    "https://127.0.0.1./",
    "https://hooks..example/",
    "https://.hooks.example/",
    "https://-hooks.example/",
    "https://hooks-.example/",
    "https://ho_oks.example/",
    "https://ho%6fks.example/",
    "https://hooks.example:/",
    "https://hooks.example:0/",
    "https://hooks.example:65536/",
    "https://hooks.example:0443/",
    "https://hooks.example:+443/",
    "https://hooks.example:443:443/",
    "https://hooks.example:44a/",
    "https:///in",
    "https://:443/in",
    f"https://{'a' * 64}.example/",
    f"https://{'a.' * 130}example/",
    f"https://hooks.example/{'a' * WEBHOOK_URL_BYTES}",
    "https://[2606:4700::1111/",
    "https://2606:4700::1111/",
    "https://[2606:4700::1111]x/",
    "https://[fe80::1%25eth0]/",
    "https://[fe80::1%eth0]/",
    "https://[::1%251]/",
    "https://[hooks.example]/",
    "https://[8.8.8.8]/",
    "https://[v1.fe80::]/",
    "https://[]/",
)

OTHER_PORTS = tuple(f"https://hooks.example:{port}/" for port in (22, 25, 80, 3306, 6379, 9200))

ODD_IPV4 = (
    "https://2130706433/",  # decimal
    "https://0x7f000001/",
    "https://0x7f.0.0.1/",
    "https://0x7F.1/",
    "https://0177.0.0.1/",  # octal
    "https://017700000001/",
    "https://127.1/",
    "https://127.0.1/",
    "https://8.8.8.08/",
    "https://8.8.8.256/",
    "https://8.8.8.8.8/",
    "https://8.8.8/",
    "https://hooks.0x/",
    "https://hooks.1/",
    "https://4294967296/",
)

LOCAL_NAMES = (
    "https://localhost/",
    "https://LOCALHOST/",
    "https://app.localhost/",
    "https://intranet/",
    "https://metadata/",
    "https://printer.local/",
    "https://metadata.google.internal/",
    "https://ip-10-0-0-1.eu-west-1.compute.internal/",
    "https://nas.home.arpa/",
    "https://1.0.0.127.in-addr.arpa/",
    "https://router.lan/",
)

NOT_PUBLIC = (
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200",
    "100.127.255.255", "127.0.0.1", "127.8.8.8", "168.63.129.16", "169.254.169.254",
    "169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1",
    "192.168.0.1", "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.9", "224.0.0.1",
    "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:a9fe:a9fe",
    "::ffff:0:10.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b::8.8.8.8", "64:ff9b:1::1", "100::1",
    "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:2::1", "2001:10::1", "2001:20::1",
    "2001:db8::1", "2002:7f00:1::", "2002:a00:1::1", "3fff::1", "5f00::1", "fc00::1",
    "fd00:ec2::254", "fd12:3456:789a::1", "fe80::1", "fec0::1", "ff02::1", "ff0e::1",
)  # fmt: skip

PUBLIC = (
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0",
    "126.255.255.255", "128.0.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0", "223.255.255.255",
    "2606:4700::1111", "2001:200::1", "2001:4860:4860::8888", "2a05:d018::1", "2003::1",
)  # fmt: skip

LOOPBACK = (
    "http://localhost:3000/hook",
    "http://127.0.0.1:3000/hook",
    "http://127.8.9.1:3000/hook",
    "http://[::1]:3000/hook",
    "http://[0:0:0:0:0:0:0:1]:3000/hook",
    "http://localhost/hook",
    "https://localhost:3000/hook",
)

NEARLY_LOOPBACK = (
    "http://10.0.0.1/hook",
    "http://0.0.0.0:3000/hook",
    "http://[::]:3000/hook",
    "http://[::ffff:127.0.0.1]:3000/hook",
    "http://[::127.0.0.1]:3000/hook",
    "http://localhost.:3000/hook",
    "http://app.localhost:3000/hook",
    "http://localhost.example:3000/hook",
    "http://127.0.0.1.example:3000/hook",
    "http://127.1:3000/hook",
    "http://2130706433:3000/hook",
    "http://128.0.0.1:3000/hook",
    "http://user@localhost:3000/hook",
    "http://localhost:3000/hook#x",
    "http://169.254.169.254/latest/meta-data/",
)


@pytest.mark.parametrize("url", ACCEPTED)
def test_public_urls_are_accepted(url: str) -> None:
    parsed = parse_webhook_url(url, allow_loopback=False)
    assert (parsed.host, parsed.port, parsed.target) == ACCEPTED[url]
    assert parsed.secure
    assert not parsed.loopback


@pytest.mark.parametrize("allow_loopback", [False, True])
@pytest.mark.parametrize(
    "url", NOT_HTTPS + ODD_SPELLINGS + OTHER_PORTS + ODD_IPV4 + NEARLY_LOOPBACK
)
def test_other_urls_are_rejected(url: str, allow_loopback: bool) -> None:
    with pytest.raises(WebhookUrlRejected):
        parse_webhook_url(url, allow_loopback=allow_loopback)


@pytest.mark.parametrize("url", LOCAL_NAMES + LOOPBACK)
def test_local_names_are_rejected(url: str) -> None:
    with pytest.raises(WebhookUrlRejected):
        parse_webhook_url(url, allow_loopback=False)


@pytest.mark.parametrize("url", LOOPBACK)
def test_loopback_is_accepted_for_development(url: str) -> None:
    parsed = parse_webhook_url(url, allow_loopback=True)
    assert parsed.loopback
    assert parsed.may_connect_to(ip_address("127.0.0.1"))
    assert parsed.may_connect_to(ip_address("::1"))
    assert not parsed.may_connect_to(ip_address("10.0.0.1"))
    assert not parsed.may_connect_to(ip_address("8.8.8.8"))
    assert not parsed.may_connect_to(ip_address("::ffff:127.0.0.1"))


@pytest.mark.parametrize("allow_loopback", [False, True])
@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_addresses_that_are_not_public_are_rejected(address: str, allow_loopback: bool) -> None:
    assert not is_public(ip_address(address))
    host = f"[{address}]" if ":" in address else address
    if not (allow_loopback and is_loopback(ip_address(address))):
        with pytest.raises(WebhookUrlRejected):
            parse_webhook_url(f"https://{host}/", allow_loopback=allow_loopback)
    named = parse_webhook_url("https://hooks.example/", allow_loopback=allow_loopback)
    assert not named.may_connect_to(ip_address(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_accepted(address: str) -> None:
    named = parse_webhook_url("https://hooks.example/", allow_loopback=True)
    assert named.may_connect_to(ip_address(address))


def test_the_host_header_has_brackets_and_a_port_only_where_needed() -> None:
    def authority(url: str) -> str:
        return parse_webhook_url(url, allow_loopback=True).authority

    assert authority("https://hooks.example/") == "hooks.example"
    assert authority("https://hooks.example:8443/") == "hooks.example:8443"
    assert authority("https://[2606:4700::1]:8443/") == "[2606:4700::1]:8443"
    assert authority("http://localhost/") == "localhost"
    assert authority("http://localhost:443/") == "localhost:443"
