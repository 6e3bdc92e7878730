"""Tokens, headers and what a principal may: pure rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffle_api.errors import InvalidArgument, PermissionDenied, Unauthenticated
from shuffle_transport.security import (
    ANYBODY,
    NO_CREDENTIALS,
    Credentials,
    Keyring,
    Principal,
    TlsFiles,
    app_token,
    authenticate,
    check_secret,
    check_token,
    cluster_token,
    same_token,
)

SECRET = bytes(range(32))
APPS = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}", fullmatch=True)
SECRETS = st.binary(min_size=32, max_size=80)


def test_derivation_gives_the_tokens_of_the_protocol_document() -> None:
    assert app_token(SECRET, "app-a") == "f4XgHHAzVMZ_93PAU5bsU7l-9mihTt6q4Xd4KLPiupk="
    assert cluster_token(SECRET) == "VBkfKEBVnTW2Xrs6CwpKmGR4yQKfwTDT0W9TtVNuevk="


@given(SECRETS, APPS, APPS)
def test_tokens_differ_by_application_and_from_the_clusters(secret: bytes, one: str, other: str) -> None:
    assert (app_token(secret, one) == app_token(secret, other)) == (one == other)
    assert app_token(secret, one) != cluster_token(secret)


@given(SECRETS, SECRETS, APPS)
def test_tokens_differ_by_secret(one: bytes, other: bytes, app: str) -> None:
    if one.ljust(64, b"\0") != other.ljust(64, b"\0"):  # HMAC pads its key with zeros: the same key to it
        assert app_token(one, app) != app_token(other, app)
        assert cluster_token(one) != cluster_token(other)


@given(SECRETS, APPS)
def test_headers_of_an_application_authenticate_it_and_no_other(secret: bytes, app: str) -> None:
    headers = dict(Keyring(secret=secret).for_app(app).headers())
    principal = authenticate(secret, [headers["authorization"]], [headers["flight-shuffle-app"]])
    assert principal == Principal(app)
    principal.check(app)
    with pytest.raises(PermissionDenied, match=r"with the token of application"):
        principal.check(app + "x")


@pytest.mark.parametrize("apps", [[], ["app-a"]])
def test_the_clusters_token_is_for_everybodys_data_whatever_application_goes_with_it(apps: list[str]) -> None:
    principal = authenticate(SECRET, [f"Bearer {cluster_token(SECRET)}"], apps)
    assert principal is ANYBODY
    principal.check("app-a")
    principal.check("app-b")


A = app_token(SECRET, "app-a")


@pytest.mark.parametrize(
    ("tokens", "apps"),
    [
        ([], []),
        ([], ["app-a"]),
        ([""], ["app-a"]),
        (["Bearer"], ["app-a"]),
        (["Bearer "], ["app-a"]),
        ([A], ["app-a"]),
        ([f"Basic {A}"], ["app-a"]),
        ([f"Bearer {A[:-1]}"], ["app-a"]),
        ([f"Bearer {A}="], ["app-a"]),
        ([f"Bearer {A} "], ["app-a"]),
        ([f"Bearer {A.lower()}"], ["app-a"]),
        ([f"Bearer {A}"], []),
        ([f"Bearer {A}"], [""]),
        ([f"Bearer {A}"], ["app-b"]),
        ([f"Bearer {A}"], ["app-a", "app-b"]),
        ([f"Bearer {A}", f"Bearer {A}"], ["app-a"]),
        ([f"Bearer {app_token(bytes(32), 'app-a')}"], ["app-a"]),
        ([f"Bearer {cluster_token(bytes(32))}"], []),
        (["Bearer \udcff\u20ac"], ["app-a"]),
    ],
)
def test_every_other_pair_of_headers_is_refused_without_showing_a_token(tokens: list[str], apps: list[str]) -> None:
    with pytest.raises(Unauthenticated) as refused:
        authenticate(SECRET, tokens, apps)
    assert "flight-shuffle token" in str(refused.value) or "token_file" in str(refused.value)
    assert A[:12] not in repr(refused.value) + str(refused.value)


def test_the_scheme_is_read_in_any_case() -> None:
    assert authenticate(SECRET, [f"bearer {A}"], ["app-a"]) == Principal("app-a")


@given(st.text(), st.text())
def test_same_token_is_equality(one: str, other: str) -> None:
    if one.isprintable() and other.isprintable():
        assert same_token(one, other) == (one == other)


def test_no_repr_shows_a_secret_a_token_or_a_key() -> None:
    tls = TlsFiles(b"the-ca", b"the-cert", b"the-key")
    shown = repr((Credentials("app-a", "the-token", tls), Keyring(tls, b"the-secret", "the-token")))
    assert "app-a" in shown
    for hidden in ("the-token", "the-secret", "the-key"):
        assert hidden not in shown


def test_a_keyring_without_a_secret_hands_out_its_token() -> None:
    assert Keyring(token="t").for_app("app-a") == Credentials("app-a", "t")
    assert Keyring(token="t").for_cluster() == Credentials("", "t")
    assert Keyring().for_cluster() == NO_CREDENTIALS
    assert NO_CREDENTIALS.headers() == ()


def test_a_keyring_with_a_secret_admits_as_the_server_does() -> None:
    keys = Keyring(secret=SECRET)
    for credentials in (keys.for_app("app-a"), keys.for_cluster()):
        headers = dict(credentials.headers())
        tokens, apps = (
            [headers["authorization"]],
            [headers[name] for name in ("flight-shuffle-app",) if name in headers],
        )
        assert keys.admit(tokens, apps) == authenticate(SECRET, tokens, apps)
    with pytest.raises(Unauthenticated):
        keys.admit([f"Bearer {app_token(SECRET, 'app-a')}"], ["app-b"])


def test_a_keyring_with_a_token_admits_the_same_for_the_application_it_is_shown_for() -> None:
    assert Keyring(token="t").admit(["Bearer t"], ["app-a"]) == Principal("app-a")


@pytest.mark.parametrize(
    ("tokens", "apps"),
    [
        ([], ["app-a"]),
        (["Bearer u"], ["app-a"]),
        (["Bearer t"], []),
        (["Bearer t"], [""]),
        (["Bearer t"], ["app-a", "app-b"]),
        (["Bearer t", "Bearer t"], ["app-a"]),
        (["Basic t"], ["app-a"]),
        (["Bearer "], ["app-a"]),
    ],
)
def test_a_keyring_with_a_token_admits_nobody_else(tokens: list[str], apps: list[str]) -> None:
    with pytest.raises(Unauthenticated) as raised:
        Keyring(token="t").admit(tokens, apps)
    assert "Bearer" not in str(raised.value)


def test_a_keyring_of_nothing_wants_no_token_and_admits_nobody_with_one() -> None:
    assert not Keyring().wants_tokens
    with pytest.raises(Unauthenticated):
        Keyring().admit(["Bearer "], ["app-a"])
    assert Keyring().for_app("app-a") == Keyring().for_app("app-b")


def test_a_short_secret_is_refused_by_name_and_not_shown() -> None:
    assert check_secret(b"x" * 32 + b"\r\n", "file") == b"x" * 32
    with pytest.raises(InvalidArgument, match=r"/etc/secret has 31 bytes.*openssl rand") as refused:
        check_secret(b"x" * 31 + b"\n", "/etc/secret")
    assert "xxx" not in str(refused.value)


def test_a_token_loses_white_space_around_it_and_has_none_inside() -> None:
    assert check_token(f" {A}\n", "file") == A
    for wrong in ("", "\n", "a b", "a\nb", "\u20ac"):
        with pytest.raises(InvalidArgument, match="/etc/token holds no token"):
            check_token(wrong, "/etc/token")
