"""Hosts that are internal as they are written, and the list of those that the operator allows."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address

import httpx
import pytest

from convserver import configuration
from convserver.variables import ConfigurationError
from sessions_app.outbound import hosts
from sessions_app.outbound.hosts import HostRefused
from sessions_app.outbound.internal import InternalAddress, parse_all

pytestmark = pytest.mark.one_engine

INTERNAL = [
    *(
        "http://127.0.0.1:6379",
        "http://localhost:8000/v1",
        "http://localhost.",
        "http://127.0.0.1.",
        "http://0",
    ),
    *("https://10.0.0.7/v1", "http://2130706433", "http://0x7f.1", "http://017700000001", "http://[::1]"),
    *("http://1.2.3.4.5", "http://127.1", "http://0xA9FEA9FE", "http://10.7"),
    # Where clouds hand out what their machines may know and do.
    *("http://169.254.169.254/latest", "http://168.63.129.16/metadata", "http://100.100.100.200"),
    *("http://192.0.0.192", "http://[fd00:ec2::254]", "http://[fd20:ce::254]", "http://0xA83F8110"),
    *("http://161.26.0.10", "http://166.9.1.2"),
    # IPv6 that stands for IPv4: mapped, compatible, translated, 6to4, Teredo, ISATAP.
    *("http://[::ffff:168.63.129.16]", "http://[::127.0.0.1]", "http://[::ffff:0:10.0.0.1]"),
    *("http://[64:ff9b::a00:1]", "http://[64:ff9b:1::a00:1]", "http://[2002:a83f:8110::1]"),
    *("http://[2001:0:4136:e378:8000:63bf:5601:fefe]", "http://[2606:4700::5efe:a00:1]"),
    *("http://[fe80::1]", "http://[fec0::1]", "http://[ff02::1]", "http://[5f00::1]"),
    # Names that are looked up inside only.
    *(
        "http://redis:6379",
        "http://metadata.google.internal/",
        "https://printer.local",
        "https://nas.home.arpa.",
    ),
    *("http://METADATA.google.INTERNAL", "http://x.localhost", "http://db.localdomain", "http://postgres."),
]
PUBLIC = [
    *("https://models.example.org/v1", "https://models.example.org.", "https://8.8.8.8", "https://134744072"),
    *("https://[2001:4860:4860::8888]", "https://[::ffff:8.8.8.8]", "https://internal.example.org"),
    *("https://168.63.129.17", "https://xn--strae-oqa.example.org", "https://local.example.org"),
]


def is_refused(url: str) -> bool:
    try:
        hosts.require_allowed(httpx.URL(url))
    except HostRefused:
        return True
    return False


def test_a_host_that_is_internal_as_it_is_written_is_refused_and_a_public_one_is_not(
    accounts: None, subtests: pytest.Subtests
) -> None:
    for url in (*INTERNAL, *PUBLIC):
        with subtests.test(url=url):
            assert hosts.server_url(url) is not None
            assert is_refused(url) is (url in INTERNAL)


def test_without_accounts_any_host_may_be_named() -> None:
    assert not any(map(is_refused, INTERNAL))


def test_the_operator_lists_names_addresses_and_networks_with_a_port_or_without(
    configured: Callable[..., None], accounts: None, subtests: pytest.Subtests
) -> None:
    rows = {
        "ollama": (["http://ollama", "http://OLLAMA.:11434"], ["http://ollama.local", "http://my-ollama"]),
        "ollama:11434": (["http://ollama:11434"], ["http://ollama", "http://ollama:11435"]),
        "git.corp.internal:443": (["https://git.corp.internal"], ["http://git.corp.internal"]),
        "10.0.0.7": (
            ["http://10.0.0.7", "http://0x0a000007:1", "http://[::ffff:10.0.0.7]"],
            ["http://10.0.0.8"],
        ),
        "10.1.0.0/16:80": (["http://10.1.2.3"], ["https://10.1.2.3", "http://10.2.0.1"]),
        "fd00::/8": (["http://[fd12::1]:8"], ["http://[fe80::1]"]),
        "[fd00::7]:8443": (["http://[fd00::7]:8443"], ["http://[fd00::7]", "http://[fd00::8]:8443"]),
        "[fd00::/64]:80": (["http://[fd00::9]"], ["https://[fd00::9]"]),
        "127.0.0.1": (["http://127.0.0.1:5", "http://127.1"], ["http://localhost", "http://127.0.0.2"]),
    }
    for entry, (allowed, refused) in rows.items():
        configured(internal_addresses=parse_all([entry]))
        for url in (*allowed, *refused):
            with subtests.test(entry=entry, url=url):
                assert is_refused(url) is (url in refused)


def test_an_address_in_a_listed_network_may_be_asked_by_any_name() -> None:
    entry = InternalAddress.parse("10.1.0.0/16:443")
    assert entry.admits_address(ip_address("10.1.2.3"), 443)
    assert not entry.admits_address(ip_address("10.1.2.3"), 80)


def test_an_entry_that_is_none_stops_the_start_with_a_sentence(subtests: pytest.Subtests) -> None:
    for text in (
        *("http://ollama", "ollama:0", "ollama:65536", "10.0.0.1/8", "0.0.0.0/0", "::/0", "10.0.0.256"),
        *("a b", "[fd00::7", "fd00::/8:443", "*.corp", "ollama:x", "-", "[10.0.0]:1", "user@host"),
    ):
        with subtests.test(text=text), pytest.raises(ConfigurationError) as error:
            configuration.read({"CONVSERVER_INTERNAL_ADDRESSES": f"10.0.0.7,{text}", "SECRET_KEY": "k" * 40})
        assert "CONVSERVER_INTERNAL_ADDRESSES" in str(error.value)
