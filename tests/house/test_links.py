"""Links among the documents lead somewhere, every document is found, and all stay short. `scripts/lint`, a part of
`scripts/test` in CI, checks the built site."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path, PurePosixPath

import pytest

from tools.docs_site import LINK, outside_links

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md"))
DOCUMENTS = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "tests" / "third_party_plugin" / "README.md"]
FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2", re.MULTILINE | re.DOTALL)
WORD = re.compile(r"\S*\w\S*")
MOST_WORDS = 25_000
"""Of the pages in docs/; the bars of tables are no words."""
NAMED = re.compile(r"\[[^][]*\]\(([^()\s]+)\)")


def anchors(path: Path) -> set[str]:
    """Those of the headings, as GitHub and the site make them."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#+ +(.*)$", FENCE.sub("", path.read_text()), re.MULTILINE):
        text = LINK.sub(r"\1", heading).replace("`", "").strip().lower()
        slug = re.sub(r"\s", "-", re.sub(r"[^\w\- ]", "", text))
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_exist(document: Path) -> None:
    for target in NAMED.findall(FENCE.sub("", document.read_text())):
        if target.startswith(("http:", "https:")):
            continue
        name, _, anchor = target.partition("#")
        path = (document.parent / name).resolve() if name else document
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path), f"{target}: there is {sorted(anchors(path))}"


def test_every_document_is_in_the_overview_and_on_the_site() -> None:
    overview = (DOCS / "README.md").read_text()
    site = (ROOT / "mkdocs.yml").read_text()
    for page in PAGES:
        name = page.relative_to(DOCS).as_posix()
        assert f"- {name}\n" in site, f"{name} is not in mkdocs.yml"
        folder = name.removesuffix("README.md")
        assert name == "README.md" or f"]({name})" in overview or f"[{folder}]({name})" in overview, name


def test_links_out_of_the_documents_lead_to_the_repository_or_are_text() -> None:
    text = "[a](../README.md) [b](spark.md#x) [c](https://x.example) [d](benchmarks/README.md)\n```\n[e](../f)\n```\n"
    folder = PurePosixPath("docs")
    assert outside_links(text, folder, "") == text.replace("[a](../README.md)", "a")
    shown = outside_links(text, folder, "https://git.example/p")
    assert shown == text.replace("../README.md", "https://git.example/p/blob/main/README.md")


def test_the_pages_stay_short_together() -> None:
    words = {page.name: len(WORD.findall(page.read_text())) for page in DOCS.glob("*.md")}
    assert sum(words.values()) <= MOST_WORDS, f"say each thing once, link to its page: {words}"


def test_ci_builds_the_site_and_checks_deploy() -> None:
    lint, test = ((ROOT / "scripts" / name).read_text() for name in ("lint", "test"))
    assert "\nscripts/docs\n" in lint
    assert 'exec scripts/lint-deploy "$@"\n' in lint
    [in_ci] = re.findall(r'if \[ -n "\$\{CI:-\}" \]; then\n[^\n]*docs site[^\n]*\n(.*?)\n *fi', test, re.DOTALL)
    assert in_ci.strip().startswith("scripts/lint || [ $? -eq 3 ]")
