"""What was taken from others is unchanged, has its licence, and asks no other machine for anything."""

import json
import re

from rebafl.base.files import sha256
from rebafl.ui.assets import SCRIPTS, STATIC, STYLES, page, standalone, vendored


def test_vendored_files_are_those_that_were_published():
    files = vendored()
    present = {path.name for path in (STATIC / "vendor").iterdir()} - {"versions.json"}
    assert set(files) == present
    for name, entry in files.items():
        assert sha256((STATIC / "vendor" / name).read_bytes()) == entry["sha256"], name
        assert re.fullmatch(r"\d+\.\d+\.\d+", entry["version"])
    packages = {entry["package"] for entry in files.values()}
    assert {files[f"{name}.LICENSE"]["package"] for name in ("preact", "htm", "uPlot")} == packages


def test_every_script_is_part_of_the_page():
    own = {path.name for path in STATIC.glob("*.*")}
    assert own == {name for name in (*SCRIPTS, *STYLES) if "/" not in name}
    assert all(f"/static/{name}" in page() for name in (*SCRIPTS, *STYLES))


def test_no_file_of_ours_names_another_machine():
    for path in STATIC.glob("*.*"):
        addresses = set(re.findall(r"https?://[^\s\"'`)]+", path.read_text()))
        assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}, path.name


def test_no_inline_script_can_end_its_element_early():
    for name in (*SCRIPTS, *STYLES):
        text = (STATIC / name).read_text().lower()
        assert "</script" not in text, name
        assert "</style" not in text, name
        assert "<!--" not in text, name


def test_a_standalone_file_allows_its_own_scripts_only():
    text = standalone("<b>&", {"payload": "AAAA"})
    assert "<title>&lt;b&gt;&amp;</title>" in text
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1]
    assert "connect-src" not in policy
    assert "default-src 'none'" in policy
    assert policy.count("'sha256-") == len(SCRIPTS) + 1
    assert "unsafe" not in policy
    assert json.loads((STATIC / "vendor" / "versions.json").read_text())["about"]
