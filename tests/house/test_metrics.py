"""docs/operations.md says what the code says."""

import re
from pathlib import Path

from shuffle_server.observe.log_context import FIELDS
from tools import metrics_doc

TEXT = metrics_doc.DOCUMENT.read_text()
SCRIPT = Path(__file__).parents[2] / "scripts" / "generate-metrics"


def test_the_table_of_metrics_equals_the_code() -> None:
    assert metrics_doc.document(TEXT) == TEXT, f"run scripts/{SCRIPT.name} and commit"
    assert SCRIPT.is_file()


def test_every_field_of_a_record_is_explained() -> None:
    names = re.findall(r"^\| (`[^|]*`) \|", TEXT.partition("| field | of records |")[2], re.MULTILINE)
    assert [field for field in FIELDS if f"`{field}`" not in "".join(names)] == []
