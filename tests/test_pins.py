"""Are files pinned by their digests, for the versions that are used?"""

from pathlib import Path

import pytest

import make_pins

ROOT = Path(__file__).parent.parent
PINS = make_pins.read_pins((ROOT / "pins.txt").read_text())


def allowed_versions() -> dict[str, set[str]]:
    """The versions of constraints.txt, whatever Python they are for."""
    versions: dict[str, set[str]] = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        name, pinned, version = line.partition(";")[0].partition("==")
        if pinned and not line.startswith("#"):
            versions.setdefault(make_pins.canonical(name.strip()), set()).add(version.strip())
    return versions


def test_every_pin_has_a_digest_and_a_version_that_is_used() -> None:
    allowed = allowed_versions()
    assert len(PINS) > 100
    for pin, digests in PINS.items():
        name, _, version = pin.partition("==")
        assert digests, pin
        assert name == make_pins.canonical(name)
        assert {version} <= allowed.get(name, {version}), (
            f"{pin} is not what constraints.txt has; run tools/make_pins.py"
        )


def test_no_name_is_pinned_twice_and_what_the_package_needs_is_there() -> None:
    names = [pin.partition("==")[0] for pin in PINS]
    assert len(names) == len(set(names))
    assert {"torch", "numpy", "flwr", "ray", "pytest", "ruff", "mypy", "hatchling", "editables"} <= set(names)
    assert "rebafl" not in names


def test_files_of_another_machine_are_added() -> None:
    text = make_pins.written({"b==1": {"2" * 64, "1" * 64}, "a==2.0": {"3" * 64}})
    assert make_pins.read_pins(text) == {"a==2.0": {"3" * 64}, "b==1": {"1" * 64, "2" * 64}}
    assert text.index("a==2.0") < text.index("b==1")


@pytest.mark.parametrize(("version", "pin"), [("2.13.0+cpu", "my-torch==2.13.0"), ("1.0", "my-torch==1.0")])
def test_what_pip_reports_becomes_pins(version: str, pin: str) -> None:
    file = {"archive_info": {"hashes": {"sha256": "a" * 64}}}
    report = {
        "install": [
            {"metadata": {"name": "My_Torch", "version": version}, "download_info": file},
            {"metadata": {"name": "rebafl", "version": "0.1"}, "download_info": {"dir_info": {"editable": True}}},
        ]
    }
    assert make_pins.digests(report) == {pin: "a" * 64}
