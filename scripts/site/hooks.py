"""Hooks of the documentation site (mkdocs.yml).

The pages under docs/ in a fixed order (those it does not know come last), one generated page for
every public module of the package, and formulas as MathML, made here: pages load nothing from
elsewhere.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import latex2mathml.converter
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
# What a reader wants first; other pages follow in alphabetical order.
FIRST = ("index", "python", "nn", "distributed", "conventions", "aclnn", "program", "performance")
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def _modules() -> Iterator[str]:
    """Names of the public modules, the functions first."""
    package = ROOT / "python" / "anabranch"
    found = []
    for path in package.rglob("*.py"):
        parts = path.relative_to(package).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if parts and not any(p.startswith("_") for p in parts):
            found.append(".".join(("anabranch", *parts)))
    first = ("anabranch.functional", "anabranch.nn", "anabranch.ops")
    yield from sorted(found, key=lambda m: (first.index(m) if m in first else len(first), m))


def _pages(folder: Path) -> list[str]:
    names = sorted(p.stem for p in folder.glob("*.md"))
    return sorted(names, key=lambda n: (FIRST.index(n) if n in FIRST else len(FIRST), n))


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    docs = ROOT / "docs"
    config.nav = [
        *(f"{name}.md" for name in _pages(docs)),
        {"Operators": [f"ops/{name}.md" for name in _pages(docs / "ops")]},
        {"Python API": [{name: f"api/{name}.md"} for name in _modules()]},
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name in _modules():
        text = f"# {name}\n\n::: {name}\n    options:\n      show_root_heading: false\n"
        files.append(File.generated(config, f"api/{name}.md", content=text))
    return files


def _mathml(match: re.Match[str]) -> str:
    display = "block" if match[2] == "[" else "inline"
    return latex2mathml.converter.convert(html.unescape(match[3]).strip(), display=display)


def on_page_content(content: str, **_: Any) -> str:
    return FORMULA.sub(_mathml, content)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Refuses a page that would show TeX, or load something from another host."""
    where = page.file.src_uri
    if "arithmatex" in output:
        raise ValueError(f"{where}: a formula was not converted")
    foreign = re.search(r'<(?:script|link|img)[^>]*(?:src|href)="(?:https?:)?//[^"]*"', output)
    if foreign is not None:
        raise ValueError(f"{where}: {foreign[0]} is loaded from another host")
    return output
