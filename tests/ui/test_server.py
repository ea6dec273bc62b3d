"""The page answers its own browser and nobody else, and what users type is text, never code."""

import asyncio
import re

import httpx
import pytest

from rebafl import UserError
from rebafl.ui.assets import STATIC
from rebafl.ui.form import checked_words, form
from rebafl.ui.guard import Guard
from rebafl.ui.server import LINKED_POLICY, Views, _listener, application, need_ui
from support.views import drawn_lines, written_run

HOST = "127.0.0.1:8123"
ORIGIN = {"origin": f"http://{HOST}"}


class Browser:
    """Asks the application directly, as a browser would over the network; keeps cookies."""

    def __init__(self, app):
        self.app, self.cookies = app, httpx.Cookies()

    def request(self, method, path, **more):
        async def ask():
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(
                transport=transport, base_url=f"http://{HOST}", cookies=self.cookies
            ) as client:
                answer = await client.request(method, path, **more)
                self.cookies.update(client.cookies)
                return answer

        return asyncio.run(ask())

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, **more):
        return self.request("POST", path, **more)


class Site:
    """The application behind its guard, and a browser that may have been let in."""

    def __init__(self, folder, own_code=False):
        self.views = Views([folder], own_code)
        self.guard = Guard(application(self.views), 8123)
        self.token = self.guard.token
        self.client = Browser(self.guard)

    def enter(self):
        assert self.client.get(f"/?token={self.token}").status_code == 200
        return self

    def ask(self, question, body=None, **headers):
        return self.client.post(f"/api/{question}", json=body or {}, headers={**ORIGIN, **headers})


@pytest.fixture
def site(tmp_path):
    written_run(tmp_path / "r", drawn_lines(6, 9), 6, rounds=20)
    return Site(tmp_path)


def test_the_token_works_once_and_becomes_a_strict_cookie(site):
    assert site.client.get("/").status_code == 403
    assert site.client.get("/?token=wrong").status_code == 403
    answer = site.client.get(f"/?token={site.token}")
    assert answer.status_code == 200
    cookie = answer.headers["set-cookie"]
    assert "SameSite=Strict" in cookie
    assert "HttpOnly" in cookie
    assert site.client.get("/").status_code == 200
    other = Browser(site.guard)
    assert other.get(f"/?token={site.token}").status_code == 403, "it is used up"
    assert other.get("/static/core.js").status_code == 403
    assert other.post("/api/runs", headers=ORIGIN).status_code == 403


def test_other_names_and_origins_are_refused_even_with_the_cookie(site):
    site.enter()
    assert site.ask("runs").status_code == 200
    for name in ("evil.example", "evil.example:8123", "127.0.0.1:9999", "127.0.0.1", ""):
        assert site.client.get("/", headers={"host": name}).status_code == 403, name
    for origin in ("http://evil.example", "null", "http://127.0.0.1:9999", "https://127.0.0.1:8123"):
        assert site.ask("runs", origin=origin).status_code == 403, origin
    assert site.client.post("/api/stop", json={"run": "r"}).status_code == 403, "a change must name its origin"
    assert (
        site.client.get("/", headers={"host": "localhost:8123", "origin": "http://localhost:8123"}).status_code == 200
    )


def test_a_cookie_of_another_server_does_not_count(site):
    site.client.cookies.set("rebafl_8123", "something", "127.0.0.1")
    assert site.client.get("/").status_code == 403


def test_every_answer_forbids_what_the_page_does_not_need(site):
    for answer in (site.client.get("/"), site.enter().client.get("/"), site.client.get("/static/core.js")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


def test_only_the_pages_own_files_are_handed_out(site):
    site.enter()
    assert site.client.get("/static/vendor/uPlot.js").text == (STATIC / "vendor/uPlot.js").read_text()
    for name in ("../server.py", "%2e%2e/server.py", "vendor/versions.json", "nothing.js"):
        assert site.client.get(f"/static/{name}").status_code == 404, name


def test_a_run_is_sent_whole_and_then_its_new_rounds(site):
    site.enter()
    whole = site.ask("run", {"run": "r"}).json()
    assert len(whole["rounds"]["accuracy"]) == 9
    assert "details" in whole
    rest = site.ask("run", {"run": "r", "since": 7}).json()
    assert rest["rounds"]["accuracy"] == whole["rounds"]["accuracy"][7:]
    assert "details" not in rest
    cells = site.client.get("/api/cells?run=r&since=7")
    assert (cells.headers["x-from"], len(cells.content)) == ("7", 2 * 6)
    assert site.client.get("/api/cells?run=r&since=99").headers["x-from"] == "0"


def test_a_run_is_sent_whole_again_when_more_is_known_of_what_clients_hold(site):
    site.enter()
    same = site.ask("run", {"run": "r", "since": 9, "known": 6}).json()
    assert same["rounds"]["from"] == 9
    more = site.ask("run", {"run": "r", "since": 9, "known": 5}).json()
    assert more["rounds"]["from"] == 0
    assert more["details"]["holdings"]["known"] == 6


def test_questions_that_make_no_sense_are_refused_in_a_sentence(site):
    site.enter()
    for question, body in {"run": {"run": "../x"}, "curves": {"runs": ["nope"]}, "stop": {"run": "r"}}.items():
        answer = site.ask(question, body)
        assert answer.status_code == 422, question
        assert answer.json()["error"].endswith(".")
    assert site.ask("run", {}).status_code == 400
    assert site.client.post("/api/run", content=b"[1]", headers=ORIGIN).status_code == 400
    assert site.client.post("/api/run", content=b"x" * 200_000, headers=ORIGIN).status_code == 413
    assert site.client.get("/api/cells").status_code == 400
    assert site.client.get("/page?run=r&file=config.toml").status_code == 404


def test_the_privacy_audits_page_is_linked_and_cannot_run_scripts(site, tmp_path):
    (tmp_path / "r" / "privacy").mkdir()
    (tmp_path / "r" / "privacy" / "audit.html").write_text("<p>audit</p>")
    site.enter()
    assert site.ask("run", {"run": "r"}).json()["facts"]["links"] == {"privacy/audit.html": "privacy audit"}
    answer = site.client.get("/page?run=r&file=privacy/audit.html")
    assert answer.text == "<p>audit</p>"
    assert "script-src" not in answer.headers["content-security-policy"]
    assert "default-src 'none'" in answer.headers["content-security-policy"]


PAPER = """# Reproduction

From [results](../results), [text](javascript:alert(1)) and [table1](#table1).

| claim | evidence |
| --- | --- |
| <script>alert(1)</script> | a<br>b |

<a id="table1"></a>

![ours](figures/table1-quick.png)
![theirs](figures/led-out.png)
![above](../secret.png)
![far](http://evil.example/x.png)

<details><summary><code>table1</code> <i>small</i></summary>

| folded |
| --- |
| away |

</details>
"""


def test_the_papers_page_is_linked_with_its_figures_and_nothing_else(site, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path / "r")
    site.enter()
    assert site.ask("runs").json()["paper"] is False
    assert site.client.get("/paper").status_code == 404
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "table1-quick.png").write_bytes(b"picture")
    (tmp_path / "secret.png").write_bytes(b"secret")
    (tmp_path / "figures" / "led-out.png").symlink_to(tmp_path / "secret.png")
    (tmp_path / "reproduction.md").write_text(PAPER)
    assert site.ask("runs").json()["paper"] is True
    answer = site.client.get("/paper")
    assert answer.headers["content-security-policy"] == LINKED_POLICY
    assert re.findall(r'<img src="([^"]*)"', answer.text) == ["data:image/png;base64,cGljdHVyZQ==", "", "", ""]
    assert re.findall(r'href="([^"]*)"', answer.text) == ["#table1"]
    assert '<a id="table1"></a>' in answer.text
    assert "<td>a<br>b</td>" in answer.text
    title = "<details><summary><code>table1</code> &lt;i&gt;small&lt;/i&gt;</summary>"
    assert re.search(f"{title}\\s*<table>.+<td>away</td>.+</table>\\s*</details>", answer.text, re.DOTALL)
    assert "<script" not in answer.text
    assert Browser(site.guard).get("/paper").status_code == 403, "it has no cookie"


def test_the_papers_page_is_found_where_the_report_writes_it(site, tmp_path, monkeypatch):
    project = tmp_path / "project"
    (project / "docs").mkdir(parents=True)
    (project / "docs" / "reproduction.md").write_text("# Ours")
    monkeypatch.chdir(project)
    assert "<h1>Ours</h1>" in site.enter().client.get("/paper").text


def test_a_run_that_is_no_federation_has_no_nodes(site):
    assert site.enter().ask("nodes", {"run": "r"}).json() is None


def test_the_form_knows_every_setting():
    fields = form()
    assert {"dataset", "rounds", "seed"} <= {field["name"] for field in fields["top"]}
    kinds = {section["name"]: section for section in fields["sections"]}
    assert kinds["algorithm"]["kind"] == "rebafl"
    assert "algorithm.mu" in [field["name"] for field in kinds["algorithm"]["kinds"]["fedprox"]["fields"]]
    assert kinds["training"]["kind"] is None
    (transform,) = [f for f in kinds["training"]["kinds"][""]["fields"] if f["name"] == "training.transform"]
    assert transform["choices"] == ["none", "crop-flip"]


def test_every_field_of_the_form_takes_its_own_default():
    fields = form()
    for section in fields["sections"]:
        for kind, part in section["kinds"].items():
            words = {field["name"]: field["default"] for field in part["fields"] if field["default"]}
            needed = {"trace": ("path", "x.csv"), "file": ("path", "x.json"), "listed": ("classes", "[[0]]")}
            if kind in needed:
                words[f"{section['name']}.{needed[kind][0]}"] = needed[kind][1]
            chosen = {section["name"]: kind} if section["kind"] else {}
            assert checked_words({"dataset": "fashion-mini", **chosen, **words}, own_code=False)[1]


@pytest.mark.parametrize(
    "words",
    [
        {"dataset": "os:getcwd"},
        {"algorithm": "evil:Method"},
        {"algorithm": "'evil:Method'"},
        {"algorithm.kind": "evil:Method"},
        {"model.kind": "evil:Net"},
        {"model": "evil:Net"},
        {"partition": "evil:Part"},
        {"participation.kind": '"evil:Part"'},
        {"delivery": "evil:Part"},
    ],
)
def test_own_code_is_not_run_from_the_form(words, tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="own code, which this page does not do"):
        checked_words(words, own_code=False)
    if not {"dataset", "model", "model.kind"} & words.keys():  # those two are imported later
        with pytest.raises(UserError, match="imported"):
            checked_words(words, own_code=True)


def test_wrong_settings_are_refused_before_anything_is_started(site, tmp_path):
    site.enter()
    for words, message in (
        ({"rounds": "0"}, "rounds"),
        ({"nonsense": "1"}, "Unknown key"),
        ({"__class__.x": "1"}, "Unknown key"),
        ({"a b": "1"}, "no setting"),
        ({"rounds": 5}, "no setting"),
        ({"dataset": "fashion-mini\nseed=1"}, "dataset"),
    ):
        answer = site.ask("start", {"words": words, "name": "new"})
        assert answer.status_code == 422
        assert message in answer.json()["error"]
    for name in ("../up", "a/b", ".hidden", "-x", "a b", "x" * 200):
        answer = site.ask("start", {"words": {"dataset": "fashion-mini"}, "name": name})
        assert "cannot be a run's name" in answer.json()["error"], name
    assert "already" in site.ask("start", {"words": {"dataset": "fashion-mini"}, "name": "r"}).json()["error"]
    assert not site.views.control.jobs


def test_a_run_of_own_code_is_not_resumed(tmp_path, monkeypatch):
    written_run(tmp_path / "r", drawn_lines(6, 3), 6)
    site = Site(tmp_path).enter()
    record = site.views.view("r")._follower._tail.record
    record.write_config({**record.config(), "algorithm": {"kind": "evil:Method"}})
    answer = site.ask("resume", {"run": "r"})
    assert "own code" in answer.json()["error"]


def test_it_listens_on_this_machine_only():
    listener = _listener(0)
    try:
        assert listener.getsockname()[0] == "127.0.0.1"
        with pytest.raises(UserError, match=r"Port \d+ of 127.0.0.1 cannot be used"):
            _listener(listener.getsockname()[1])
    finally:
        listener.close()


def test_a_missing_extra_is_one_sentence(monkeypatch):
    monkeypatch.setattr("rebafl.ui.server.find_spec", lambda name: None)
    with pytest.raises(UserError, match=re.escape("pip install 'rebafl[ui]'")):
        need_ui()
