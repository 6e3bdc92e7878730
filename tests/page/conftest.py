"""A browser for each test of the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.page import looks
from tests.page.browser import Browser


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with Browser(tmp_path / "profile") as shown:
        looks.watch(shown)
        yield shown
