"""The program in docs/hybrid.md runs as it is printed, but for the server's address."""

from __future__ import annotations

import re

import pytest

from bench.harness.server import ServerProcess
from tests.shuffle_plugins.hybrid.processes import ROOT


def test_documented_program_says_what_its_comments_say(
    server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    [program] = re.findall(r"```python\n(.*?)```", (ROOT / "docs/hybrid.md").read_text(), flags=re.DOTALL)
    assert "127.0.0.1:9110" in program
    exec(compile(program.replace("127.0.0.1:9110", server.control), "hybrid.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == ["(0, b'one')", "[(0, b'two')]", "[(0, b'one'), (0, b'two')]"]
