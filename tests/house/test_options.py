"""docs/options.md says what the code says."""

from pathlib import Path

from tools import options_doc

ROOT = Path(__file__).parents[2]


def test_options_document_equals_the_code() -> None:
    written = (ROOT / "docs" / "options.md").read_text()
    assert written == options_doc.document(), "run scripts/generate-options and commit"


def test_readme_names_only_options_that_exist() -> None:
    rows = [
        line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(("| server |", "| Spark |"))
    ]
    named = [part.strip("`") for row in rows for part in row.split("|")[2].replace(",", " ").split()]
    documented = options_doc.document()
    assert len(named) >= 8
    assert [name for name in named if f"- `{name}`" not in documented] == []
