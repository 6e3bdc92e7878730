"""A hook of MkDocs: links to files outside docs/ lead to the repository, where its address is known."""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath
from typing import Any

REPOSITORY = "FLIGHT_SHUFFLE_REPOSITORY"
BRANCH = "main"
LINK = re.compile(r"\[([^][]+)\]\((?!https?:|#)([^()\s]+)\)")  # of Markdown, to a file
FENCES = re.compile(r"(^ *```.*?^ *```)", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Of each page, before it is made into HTML."""
    folder = PurePosixPath("docs", page.file.src_uri).parent
    repository = os.environ.get(REPOSITORY, "").rstrip("/")
    return outside_links(markdown, folder, repository)


def outside_links(markdown: str, folder: PurePosixPath, repository: str) -> str:
    """What a document of `folder` says, with its links out of docs/ as links to the repository, or else as text."""

    def replaced(link: re.Match[str]) -> str:
        text, target = link[1], link[2]
        path = PurePosixPath(os.path.normpath(folder / target.partition("#")[0]))
        if path.parts[0] == "docs" and (path.suffix in (".md", ".png") or len(path.parts) == 1):
            return link[0]
        return f"[{text}]({repository}/blob/{BRANCH}/{path})" if repository else text

    parts = FENCES.split(markdown)
    return "".join(part if at % 2 else LINK.sub(replaced, part) for at, part in enumerate(parts))
