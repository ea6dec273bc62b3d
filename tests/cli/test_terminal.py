"""What others wrote is shown, and cannot act on the operator's terminal."""

import importlib
import io
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from rebafl.base.errors import UserError
from rebafl.base.words import printable
from rebafl.cli import terminal
from rebafl.cli.terminal import Display, PlainConsole, progress_bar, show_table
from rebafl.federation.plain_log import as_plain
from rebafl.runs.events import RoundLine
from rebafl.runs.settings import make_settings

main = importlib.import_module("rebafl.cli.main")  # the package has a function of that name
ATTACK = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202ekcab\x08\x7f\udcff end"
ACTIVE = "\x1b\x07\x9b\u202e\x08\x7f\udcff"


@given(st.text())
def test_nothing_that_is_shown_acts(text):
    shown = printable(text)
    assert all(part.isprintable() or not part.isascii() for part in shown.replace("\t", "\n").split("\n"))
    assert not set(shown) & set(ACTIVE)
    shown.encode()


def test_what_is_readable_stays_as_it_is():
    for text in ("plain", "Größe 5 µm, 日本語 🙂", "two\nlines\tand a tab", "non\u00a0breaking"):
        assert printable(text) == text


def test_a_console_shows_control_characters_and_keeps_its_own_colours():
    held = io.StringIO()
    console = PlainConsole(file=held, force_terminal=True, width=200, color_system="standard", legacy_windows=False)
    console.print(Text(ATTACK, "red"), soft_wrap=True)
    table = Table("a")
    table.add_row(Text(ATTACK))
    console.print(table)
    text = held.getvalue()
    assert "\x1b[31m" in text
    assert "\x1b[2J" not in text
    assert not set(text) & set(ACTIVE) - {"\x1b"}
    assert text.count(r"\x1b[2J\x1b]0;owned") == 2


LINE = RoundLine(
    1, [0, 1], [], {0: ATTACK}, False, None, 0, 0, 50.0, 1.0, [0.5], 0.1, missing={1: ATTACK}, discarded=ATTACK
)


@pytest.fixture
def stderr(monkeypatch):
    held = io.StringIO()
    monkeypatch.setattr(terminal, "err", PlainConsole(file=held, width=500))
    monkeypatch.setattr(main, "err", terminal.err)
    return held


def test_reasons_of_nodes_in_the_display_of_a_run(stderr, tmp_path):
    with Display(make_settings({}), tmp_path, silent=False) as display:
        display.listen(LINE)
    assert stderr.getvalue().count(r"\x1b[2J") == 3
    assert not set(stderr.getvalue()) & set(ACTIVE)


def test_errors_and_tables(stderr, monkeypatch, capsys):
    def fail():
        raise UserError(ATTACK)

    with pytest.raises(SystemExit):
        main.main(fail)
    assert r"\x1b[2J" in stderr.getvalue()
    assert not set(stderr.getvalue()) & set(ACTIVE)
    show_table(("name",), [(ATTACK,)])
    shown = capsys.readouterr().out
    assert r"\x1b[2J" in shown
    assert not set(shown) & set(ACTIVE)


def test_progress_still_moves_the_cursor(monkeypatch):
    held = io.StringIO()
    console = PlainConsole(file=held, force_terminal=True, width=80, legacy_windows=False)
    monkeypatch.setattr(terminal, "err", console)
    with progress_bar(disable=False) as progress:
        progress.add_task("job", total=2, facts="")
        progress.refresh()
    assert "\x1b[2K" in held.getvalue()


def test_the_log_of_a_federation():
    try:
        raise ValueError(ATTACK)
    except ValueError as error:
        record = logging.LogRecord("flwr", 20, "f", 1, "client %s: %s", (3, ATTACK), (ValueError, error, None))
    assert as_plain(record)
    text = logging.Formatter().format(record)
    assert text.startswith(r"client 3: \x1b[2J")
    assert text.count(r"\x1b[2J") == 2
    assert not set(text) & set(ACTIVE)


@pytest.mark.parametrize("module", ["rebafl.federation.app.client_app"])
def test_nodes_keep_their_log_plain(module):
    __import__(module)
    assert as_plain in logging.getLogger("flwr").filters
