"""The blocks of code in the README and in docs/, for tests that run them."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """`page` is relative to the root; `text` begins at the left margin."""

    page: str
    line: int
    language: str
    text: str

    def commands(self) -> list[str]:
        """The lines of a shell block, without prompts and remarks; continued lines are one."""
        joined = self.text.replace("\\\n", " ")
        lines = (re.sub(r"(^|\s+)# .*$", "", line).removeprefix("$ ").strip() for line in joined.splitlines())
        return [line for line in lines if line]


def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text()
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found[2], textwrap.dedent(found[3]))
        for found in FENCE.finditer(text)
    ]


def block(page: str, containing: str) -> Block:
    """The one block of a page that has a text."""
    [found] = [each for each in blocks(page) if containing in each.text]
    return found
