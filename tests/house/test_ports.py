"""One port for each endpoint, wherever a document or a file of deploy/ shows an address."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.packages import ROOT

CONTROL, DATA, HTTP = "9110", "9111", "9112"
PORTS = {
    r"--listen": CONTROL,
    r"--(?:server|master)": CONTROL,
    r"--data-listen": DATA,
    r"--(?:http|metrics)-listen": HTTP,
    r"spark_conf\(\"": CONTROL,
    r"\"server\": \"": CONTROL,
    r"spark\.shuffle\.flight\.server": CONTROL,
}
FREE = "0"


def shown() -> Iterator[Path]:
    yield ROOT / "README.md"
    yield from (path for path in (ROOT / "docs").rglob("*.md") if "benchmarks" not in path.parts)
    yield from (path for path in (ROOT / "deploy").rglob("*") if path.suffix in (".yaml", ".toml", ".service", ".tpl"))
    yield ROOT / "deploy" / "Containerfile"
    yield ROOT / "plugins" / "shuffle_plugins" / "spark" / "__init__.py"


def test_each_address_has_the_port_of_its_endpoint() -> None:
    found, wrong = 0, []
    for path in shown():
        text = path.read_text()
        for option, port in PORTS.items():
            for address in re.findall(rf"(?<![\w-]){option}[= ]*[\w.\[\]:-]*?:(\d+)\b", text):
                found += 1
                if address not in (port, FREE):
                    wrong.append(f"{path.relative_to(ROOT)}: {option} with port {address}, not {port}")
    assert found > 20
    assert wrong == []
