"""The page in a browser: it draws what its twins have, asks no other host, and can be used by keyboard."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from tests.tools.dashboard.conftest import EVENTS, Served, serving

from windrow.telemetry.history import HistoryWriter, RunRecord, history_of, read_history
from windrow.tools.dashboard.watch import WatchedRun

CHROMIUM = Path("/usr/bin/chromium")
TOKEN = "0123456789abcdef-of-a-test"  # noqa: S105 - of a test
VIEWS = (
    "overview",
    "watermark",
    "time",
    "lateness",
    "throughput",
    "windows",
    "steps",
    "graph",
    "revisions",
    "dead",
    "late",
    "key",
)

pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason=f"there is no {CHROMIUM}: apt-get install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield chromium
        chromium.close()


@dataclass
class Opened:
    """A page, and what went wrong on it."""

    page: Page
    address: str
    errors: list[str]
    asked: set[str]

    def show(self, view: str, query: str = "") -> Page:
        """Open a view, and wait until it is drawn."""
        self.page.goto(f"{self.address}/?view={view}{query}")
        self.page.locator(f"body[data-view={view}][data-version]").wait_for()
        return self.page


@pytest.fixture
def opened(browser: Browser, served: Served) -> Iterator[Opened]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    one = Opened(page, served.address, [], set())
    page.on("pageerror", lambda error: one.errors.append(str(error)))
    page.on("console", lambda message: one.errors.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: one.asked.add(request.url.split("/")[2]))
    yield one
    page.close()
    assert one.errors == []
    assert one.asked == {served.address.removeprefix("http://")}


def twin(served: Served, path: str) -> dict[str, Any]:
    with urlopen(f"{served.address}/api/{path}", timeout=30) as answer:  # noqa: S310 - loopback
        made: dict[str, Any] = json.load(answer)
        return made


@pytest.mark.parametrize("view", VIEWS)
def test_each_view_is_drawn(opened: Opened, view: str) -> None:
    page = opened.show(view)
    expect(page.locator("#problem")).to_be_hidden()
    expect(page.locator("h1")).not_to_be_empty()
    assert page.locator("#view canvas, #view svg, #view table").count()
    assert page.locator("nav a[aria-current=page]").get_attribute("data-view") == view
    assert page.locator("nav a").count() == len(VIEWS)
    # what cannot be drawn with a line has a name and a table
    for image in page.locator("#view svg[role=img]").all():
        assert image.get_attribute("aria-label")
    # on a telephone nothing sticks out but what scrolls
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_overview_says_what_its_twin_has(opened: Opened, served: Served) -> None:
    page, made = opened.show("overview"), twin(served, "overview")
    assert page.locator(".answer strong").all_text_contents() == [one["headline"] for one in made["answers"]]
    tiles = dict(zip(page.locator(".tile dt").all_text_contents(), page.locator(".tile dd").all(), strict=True))
    assert tiles["Events"].text_content() == f"{EVENTS:,}since {stamp(made['since'])}"
    assert (tiles["Expired"].text_content() or "").startswith(f"{made['totals']['expired']:,}")
    status = page.locator("[role=status]")
    expect(status).to_have_text("Ended; some records are not counted")
    assert status.get_attribute("aria-live") == "polite"


def stamp(micros: int) -> str:
    from windrow.telemetry.numbers import format_time  # noqa: PLC0415 - of this test alone

    return format_time(micros)


def test_sliders_try_other_settings(opened: Opened, served: Served) -> None:
    page = opened.show("lateness")
    before = page.locator("#late-share").text_content()
    slider = page.locator("#delay-slider")
    slider.focus()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    expect(page.locator("#delay-value")).to_have_text("2m")
    expect(page).to_have_url(re.compile("delay=2m"))
    made = twin(served, "lateness?delay=2m")["what_if"]
    expect(page.locator("#late-share + small")).to_contain_text(counts(made["then"]["not_on_time"]))
    expect(page.locator("#expired-share + small")).to_contain_text(counts(made["then"]["expired"]))
    expect(page.locator("#later")).to_have_text("8m earlier")
    assert page.locator("#late-share").text_content() != before
    assert slider.get_attribute("aria-valuetext") == "2m"
    # the address holds what is tried
    page.reload()
    expect(page.locator("#delay-value")).to_have_text("2m")
    page.locator("#own").click()
    expect(page.locator("#late-share")).to_have_text(before or "")


def counts(bounds: list[int]) -> str:
    least, most = bounds
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def test_tables_sort_and_say_so(opened: Opened, served: Served) -> None:
    page = opened.show("watermark")
    head = page.locator("th", has_text="Next offset")
    head.locator("button").focus()
    page.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-sort", "ascending")
    page.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-sort", "descending")
    offsets = sorted((one["offset"] for one in twin(served, "watermark")["partitions"]), reverse=True)
    column = page.locator("thead th").all_text_contents().index("Next offset") + 1
    assert page.locator(f"tbody td:nth-child({column})").all_text_contents() == [f"{one:,}" for one in offsets]
    expect(page).to_have_url(re.compile("sort=offset%3Adesc"))


def test_dead_letters_are_chosen_by_reason(opened: Opened, served: Served) -> None:
    page = opened.show("dead")
    reason = twin(served, "dead")["reasons"][0]
    button = page.get_by_role("button", name=f"{reason['reason']} ({reason['letters']})", exact=True)
    button.click()
    expect(page.locator("[aria-pressed=true]")).to_have_text(f"{reason['reason']} ({reason['letters']})")
    made = twin(served, f"dead?reason={reason['reason'].replace(' ', '%20')}")
    expect(page.locator("tbody tr")).to_have_count(len(made["rows"]))
    expect(page.locator(".command code")).to_have_text(made["redrive"]["command"])
    expect(page.get_by_role("button", name="Redrive")).to_be_hidden()
    page.locator("#filter").fill(made["rows"][0]["raw"][:20])
    expect(page.locator("tbody tr").first).to_be_visible()


def test_a_row_is_explained_when_asked_for(opened: Opened, served: Served) -> None:
    revised = twin(served, "revisions")["revisions"][0]["key"]
    query = urlencode({"key.user_id": revised["user_id"], "window_start": revised["window_start"]})
    page = opened.show("key", f"&{query}")
    made = twin(served, f"why?{query}")["explanation"]
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/api/why" in request.url else None)
    page.get_by_role("button", name="Why?").click()
    card = page.locator("section", has=page.get_by_role("heading", name="Why", exact=True))
    expect(card).to_contain_text("give exactly this row")
    expect(card).to_contain_text(f"{made['counts']['late']} late")
    expect(card.locator("tbody tr")).to_have_count(len(made["records"]))
    expect(page.locator("#why")).to_be_empty()
    assert len(asked) == 1


def test_charts_have_their_numbers_as_a_table(opened: Opened, served: Served) -> None:
    page, made = opened.show("throughput"), twin(served, "throughput")
    details = page.locator("figure", has_text="Records a second by partition").locator("details")
    details.locator("summary").click()
    expect(details.locator("tbody tr")).to_have_count(len(made["time"]))
    first = details.locator("tbody tr").first.locator("td").all_text_contents()
    assert first[0] == stamp(made["time"][-1])


def test_windows_are_a_table_by_key_group(opened: Opened, served: Served) -> None:
    page, (made,) = opened.show("windows"), twin(served, "windows")["nodes"]
    table = page.get_by_role("region", name="Windows of user-spend by key group").get_by_role("table")
    expect(table.get_by_role("columnheader")).to_have_text(["Key group", *map(str, range(8))])
    for name in ("open", "fired", "closed"):
        row = table.get_by_role("row", name=re.compile(f"^{name}"))
        expect(row.get_by_role("rowheader")).to_have_text(name)
        expect(row.get_by_role("cell")).to_have_text([str(one[name]) for one in made["key_groups"]])
    assert made["fired"] > made["closed"] > 0


def test_the_keyboard_reaches_all_views(opened: Opened) -> None:
    page = opened.show("overview")
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the view")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    page.get_by_role("navigation").get_by_role("link", name="Lateness").focus()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Lateness")
    expect(page).to_have_url(re.compile("view=lateness"))
    page.go_back()
    expect(page.locator("h1")).to_have_text("Overview")


@pytest.mark.parametrize(
    ("view", "selector"),
    [("dead", ".chips button:nth-child(2)"), ("revisions", "th button"), ("key", "tbody tr:nth-child(3) button")],
)
def test_an_update_keeps_the_focus_and_what_is_scrolled_to(
    opened: Opened, recorded: WatchedRun, tmp_path: Path, view: str, selector: str
) -> None:
    shutil.copytree(str(recorded.checkpoint), tmp_path, dirs_exist_ok=True)
    other = opened.address
    with serving(replace(recorded, checkpoint=tmp_path)) as live:
        opened.address = live.address
        user = twin(live, "revisions")["revisions"][0]["key"]["user_id"]
        page = opened.show(view, f"&key.user_id={user}")
        button, table = page.locator(selector).first, page.locator("#view .scroll").first
        button.focus()
        text, row = button.text_content(), button.locator("xpath=ancestor::tr").all_text_contents()
        table.evaluate("one => { one.scrollTop = 90; }")
        version = page.locator("body").get_attribute("data-version")
        last = read_history(history_of(tmp_path), last=1)[0]
        with HistoryWriter(history_of(tmp_path), RunRecord.here(recorded.name, "memory"), pytest.fail) as history:
            history.on_step(replace(last, epoch=last.epoch + 1))
        page.locator(f"body:not([data-version='{version}'])").wait_for()
        focused = page.locator("#view :focus")
        expect(focused).to_have_text(text or "")
        assert focused.locator("xpath=ancestor::tr").all_text_contents() == row
        assert table.evaluate("one => one.scrollTop") == 90
        page.goto("about:blank")
    assert opened.asked == {live.address.removeprefix("http://")}
    opened.asked = {other.removeprefix("http://")}


def test_long_keys_stay_on_their_card(opened: Opened, served: Served) -> None:
    made = twin(served, "overview")
    made["hot_keys"] = {"": {"k" * 500: 0.5, "": 0.25}}
    page = opened.page
    page.route(re.compile("/api/overview"), lambda route: route.fulfill(json=made))
    opened.show("overview")
    expect(page.locator("section", has_text="Hot keys")).to_contain_text("'' 25 %")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_colours_follow_the_system_or_the_choice(opened: Opened) -> None:
    page = opened.show("overview")

    def background() -> str:
        made: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return made

    light = background()
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    dark = background()
    assert light != dark
    toggle = page.get_by_role("button", name=re.compile("Colours"))
    toggle.click()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    assert background() == light
    page.reload()
    assert background() == light


def test_what_records_hold_is_text(opened: Opened) -> None:
    page = opened.show("overview")
    evil = "<img src=x onerror=alert(1)>"
    page.route(
        re.compile("/api/dead"),
        lambda route: route.fulfill(
            json={"run": "r", "version": 1, "sinks": [""], "sink": "", "table": evil, "total": 1,
                  "reasons": [{"reason": evil, "letters": 1}], "redrive": {"command": evil, "why_not": None},
                  "rows": [{"partition": 0, "offset": 1, "log_time": None, "reason": evil, "raw": evil}]}
        ),
    )  # fmt: skip
    opened.show("dead")
    expect(page.locator("tbody td").last).to_have_text(evil)
    assert page.locator("#view img").count() == 0


def test_a_token_is_asked_for_and_lets_redrive(browser: Browser, recorded: WatchedRun) -> None:
    with serving(recorded, token=TOKEN) as served:
        page = browser.new_page()
        page.goto(f"{served.address}/?view=dead")
        expect(page).to_have_url(f"{served.address}/login")
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_be_visible()
        page.get_by_label("Token").fill(TOKEN)
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("Overview")
        page.get_by_role("link", name="Dead letters").click()
        expect(page.get_by_role("button", name="Redrive")).to_be_disabled()
        page.get_by_role("button", name="Dry run").click()
        # the recorded run has no checkpoint of Spark
        expect(page.get_by_role("status").last).to_contain_text("there is no checkpoint")
        page.close()
