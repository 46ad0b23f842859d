"""The site that `make site` builds: no warning, each page in the navigation once, and no other host is asked."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright
from tests.docs.pages import PAGES, ROOT

CHROMIUM = Path("/usr/bin/chromium")
SHOWN = [page for page in PAGES if page.parent != ROOT]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make site` does: a link or an anchor that leads nowhere is a warning, and so an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-E",
        "-c",
        "docs",
        "-d",
        str(folder / "trees"),
    ]
    built = subprocess.run(
        [*command, ".", str(folder / "html")], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    return folder / "html"


def navigation(page: str, site: Path) -> list[str]:
    """Return the pages in the header and in the sidebar of a page, as paths within the site."""
    text = (site / page).read_text(encoding="utf-8")
    links = re.findall(r'class="(?:nav-link nav-internal|reference internal)" href="([^"#]*)"', text)
    return [str(((site / page).parent / link).resolve().relative_to(site.resolve())) for link in links if link]


def test_each_page_is_built_and_once_in_the_navigation(site: Path) -> None:
    built = {str(page.relative_to(site)) for page in site.rglob("*.html")}
    assert {str(page.relative_to(ROOT).with_suffix(".html")) for page in SHOWN} <= built
    toctrees = Counter(re.findall(r'<li class="toctree-l[12]"><a class="[^"]*" href="([^"#]+)"', contents(site)))
    assert [page for page, number in toctrees.items() if number > 1] == []


def contents(site: Path) -> str:
    return (site / "genindex.html").read_text(encoding="utf-8")


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
        expect(page.get_by_role("heading", level=1)).to_contain_text("Redrive dead letters")
        browser.close()
    assert errors == []
