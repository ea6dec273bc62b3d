"""The page and the report in a real browser: what is drawn is what was recorded, by mouse, keys and on small screens.

Pictures are kept in the folder that REBAFL_SCREENSHOTS names, if it is set.
"""

import http.client
import json
import os
import re
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rebafl.ui.report_file import report
from support.browser import Watched, chromium, needs_browser, served, until
from support.views import CLASSES, drawn_lines, write_lines, written_run

pytestmark = [needs_browser, pytest.mark.slow]

HOSTILE = "<img src=x onerror=alert(1)> & \"quotes' =1+1"
SIZES = {"phone": (360, 740), "desk": (1280, 900), "wide": (1920, 1080)}
PIXEL = """
  const pixel = ({ plot, canvas }, round, row, rounds, rows) => Array.from(canvas.getContext("2d").getImageData(
    (plot.x + (round + 0.5) * plot.w / rounds) * devicePixelRatio,
    (plot.y + (row + 0.5) * plot.h / rows) * devicePixelRatio, 1, 1).data.slice(0, 3));
"""
DRAWN_STATES = f"""() => {{ {PIXEL}
  const names = RF.data.states.map(([name]) => name), colours = RF.stateColours().map(String), drawn = [];
  for (let r = 0; r < 30; r += 1) {{
    drawn.push([]);
    for (let c = 0; c < 12; c += 1)
      drawn[r].push(names[colours.indexOf(String(pixel(RF.heats.clients, r, c, 30, 12)))]);
  }}
  return drawn; }}"""
RECALL_ERRORS = f"""() => {{ {PIXEL}
  const ramp = RF.ramp("recall"), errors = [];
  for (let r = 0; r < 30; r += 1) for (let k = 0; k < 10; k += 1) {{
    const want = ramp[Math.round(255 * RF.data.rounds.recall[r][k] * 0.01)];
    const [red, green, blue] = pixel(RF.heats.recall, r, k, 30, 10);
    errors.push(Math.abs((want & 255) - red) + Math.abs(((want >> 8) & 255) - green)
      + Math.abs(((want >> 16) & 255) - blue));
  }}
  return errors; }}"""


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A federation with every kind of trouble, three seeds of one setting, and a run whose names are hostile."""
    root = tmp_path_factory.mktemp("runs")
    lines = drawn_lines(12, 30)
    written_run(
        root / "fed", lines, 12, federation=True, rounds=60, participation={"kind": "bernoulli", "p": [0.5, 0.3]}
    )
    for seed in range(3):
        written_run(root / f"seed-{seed}", drawn_lines(8, 25, seed), 8, rounds=25, seed=seed)
    bad = drawn_lines(4, 6)
    written_run(root / HOSTILE, bad, 4, rounds=6, classes=[HOSTILE, "</script>", *CLASSES[2:]])
    (root / "reproduction.md").write_text("# Ours beside the printed\n\n<script>alert(1)</script>\n")
    return root


@pytest.fixture(scope="module")
def server(browser, folder):
    """The page's address, and the state of a browser that was let in."""
    with served(folder) as address:
        first = Watched(browser)
        first.page.goto(address)
        first.page.wait_for_selector("table.runs")
        assert "token" not in first.page.url
        assert first.errors == first.foreign == []
        yield first.page.url, first.context.storage_state()


@pytest.fixture
def opened(browser, server):
    """Opens a view in a browser that was let in; nothing may go wrong on it."""
    address, state = server
    watched = []

    def open_view(place="", ready="table.runs", **options):
        it = Watched(browser, storage_state=state, **{"viewport": {"width": 1280, "height": 900}, **options})
        it.page.goto(address + place)
        it.page.wait_for_selector(ready)
        watched.append(it)
        return it.page

    yield open_view
    for it in watched:
        assert it.errors == []
        assert it.foreign == []
        it.context.close()


def keep(page, name):
    if folder := os.environ.get("REBAFL_SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.wait_for_timeout(400)
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def settled(page):
    """Everything is drawn."""
    page.wait_for_selector("[data-map=clients]")
    until(page, "RF.heats && RF.heats.clients && RF.heats.clients.plot")


def sideways(page):
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def serious(page):
    """What a check for accessibility finds that keeps people out."""
    from axe_playwright_python.base import AXE_SCRIPT  # only needed here

    page.evaluate(AXE_SCRIPT)
    found = page.evaluate("axe.run()")["violations"]
    return [(v["id"], v["nodes"][0]["html"][:200]) for v in found if v["impact"] in ("serious", "critical")]


def expected_states(row, clients):
    """What rounds.jsonl says of each client, read once more without the code that is tested; of a federation."""
    states = ["not chosen"] * clients
    for client in row.get("disconnected", []):
        states[client] = "away"
    for client in row["active"]:
        states[client] = "answered"
    for client in row["lost"]:
        states[client] = "late" if client in row.get("late", []) else "lost"
    for client in row["refused"]:
        states[int(client)] = "refused"
    return states


def test_each_cell_is_drawn_as_rounds_jsonl_has_it(opened, folder):
    page = opened("#run=fed&sort=number", "[data-map=clients]")
    settled(page)
    rows = [json.loads(line) for line in (folder / "fed" / "rounds.jsonl").read_text().splitlines()]
    drawn = page.evaluate(DRAWN_STATES)
    assert drawn == [expected_states(row, 12) for row in rows]
    seen = {state for row in drawn for state in row}
    assert seen == {"not chosen", "answered", "late", "lost", "refused"}
    recall = page.evaluate("RF.data.rounds.recall")
    assert recall == [row["recall"] for row in rows]


def test_class_maps_are_drawn_as_recorded(opened, folder):
    page = opened("#run=fed", "[data-map=presence]")
    settled(page)
    rows = [json.loads(line) for line in (folder / "fed" / "rounds.jsonl").read_text().splitlines()]
    counts = {
        int(c): dict(map(tuple, pairs))
        for c, pairs in json.loads((folder / "fed" / "holdings.json").read_text())["counts"].items()
    }
    presence = page.evaluate("RF.data.rounds.presence")
    for row, shares in zip(rows, presence, strict=True):
        there = set(row["active"]) - set(row["lost"]) - {int(c) for c in row["refused"]}
        for label in range(10):
            total = sum(held.get(label, 0) for held in counts.values())
            share = sum(counts[c].get(label, 0) for c in there) / total if total else None
            assert shares[label] == (None if share is None else pytest.approx(share, abs=1e-4))
    drawn = page.evaluate(RECALL_ERRORS)
    assert len(drawn) == 300
    assert max(drawn) <= 3, "but for rounding"


def test_reasons_are_shown_where_one_points(opened, folder):
    page = opened("#run=fed&sort=number", "[data-map=clients]")
    settled(page)
    row = next(
        json.loads(line) for line in (folder / "fed" / "rounds.jsonl").read_text().splitlines() if '"late"' in line
    )
    client, number = row["late"][0], row["round"]
    place = page.evaluate(
        """([client, round]) => { const { plot, canvas } = RF.heats.clients, box = canvas.getBoundingClientRect();
        return [box.left + plot.x + (round - 0.5) * plot.w / 30, box.top + plot.y + (client + 0.5) * plot.h / 12]; }""",
        [client, number],
    )
    page.mouse.move(*place)
    text = page.text_content("[data-info]")
    assert f"Round {number}:" in text
    assert f"Client {client}, group {client % 2}: late (no complete reply within 60 s)" in text
    lines = page.evaluate("['recall', 'presence', 'clients'].map((n) => RF.heats[n].line.hidden)")
    assert lines == [False, False, False], "all maps share the cursor"


def test_runs_are_laid_over_each_other_with_seeds_as_bands(opened):
    page = opened("#overlay=seed-0|seed-1|seed-2|fed", "[data-overlay] canvas")
    assert "mean and range of 3 seeds" in page.text_content("[data-overlay] .legend")
    assert page.locator("[data-overlay] .legend li").count() == 2
    page.select_option("[data-overlay] .choice:has-text('Seeds') select", "apart")
    until(page, "document.querySelectorAll('[data-overlay] .legend li').length === 4")
    page.select_option("[data-overlay] .choice:has-text('Over') select", "bytes")
    until(page, "location.hash.includes('x=bytes')")
    keep(page, "overlay")
    again = opened(page.url[page.url.index("#") :], "[data-overlay] canvas")
    assert again.locator("[data-overlay] .legend li").count() == 4, "the view is in the address"


def test_the_table_is_filtered_and_sorted(opened):
    page = opened()
    assert page.locator("table.runs tbody tr").count() == 5
    page.fill("input[type=search]", "seed-")
    until(page, "document.querySelectorAll('table.runs tbody tr').length === 3")
    page.click("button.sort:has-text('best')")
    first = page.get_attribute("table.runs tbody tr", "data-run")
    page.click("button.sort:has-text('best')")
    until(page, "location.hash.includes('down=1')")
    assert page.get_attribute("table.runs tbody tr", "data-run") != first


def test_the_papers_results_open_from_the_table(opened):
    page = opened()
    with page.context.expect_page() as opening:
        page.click("a[href='/paper']")
    paper = opening.value
    assert paper.inner_text("h1") == "Ours beside the printed"
    assert paper.inner_text("p") == "<script>alert(1)</script>"


def test_new_rounds_appear_by_themselves(opened, folder):
    record = written_run(folder / "growing", drawn_lines(6, 5), 6, rounds=50)
    page = opened("#run=growing", "[data-map=clients]")
    settled(page)
    assert page.evaluate("RF.data.count") == 5
    write_lines(record, drawn_lines(6, 9))
    until(page, "RF.data.count === 9 && RF.heats.clients.props.model.cols === 9", 15)
    assert "9 of 50 rounds" in page.text_content(".progress")


def test_saving_gives_pictures_and_numbers(opened, folder):
    page = opened("#run=fed&sort=number", "[data-map=clients]")
    settled(page)
    kinds = {
        "Save participation as PNG": b"\x89PNG",
        "Save participation as SVG": b"<svg",
        "Save Accuracy as SVG": b"<svg",
        "Save Accuracy as PNG": b"\x89PNG",
    }
    for label, beginning in kinds.items():
        with page.expect_download() as download:
            page.click(f"[aria-label='{label}']")
        assert Path(download.value.path()).read_bytes().startswith(beginning), label
    with page.expect_download() as download:
        page.click("[aria-label='Save the data of participation as CSV']")
    header, *table = [line.split(",") for line in Path(download.value.path()).read_text().splitlines()]
    rows = [json.loads(line) for line in (folder / "fed" / "rounds.jsonl").read_text().splitlines()]
    assert header == ["client", *(f"round {n}" for n in range(1, 31))]
    assert [[row[n + 1] for row in table] for n in range(30)] == [expected_states(row, 12) for row in rows]


def test_everything_can_be_reached_by_keys(opened):
    page = opened()
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "fed":
            break
    page.keyboard.press("Enter")
    settled(page)
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset.map") == "clients":
            break
    for key in ("Home", "ArrowRight", "ArrowRight", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    until(page, "document.querySelector('[data-info]').textContent.includes('Round 3:')")
    page.keyboard.press("+")
    assert page.evaluate("RF.sync.to - RF.sync.from") == 15
    page.keyboard.press("Escape")
    assert page.evaluate("RF.sync.to - RF.sync.from") == 30


def test_dragging_zooms_and_a_double_click_shows_all(opened):
    page = opened("#run=fed", "[data-map=clients]")
    settled(page)
    box = page.locator("[data-map=recall]").bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 600, box["y"] + 30, steps=4)
    page.mouse.up()
    shown = page.evaluate("[RF.sync.from, RF.sync.to]")
    assert 0 < shown[0] < shown[1] < 30
    page.dblclick("[data-map=recall]", position={"x": 400, "y": 20})
    assert page.evaluate("[RF.sync.from, RF.sync.to]") == [0, 30]


def test_hostile_names_are_text(opened):
    page = opened()
    page.click(f"tr[data-run={json.dumps(HOSTILE)}] a")
    settled(page)
    assert page.text_content("h1") == HOSTILE
    assert page.evaluate("document.images.length") == 0
    assert page.evaluate("RF.csvCell('=1+1')") == "'=1+1"
    page.hover("[data-map=recall]", position={"x": 300, "y": 5})
    assert HOSTILE in page.text_content("[data-info]")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_nothing_sticks_out_and_nobody_is_kept_out(opened, size, scheme):
    width, height = SIZES[size]
    options = {"viewport": {"width": width, "height": height}, "color_scheme": scheme}
    page = opened("#overlay=seed-0|seed-1|fed", "[data-overlay] canvas", **options)
    keep(page, f"runs-{size}-{scheme}")
    assert sideways(page) <= 0
    assert serious(page) == []
    page.click("text=Start a run")
    page.wait_for_selector("form")
    keep(page, f"form-{size}-{scheme}")
    assert sideways(page) <= 0
    assert serious(page) == []
    page = opened("#run=fed", "[data-map=clients]", **options)
    settled(page)
    keep(page, f"run-{size}-{scheme}")
    assert sideways(page) <= 0
    assert serious(page) == []


def test_another_host_or_origin_gets_nothing(server):
    address, state = server
    parts = urlsplit(address)
    cookie = "; ".join(f"{c['name']}={c['value']}" for c in state["cookies"])

    def status(**headers):
        with closing(http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)) as connection:
            connection.request("POST", "/api/runs", b"{}", headers={"Cookie": cookie, **headers})
            with connection.getresponse() as answer:
                return answer.status

    own = f"http://{parts.netloc}"
    assert status(Origin=own) == 200
    assert status(Origin=own, Host="evil.example") == 403
    assert status(Origin="http://evil.example") == 403
    assert status() == 403


def test_a_run_is_started_stopped_and_resumed(opened, folder):
    page = opened()
    page.click("text=Start a run")
    page.wait_for_selector("form")
    page.fill("#run-name", "mine")
    for name, value in {"dataset": "fashion-mini", "rounds": "400", "workers": "1"}.items():
        page.fill(f"#set-{name}", value)
    page.click("summary:has-text('model')")
    page.fill("[id='set-model.kind']", "evil:Net")
    page.click("button[type=submit]")
    page.wait_for_selector("[data-form] .problem")
    assert "own code" in page.text_content("[data-form] .problem")
    page.fill("[id='set-model.kind']", "mlp")
    page.click("summary:has-text('partition')")
    page.fill("[id='set-partition.clients']", "4")
    page.fill("[id='set-partition.samples']", "20")
    page.click("button[type=submit]")
    page.wait_for_selector("tr[data-run=mine]", timeout=60000)
    page.click("tr[data-run=mine] a")
    settled(page)
    page.click("text=Stop after this round", timeout=30000)
    page.wait_for_selector(".badge-stopped", timeout=30000)
    stopped = page.evaluate("RF.data.facts.done")
    assert 0 < stopped < 400
    page.click("text=Resume")
    until(page, f"RF.data.facts.done > {stopped}", 60)
    page.click("text=Stop after this round", timeout=30000)
    page.wait_for_selector(".badge-stopped", timeout=30000)
    numbers = [json.loads(line)["round"] for line in (folder / "mine" / "rounds.jsonl").read_text().splitlines()]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_report_opens_without_a_network(browser, folder, tmp_path):
    runs = [folder / "fed", folder / "seed-0", folder / "seed-1", folder / HOSTILE]
    (tmp_path / "report.html").write_text(report(runs))
    for scheme, width in (("light", 1280), ("dark", 360)):
        it = Watched(browser, offline=True, color_scheme=scheme, viewport={"width": width, "height": 900})
        it.page.goto((tmp_path / "report.html").as_uri())
        settled(it.page)
        keep(it.page, f"report-{width}-{scheme}")
        assert it.errors == []
        assert [url for url in it.requests if not url.startswith(("blob:", "data:"))] == [
            (tmp_path / "report.html").as_uri()
        ]
        assert it.page.locator("article").count() == 4
        assert sideways(it.page) <= 0
        assert serious(it.page) == []
        it.page.emulate_media(media="print")
        keep(it.page, f"report-{width}-print")
        assert it.page.locator(".saves").first.is_hidden()
        it.context.close()


def test_a_binned_report_says_so(browser, tmp_path):
    written_run(tmp_path / "many", drawn_lines(10_000, 1_000), 10_000, rounds=1_000)
    (tmp_path / "report.html").write_text(report([tmp_path / "many"]))
    it = Watched(browser, offline=True)
    it.page.goto((tmp_path / "report.html").as_uri())
    settled(it.page)
    assert re.search(r"bins of 10000 clients × 1000 rounds", it.page.text_content(".binned"))
    it.page.hover("[data-map=clients]", position={"x": 400, "y": 100})
    assert "% answered" in it.page.text_content("[data-info]")
    assert it.errors == []
    keep(it.page, "report-binned")
    it.context.close()
