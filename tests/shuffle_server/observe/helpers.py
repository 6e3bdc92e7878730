"""What the tests of the server's monitoring share."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer."""

    status: int
    content_type: str
    text: str

    def json(self) -> Any:
        return json.loads(self.text)

    def failed(self) -> dict[str, str]:
        """The reasons of the checks that failed."""
        return {name: check["reason"] for name, check in self.json()["checks"].items() if not check["ok"]}


def get(address: str, path: str, headers: Mapping[str, str] | None = None) -> Answer:
    request = urllib.request.Request(f"http://{address}{path}", headers=dict(headers or {}))
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return Answer(reply.status, reply.headers["Content-Type"], reply.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.headers["Content-Type"], error.read().decode())


class Scrape:
    """The samples of one scrape, as Prometheus' own parser reads them; names are given without `flight_shuffle_`."""

    def __init__(self, address: str) -> None:
        answer = get(address, "/metrics")
        assert answer.status == 200
        self.families = {family.name: family for family in text_string_to_metric_families(answer.text)}
        self._values = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        return self._values[f"flight_shuffle_{name}", frozenset(labels.items())]

    def labels(self, name: str, label: str) -> set[str]:
        """The values of a label among the samples of this name."""
        return {dict(pairs)[label] for sample, pairs in self._values if sample == f"flight_shuffle_{name}"}
