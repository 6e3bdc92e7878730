"""docs/operations.md says what the code says."""

import re
from pathlib import Path

from bench import metrics_doc
from shuffle_server.observe import families
from shuffle_server.observe.log_context import FIELDS

TEXT = metrics_doc.DOCUMENT.read_text()
SCRIPT = Path(__file__).parents[2] / "scripts" / "generate-metrics"


def test_the_table_of_metrics_equals_the_code() -> None:
    assert metrics_doc.document(TEXT) == TEXT, f"run scripts/{SCRIPT.name} and commit"
    assert SCRIPT.is_file()


def test_alerts_name_only_metrics_and_labels_that_exist() -> None:
    [rules] = re.findall(r"```yaml\n(groups:.*?)```", TEXT, flags=re.DOTALL)
    exposed = {family.name: set(family.labels) for family in families.ALL}
    for family in families.ALL:
        if family.kind == "histogram":
            for suffix in ("_bucket", "_sum", "_count"):
                exposed[family.name + suffix] = {*family.labels, "le"}
    used = re.findall(r"(flight_shuffle_\w+)(?:\{([^}]*)\})?", rules)
    assert len(used) >= 10
    for name, matchers in used:
        assert name in exposed, name
        assert set(re.findall(r"(\w+)\s*[=!]", matchers)) <= exposed[name], matchers
    for matcher in re.findall(r'code=~?"([^"]+)"', rules):
        assert set(matcher.split("|")) <= set(families.CODES)


def test_every_field_of_a_record_is_explained() -> None:
    assert [field for field in FIELDS if f"| `{field}` |" not in TEXT] == []
