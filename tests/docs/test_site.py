"""The site that `make site` builds: no warning, each page in the navigation once, and no other host is asked."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from shutil import copy, copytree

import pytest
from playwright.sync_api import expect, sync_playwright
from tests.docs.pages import PAGES, ROOT

CHROMIUM = Path("/usr/bin/chromium")


def build(root: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a folder, as `make site` does."""
    command = [sys.executable, "-m", "sphinx", "-q", "--no-color", "-W", "--keep-going", "-E", "-c", "docs"]
    return subprocess.run(
        [*command, "-d", f"{out}-trees", ".", str(out)],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of all pages: a link that leads nowhere, or a page that is not listed once, would be an error."""
    folder = tmp_path_factory.mktemp("site") / "html"
    built = build(ROOT, folder)
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    return folder


def test_the_site_has_all_pages(site: Path) -> None:
    pages = [page.relative_to(ROOT) for page in PAGES if page != ROOT / "README.md"]
    assert [page for page in pages if not (site / page).with_suffix(".html").exists()] == []


def test_links_to_nothing_and_pages_that_are_not_listed_once_are_errors(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    for folder in ("site", "part"):
        (docs / folder).mkdir(parents=True)
    copy(ROOT / "docs" / "conf.py", docs)
    copytree(ROOT / "docs" / "site", docs / "site", dirs_exist_ok=True)
    (docs / "README.md").write_text("# All\n\n- [Part](part/)\n- [twice](twice.md)\n")
    (docs / "part" / "README.md").write_text("# Part\n\n| page | |\n| --- | --- |\n| [twice.md](../twice.md) | |\n")
    (docs / "twice.md").write_text("# Twice\n\n[there](part/README.md#part), [nowhere](none.md), [not](#there)\n")
    (docs / "left.md").write_text("# Left\n")
    errors = build(tmp_path, tmp_path / "html").stderr
    assert sorted(line.removeprefix(f"{docs}/") for line in errors.splitlines() if f"{docs}/" in line) == [
        "left.md: WARNING: document isn't included in any toctree [toc.not_included]",
        "twice.md: WARNING: the navigation has this page twice, by docs/README, docs/part/README",
        "twice.md:3: WARNING: 'myst' cross-reference target not found: 'none.md' [myst.xref_missing]",
        "twice.md:3: WARNING: 'myst' cross-reference target not found: 'there' [myst.xref_missing]",
    ]


def test_no_page_has_something_of_another_host(site: Path) -> None:
    asked = re.compile(
        r"""<(?:script|img|link|iframe|source)[^>]*(?:src|href)="(?:https?:)?//[^"]*"|url\((?:https?:)?//"""
    )
    found = [
        (path.relative_to(site), match[0])
        for path in [*site.rglob("*.html"), *site.rglob("*.css")]
        for match in asked.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.skipif(not CHROMIUM.exists(), reason=f"there is no {CHROMIUM}: apt-get install chromium")
def test_the_site_can_be_read_and_searched_from_a_folder(site: Path) -> None:
    errors: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on(
            "request",
            lambda request: None if request.url.startswith(("file:", "data:")) else errors.append(request.url),
        )
        page.goto((site / "index.html").as_uri())
        page.get_by_role("link", name="ten tasks").click()
        expect(page.get_by_role("heading", name="Ten tasks")).to_be_visible()
        page.goto(f"{(site / 'search.html').as_uri()}?q=redrive")
        page.get_by_role("main").get_by_role("link", name="Redrive dead letters").first.click()
        expect(page.locator("h1")).to_contain_text("Redrive dead letters")
        browser.close()
    assert errors == []
