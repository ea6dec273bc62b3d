"""How do the pages in docs/ become a site? `make docs` calls Sphinx, which reads this file.

The pages are written for a forge, which shows them as they are. What the site needs otherwise is done here, while they
are read, so that no page knows about the site.
"""

import inspect
import re
from os.path import relpath
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

import rebafl

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent

project = "rebafl"
author = "The rebafl contributors"
copyright = author
version = release = rebafl.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["figures", "measured"]
myst_heading_anchors = 3
suppress_warnings = [
    "myst.header",  # generated tables begin at the third level, whatever stands above them
    "ref.python",  # an annotation `bytes` may also be read as an attribute of this name
]

autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False  # torch explains forward() at length
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
maximum_signature_line_length = 100
default_role = "code"  # single backticks mean code in docstrings, as in the pages
highlight_language = "none"  # indented lines in the pages are commands

html_theme = "furo"
html_title = f"rebafl {version}"
html_copy_source = False
html_domain_indices = False
html_show_search_summary = False  # browsers do not let a page read its neighbours from file://

ROOT_PAGES = {"README.md": "index", "CONTRIBUTING.md": "contributing", "CHANGELOG.md": "changelog"}
"""Files of the repository's root that are pages of the site, and under which name."""

LINK = re.compile(
    r"^```.*?^```|`[^`\n]+`|(?P<words>!?\[[^\]]*\])\((?!\w+:)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)",
    re.DOTALL | re.MULTILINE,
)
"""Code, which is passed over, or a Markdown link to a file."""


def setup(app: Sphinx) -> None:
    app.connect("source-read", lambda _, name, source: source.__setitem__(0, as_page(name, source[0])))
    app.connect("autodoc-process-signature", lambda _, kind, name, value, *rest: ("", None) if fields(value) else None)
    app.connect("autodoc-process-docstring", lambda _, kind, name, value, options, lines: lines.extend(listed(value)))


def fields(value: object) -> dict[str, Any]:
    """The parameters that a class declared by `@parameters` has, each with its default and description."""
    return getattr(value, "__pydantic_fields__", {}) if inspect.isclass(value) else {}


def listed(value: object) -> list[str]:
    """Parameters as a list: readable, where a signature with all that is known of each is not."""
    lines = [""]
    for name, field in fields(value).items():
        default = "" if field.is_required() else f" = {field.get_default(call_default_factory=True)!r}"
        lines.append(f"- ``{name}{default}``" + (f": {field.description}" if field.description else ""))
    return [*lines, ""]


def reference() -> str:
    """All public names, in the words that Sphinx's autodoc understands."""
    lines = ["```{eval-rst}"]
    for name in rebafl.__all__:
        value = getattr(rebafl, name)
        if isinstance(value, str):  # the version, whose docstring is that of all strings
            lines += [f".. py:data:: rebafl.{name}", f"   :value: {value!r}"]
        elif not inspect.isclass(value):
            lines += [f".. {'autofunction' if inspect.isroutine(value) else 'autodata'}:: rebafl.{name}"]
        else:
            lines += [
                f".. {'autoexception' if issubclass(value, Exception) else 'autoclass'}:: rebafl.{name}",
                "   :members:",
                "   :undoc-members:",
                f"   :exclude-members: {', '.join(fields(value))}",
            ]
        lines += [""]
    return "\n".join([*lines, "```", ""])


def as_page(name: str, text: str) -> str:
    """The source of page `name` as the site needs it: with root pages, known anchors, and no links that leave it."""
    folder = (DOCS / name).parent
    text = linked(text, folder, folder)
    for file, page in ROOT_PAGES.items():
        if page == name:
            menu = text if name == "index" else ""
            text = linked((ROOT / file).read_text(encoding="utf-8"), ROOT, DOCS) + "\n" + menu
    if name == "api":
        text += reference()
    return re.sub(r'<a id="([^"]+)"></a>', r"(\1)=", text)  # as MyST writes anchors, so that links to them are checked


def linked(text: str, origin: Path, folder: Path) -> str:
    """Links as seen from `folder` in place of `origin`; one that leaves the site becomes plain text."""

    def link(match: re.Match[str]) -> str:
        if match["words"] is None:
            return match[0]  # code
        words, target, anchor = match["words"], (origin / match["path"]).resolve(), match["anchor"] or ""
        if target.parent == ROOT and target.name in ROOT_PAGES:
            target = DOCS / f"{ROOT_PAGES[target.name]}.md"
        inside = target.is_relative_to(DOCS) and (target.suffix == ".md" or target.is_file())
        return f"{words}({relpath(target, folder)}{anchor})" if inside else words.lstrip("!")[1:-1]

    return LINK.sub(link, text)
