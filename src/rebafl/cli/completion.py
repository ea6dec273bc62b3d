"""`rebafl completion`: how does a shell complete commands, options and settings when Tab is pressed?

The script that is printed holds all words itself: asking `rebafl` at each Tab would import torch each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import typer
from click import Command, Group
from rich.text import Text

from ..base.config import describe
from ..runs.settings import KINDS, SECTIONS, TYPES, Settings
from .terminal import out

Shell = Literal["bash", "zsh", "fish"]
TAKES_SETTINGS = ("run", "sweep", "settings", "partition", "federation up", "federation run")

ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"
BASH = """\
_rebafl() {
    local line="${COMP_LINE:0:COMP_POINT}" word path="" list known
    word="${line##* }"
    for known in $line; do
        [[ "$known" == [a-z]* && "$known" != *=* && "$known" != "$word" && "$known" != rebafl ]] || continue
        [[ " $_rebafl_commands " == *" ${path:+${path}/}$known "* ]] && path="${path:+${path}/}$known"
    done
    list="$(_rebafl_words "$path")"
    COMPREPLY=($(compgen -W "$list" -- "$word"))
    if [[ ${#COMPREPLY[@]} -eq 0 && "$word" != *=* ]]; then
        COMPREPLY=($(compgen -f -- "$word"))
    fi
    [[ "${COMPREPLY[0]}" == *= ]] && compopt -o nospace 2>/dev/null
    # Bash takes what stands before a = for a word of its own
    [[ "$word" == *=* && "$COMP_WORDBREAKS" == *=* ]] && COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*=}"}"}")
    return 0
}
complete -F _rebafl rebafl
"""


def completion(ctx: typer.Context, shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.")] = "bash") -> None:
    """Print a script with which a shell completes commands, options and settings.

    Examples:

    * `rebafl completion bash > ~/.local/share/bash-completion/completions/rebafl`

    * `rebafl completion zsh >> ~/.zshrc`

    * `rebafl completion fish > ~/.config/fish/completions/rebafl.fish`
    """
    out.print(Text(script(ctx.find_root().command, shell)), soft_wrap=True, end="")


def script(program: Command, shell: Shell) -> str:
    """The script for a shell, with every word that could be completed."""
    words = dict(_words(program))
    if shell == "fish":
        return _fish(words)
    start = ZSH if shell == "zsh" else ""
    cases = "\n".join(f"        '{path}') echo {' '.join(map(repr, options))} ;;" for path, options in words.items())
    known = " ".join(filter(None, words))
    return f'{start}_rebafl_commands="{known}"\n_rebafl_words() {{\n    case "$1" in\n{cases}\n    esac\n}}\n{BASH}'


def _fish(words: dict[str, list[str]]) -> str:
    lines = ["complete -c rebafl -f -n __fish_use_subcommand -a '" + " ".join(words[""]) + "'"]
    for path, options in words.items():
        if path:
            within = " and ".join(f"__fish_seen_subcommand_from {part}" for part in path.split("/"))
            lines.append(f"complete -c rebafl -n '{within.replace(' and ', '; and ')}' -a '{' '.join(options)}'")
    return "\n".join(lines) + "\n"


def _words(command: Command, path: str = "") -> Iterator[tuple[str, list[str]]]:
    """For each command, by the names that lead to it: its commands, options and settings."""
    options = [name for parameter in command.params for name in parameter.opts if name.startswith("--")]
    settings = setting_words() if path.replace("/", " ") in TAKES_SETTINGS else []
    inner = command.commands if isinstance(command, Group) else {}
    yield path, [*inner, *options, *settings]
    for name, below in inner.items():
        yield from _words(below, f"{path}/{name}".strip("/"))


def setting_words() -> list[str]:
    """All keys as `KEY=`, and for those that name a kind, `KEY=KIND` of each."""
    plain = [f"{key.name}=" for key in describe(Settings) if key.name not in SECTIONS]
    kinds = [f"{section}={kind}" for section in KINDS for kind in KINDS[section]]
    classes = [(section, part) for section, kinds_of in KINDS.items() for part in kinds_of.values()]
    classes += [(section, TYPES[section]) for section in SECTIONS if section not in KINDS]
    keys = {f"{section}.{key.name}=": None for section, part in classes for key in describe(part)}
    return ["out=", *plain, *kinds, *keys]
