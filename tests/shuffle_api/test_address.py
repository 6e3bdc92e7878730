"""Addresses: what is one, what is none, and that each is written as it is read."""

from __future__ import annotations

import re

import pytest

from shuffle_api.address import Address, parse_address, parse_addresses, parse_host
from shuffle_api.errors import InvalidArgument


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("localhost:9110", "localhost"),
        ("10.0.0.1:9110", "10.0.0.1"),
        ("shuffle_master-0.pods:9110", "shuffle_master-0.pods"),
        ("[::1]:9110", "::1"),
        ("[fe80::1%eth0]:9110", "fe80::1%eth0"),
    ],
)
def test_an_address_is_written_as_it_is_read(text: str, host: str) -> None:
    assert parse_address(text, "server") == Address(host, 9110)
    assert str(parse_address(text, "server")) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", ":", "host", "host:", ":1", "host:port", "host:0", "host:65536", "host:-1", "host:1\u0663"),
        *("::1:9110", "[]:1", "[::1:1", "::1]:1", "[host]:1", "[[::1]]:1"),
        *("grpc://host:1", "host/path:1", "me@host:1", "a b:1", "a:1,b:2"),
    ],
)
def test_what_is_no_address_is_named(text: str) -> None:
    with pytest.raises(InvalidArgument, match="option 'server' .* is not HOST:PORT"):
        parse_address(text, "option 'server'")


@pytest.mark.parametrize(
    ("text", "host"),
    [("shuffle_master-0.pods", "shuffle_master-0.pods"), ("10.0.0.1", "10.0.0.1"), ("::1", "::1"), ("[::1]", "::1")],
)
def test_a_host_stands_without_a_port(text: str, host: str) -> None:
    assert parse_host(text, "--advertise") == host


@pytest.mark.parametrize("text", ["", "h:1", "http://x y", "[h]", "[::1]:1", "a,b", "0.0.0.0", "[::]"])
def test_what_is_no_host_that_clients_reach_is_named(text: str) -> None:
    with pytest.raises(InvalidArgument, match="--advertise .* is "):
        parse_host(text, "--advertise")


def test_an_ipv6_address_without_brackets_is_shown_with_them() -> None:
    with pytest.raises(InvalidArgument, match=re.escape("in brackets, [2001:db8::1]:9110")):
        parse_address("2001:db8::1:9110", "server")


def test_any_port_is_for_those_that_listen() -> None:
    assert parse_address("[::1]:0", "--listen", any_port=True) == Address("::1", 0)


def test_several_addresses_keep_their_order_and_each_is_there_once() -> None:
    found = parse_addresses("b:1, [::1]:2,b:1,a:3", "server")
    assert [str(each) for each in found] == ["b:1", "[::1]:2", "a:3"]
    for wrong in ("a:1,", ",", "a:1,,b:2", "a:1;b:2"):
        with pytest.raises(InvalidArgument):
            parse_addresses(wrong, "server")


@pytest.mark.parametrize(
    ("host", "wildcard"), [("0.0.0.0", True), ("::", True), ("127.0.0.1", False), ("::1", False), ("all", False)]
)
def test_a_wildcard_is_nobodys_address(host: str, wildcard: bool) -> None:
    assert Address(host, 1).is_wildcard is wildcard
