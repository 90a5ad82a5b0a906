"""Every Python block of README.md and docs/ runs, a page's blocks one after the other.

A block whose fence says ``python notest`` is not run; it must say in the text why.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```python[ ]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = {page: FENCE.findall(page.read_text(encoding="utf-8")) for page in PAGES}


def test_the_pages_have_blocks():
    assert sum(map(len, BLOCKS.values())) >= 2


@pytest.mark.parametrize(
    "page", [p for p, blocks in BLOCKS.items() if blocks], ids=lambda p: str(p.relative_to(ROOT))
)
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {"__name__": "__main__"}
    for number, block in enumerate(BLOCKS[page], 1):
        exec(compile(block, f"{page.name}, block {number}", "exec"), space)
