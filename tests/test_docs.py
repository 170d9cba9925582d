"""The code in README and docs runs, and prints what is said beside it."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def outputs(block: str) -> dict[int, str]:
    """Line -> what a comment behind a `print` there says it prints; a comment that begins with a word says else."""
    told = re.compile(r"\bprint\(.*\)\s*# ((?:[-\d\[({'\"<]|True|False|None).*)$")
    return {number: found[1] for number, line in enumerate(block.splitlines(), 1) if (found := told.search(line))}


def run(block: str, names: dict[str, object], page: str) -> dict[int, str]:
    """Runs a block; line -> all that a `print` there printed."""
    printed: dict[int, list[str]] = defaultdict(list)

    def show(*told: object, sep: str = " ", end: str = "\n", **_: object) -> None:
        printed[sys._getframe(1).f_lineno].append(sep.join(map(str, told)) + end.strip("\n"))

    names["print"] = show
    exec(compile(block, page, "exec"), names)
    return {line: "\n".join(told) for line, told in printed.items()}


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_the_python_of_a_page_runs_from_top_to_bottom_and_prints_what_it_says(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NILE_COSTS")  # as whoever reads it runs it
    names: dict[str, object] = {}
    for block in blocks(page):
        printed = run(block, names, page.name)
        assert {line: printed.get(line) for line in outputs(block)} == outputs(block)
    assert names


def test_a_wrong_output_beside_a_print_is_seen() -> None:
    block = "for n in (1, 2):\n    print(n)  # 1\nprint([n])  # [2]\nprint('x')  # a word\n"
    assert outputs(block) == {2: "1", 3: "[2]"}
    assert run(block, {}, "page") == {2: "1\n2", 3: "[2]", 4: "x"}


def test_the_readme_opens_with_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    first = next(block for language, block in fenced if not language)
    assert first.splitlines() == ["uv run nile demo", "uv run pytest"]


def outside_code(text: str) -> str:
    """A page without its fenced code, where f[x](y) is a call."""
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def test_links_of_the_pages_point_at_files_that_are_there() -> None:
    broken = [
        f"{page.name}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\((?!https?://)([^)#]+)\)", outside_code(page.read_text(encoding="utf-8")))
        if not (page.parent / target).exists()
    ]
    assert broken == []
