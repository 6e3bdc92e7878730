"""Tokens, headers and the rights of a principal: pure rules."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffle_api.errors import InvalidArgument, PermissionDenied, Unauthenticated
from shuffle_transport.security import (
    ANYBODY,
    NO_CREDENTIALS,
    Admission,
    Credentials,
    Keyring,
    Principal,
    TlsFiles,
    check_secrets,
)
from shuffle_transport.tokens import (
    LEEWAY_SECONDS,
    ExpiredToken,
    RevokedApp,
    app_token,
    check_token,
    cluster_token,
    expiry_of,
    same_token,
    worker_token,
)

SECRET = bytes(range(32))
APPS = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}", fullmatch=True)
SECRETS = st.binary(min_size=32, max_size=80)


def test_derivation_gives_the_tokens_of_the_protocol_document() -> None:
    assert app_token(SECRET, "app-a") == "f4XgHHAzVMZ_93PAU5bsU7l-9mihTt6q4Xd4KLPiupk="
    assert cluster_token(SECRET) == "VBkfKEBVnTW2Xrs6CwpKmGR4yQKfwTDT0W9TtVNuevk="
    assert app_token(SECRET, "app-a", 1_800_000_000) == "v2.1800000000.PbHvSadJGYR78Un8uRwAjBH2jLSbahTYyoKi_T1d3oU="
    assert cluster_token(SECRET, 1_800_000_000) == "v2.1800000000.obZKUxGCmJt6xEOpmrBN-1HLZBtEpuCxcFk1DCkKTYw="
    assert (
        worker_token(SECRET, "w-1", 1_800_000_000)
        == "worker.w-1.1800000000.OCKkf_1bT1EU6MPmpqy_QAQSDotwMelyp9faI1hEbEM="
    )


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
    headers = dict(Keyring(secrets=(secret,)).for_app(app).headers())
    principal = Admission((secret,)).authenticate([headers["authorization"]], [headers["flight-shuffle-app"]])
    assert principal == Principal(app)
    principal.check(app)
    with pytest.raises(PermissionDenied, match=r"with the token of application"):
        principal.check(app + "x")


@pytest.mark.parametrize("apps", [[], ["app-a"]])
def test_the_clusters_token_is_for_everybodys_data_whatever_application_goes_with_it(apps: list[str]) -> None:
    principal = Admission((SECRET,)).authenticate([f"Bearer {cluster_token(SECRET)}"], apps)
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
        Admission((SECRET,)).authenticate(tokens, apps)
    assert "flight-shuffle token" in str(refused.value) or "token_file" in str(refused.value)
    assert A[:12] not in repr(refused.value) + str(refused.value)


def test_the_scheme_is_read_in_any_case() -> None:
    assert Admission((SECRET,)).authenticate([f"bearer {A}"], ["app-a"]) == Principal("app-a")


@given(st.text(), st.text())
def test_same_token_is_equality(one: str, other: str) -> None:
    if one.isprintable() and other.isprintable():
        assert same_token(one, other) == (one == other)


def test_no_repr_shows_a_secret_a_token_or_a_key() -> None:
    tls = TlsFiles(b"the-ca", b"the-cert", b"the-key")
    shown = repr((Credentials("app-a", "the-token", tls), Keyring(tls, (b"the-secret",), "the-token")))
    assert "app-a" in shown
    for hidden in ("the-token", "the-secret", "the-key"):
        assert hidden not in shown


def test_a_keyring_without_a_secret_hands_out_its_token() -> None:
    assert Keyring(token="t").for_app("app-a") == Credentials("app-a", "t")
    assert Keyring(token="t").for_cluster() == Credentials("", "t")
    assert Keyring().for_cluster() == NO_CREDENTIALS
    assert NO_CREDENTIALS.headers() == ()


def test_a_keyring_with_a_secret_admits_as_the_server_does() -> None:
    keys = Keyring(secrets=(SECRET,))
    for credentials in (keys.for_app("app-a"), keys.for_cluster()):
        headers = dict(credentials.headers())
        tokens, apps = (
            [headers["authorization"]],
            [headers[name] for name in ("flight-shuffle-app",) if name in headers],
        )
        assert keys.admit(tokens, apps) == Admission((SECRET,)).authenticate(tokens, apps)
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


def test_a_file_may_hold_several_secrets_one_on_each_line() -> None:
    one, other = b"x" * 32, b"y" * 40
    assert check_secrets(one + b"\r\n", "file") == (one,)
    assert check_secrets(b"\n" + one + b"\n\n" + other, "file") == (one, other)
    with pytest.raises(InvalidArgument, match=r"/etc/secret holds 5 secrets, the most are 4"):
        check_secrets(b"\n".join([one] * 5), "/etc/secret")


@pytest.mark.parametrize(
    ("text", "where"), [(b"", "line 1"), (b"x" * 31 + b"\n", "line 1"), (b"z" * 32 + b"\n" + b"x" * 31, "line 2")]
)
def test_a_short_secret_is_refused_by_name_and_not_shown(text: bytes, where: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"{where} of /etc/secret has (31|0) bytes.*openssl rand") as refused:
        check_secrets(text, "/etc/secret")
    assert "xxx" not in str(refused.value)


def test_a_token_loses_white_space_around_it_and_has_none_inside() -> None:
    assert check_token(f" {A}\n", "file") == A
    for wrong in ("", "\n", "a b", "a\nb", "\u20ac"):
        with pytest.raises(InvalidArgument, match="/etc/token holds no token"):
            check_token(wrong, "/etc/token")


NOW = 1_800_000_000
OLD, NEW = bytes(range(1, 33)), bytes(range(2, 34))


def admitted(admission: Admission, token: str, *apps: str) -> Principal:
    return admission.authenticate([f"Bearer {token}"], list(apps))


def test_while_a_secret_is_changed_the_tokens_of_both_are_taken_and_afterwards_only_the_new_ones() -> None:
    for secrets, taken in (((OLD,), {OLD}), ((OLD, NEW), {OLD, NEW}), ((NEW, OLD), {OLD, NEW}), ((NEW,), {NEW})):
        for secret in (OLD, NEW):
            for token, apps in (
                (app_token(secret, "a"), ["a"]),
                (cluster_token(secret), []),
                (worker_token(secret, "w-1"), []),
            ):
                if secret in taken:
                    admitted(Admission(secrets), token, *apps)
                else:
                    with pytest.raises(Unauthenticated):
                        admitted(Admission(secrets), token, *apps)
        assert Keyring(secrets=secrets).for_app("a").token == app_token(secrets[0], "a")


MAKERS: dict[str, tuple[Callable[[int], str], list[str], str]] = {
    "an application's": (lambda expires: app_token(SECRET, "app-a", expires), ["app-a"], "application 'app-a'"),
    "the cluster's": (lambda expires: cluster_token(SECRET, expires), [], "the cluster"),
    "a worker's": (lambda expires: worker_token(SECRET, "w-1", expires), [], "worker 'w-1'"),
}


@pytest.mark.parametrize("whose", MAKERS)
def test_a_token_is_taken_until_its_expiry_and_a_minute_more(whose: str) -> None:
    make, apps, name = MAKERS[whose]
    token = make(NOW)
    assert expiry_of(token) == NOW
    for now in (0.0, NOW, NOW + LEEWAY_SECONDS):
        admitted(Admission((SECRET,), now=lambda now=now: now), token, *apps)  # type: ignore[misc]
    later = Admission((SECRET,), now=lambda: NOW + LEEWAY_SECONDS + 1)
    with pytest.raises(ExpiredToken, match=rf"the token of {name} expired at 2027-01-15T08:00:00Z.*--valid") as error:
        admitted(later, token, *apps)
    assert token not in str(error.value)
    assert error.value.principal == admitted(Admission((SECRET,), now=lambda: 0.0), token, *apps)
    admitted(later, make(0), *apps)


def test_a_revoked_application_is_refused_for_that_whether_its_token_is_over_or_not() -> None:
    revoked = frozenset(("app-a",))
    for admission in (Admission((SECRET,), revoked, lambda: NOW), Admission((SECRET,), revoked, lambda: 2 * NOW)):
        with pytest.raises(RevokedApp):
            admitted(admission, app_token(SECRET, "app-a", NOW), "app-a")


@pytest.mark.parametrize("whose", MAKERS)
def test_who_changes_the_expiry_of_a_token_has_none(whose: str) -> None:
    make, apps, _ = MAKERS[whose]
    token = make(NOW)
    for wrong in (
        token.replace(str(NOW), str(NOW + 1)),
        token.replace(str(NOW), "0"),
        token.replace(str(NOW), f"0{NOW}"),
        token.replace(str(NOW), ""),
        token.replace(str(NOW), "9" * 5000),
        token.replace(str(NOW), "\u0661"),
        token.rpartition(".")[2],
        token.replace("v2.", "v3.").replace("worker.", "app."),
    ):
        with pytest.raises(Unauthenticated):
            admitted(Admission((SECRET,), now=lambda: 0.0), wrong, *apps)


@given(SECRETS, st.text(st.characters(codec="ascii", exclude_characters=" ", min_codepoint=33), min_size=1), APPS)
def test_the_token_of_a_worker_is_for_this_worker_and_for_no_application(secret: bytes, worker: str, app: str) -> None:
    token = worker_token(secret, worker)
    principal = admitted(Admission((secret,)), token)
    assert principal == Principal("", worker)
    principal.check_worker(worker)
    principal.check_member("copies")
    for wrong in (worker + "x", worker[:-1], ""):
        with pytest.raises(PermissionDenied, match="--worker"):
            principal.check_worker(wrong)
    for name in (app, ""):
        with pytest.raises(PermissionDenied, match="with the token of worker"):
            principal.check(name)
    with pytest.raises(Unauthenticated):
        admitted(Admission((secret,)), token, app)
    with pytest.raises(Unauthenticated):
        admitted(Admission((secret,)), token.replace(f"worker.{worker}", f"worker.{worker}x", 1))


def test_an_application_is_no_worker_and_no_member_and_the_cluster_is_all_of_them() -> None:
    calls: list[Callable[[Principal], None]] = [
        lambda who: who.check_worker("app-a"),
        lambda who: who.check_worker(""),
        lambda who: who.check_member("copies"),
    ]
    for call in calls:
        call(ANYBODY)
        with pytest.raises(PermissionDenied):
            call(Principal("app-a"))


def test_a_revoked_application_is_refused_whatever_token_it_has_and_nobody_else_is() -> None:
    admission = Admission((OLD, NEW), frozenset(["app-a"]), now=lambda: 0.0)
    for token in (app_token(OLD, "app-a"), app_token(NEW, "app-a"), app_token(OLD, "app-a", NOW)):
        with pytest.raises(Unauthenticated, match=r"'app-a' is revoked at this server.*--revoked-file"):
            admitted(admission, token, "app-a")
    assert admitted(admission, app_token(OLD, "app-b"), "app-b") == Principal("app-b")
    assert admitted(admission, cluster_token(OLD), "app-a") is ANYBODY
    with pytest.raises(Unauthenticated, match="not that of"):  # a stranger is not told who is revoked
        admitted(admission, "x" * 44, "app-a")


def test_a_task_takes_the_same_token_as_its_own_until_that_expires() -> None:
    valid, over = app_token(SECRET, "a", 4_000_000_000), app_token(SECRET, "a", 1)
    assert Keyring(token=valid).admit([f"Bearer {valid}"], ["a"]) == Principal("a")
    with pytest.raises(Unauthenticated, match="expired at 1970"):
        Keyring(token=over).admit([f"Bearer {over}"], ["a"])
