"""The page of a master: one file, whose script and style are allowed by their hashes, and nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

from shuffle_server.observe.http_endpoint import Request, Response

_HTML = Path(__file__).with_name("page.html").read_bytes()


def _policy() -> str:
    """Only what this file holds runs, and it only talks to the server it comes from."""
    allowed = {"script": "'none'", "style": "'none'"}
    for kind in allowed:
        for part in re.findall(rf"<{kind}>(.*?)</{kind}>".encode(), _HTML, re.DOTALL):
            allowed[kind] = f"'sha256-{base64.b64encode(hashlib.sha256(part).digest()).decode()}'"
    return (
        f"default-src 'none'; script-src {allowed['script']}; style-src {allowed['style']}; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


_HEADERS = (("Content-Security-Policy", _policy()), ("Referrer-Policy", "no-referrer"))


def _page(request: Request) -> Response:
    return Response(HTTPStatus.OK, "text/html; charset=utf-8", _HTML, _HEADERS)


PAGE: dict[str, Callable[[Request], Response]] = {"/": _page}
