"""A page in a real browser, where one is installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html import escape
from pathlib import Path
from typing import Any

import pytest

__all__ = ["browser", "fitted", "in_browser"]

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


def in_browser(page: Path, home: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Open a page without a window, and give its document as it stands after its scripts have run."""
    assert CHROMIUM is not None
    return subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--log-level=0",
         f"--user-data-dir={home}", *options, "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
        env={**os.environ, "HOME": str(home)},
    )  # fmt: skip


PROBE = """
<script>addEventListener("load", () => {
  const style = getComputedStyle(document.body);
  parent.document.title = JSON.stringify({
    wide: document.documentElement.scrollWidth, room: document.documentElement.clientWidth,
    paper: style.backgroundColor, ink: style.color,
    cut: [...document.querySelectorAll("td, th, h1, h2, h3, .reading")].filter(
      (one) => one.scrollWidth > one.clientWidth + 1 && one.clientWidth).map((one) => one.textContent),
    least: Math.min(...[...document.querySelectorAll("text, p, td")].map(
      (one) => parseFloat(getComputedStyle(one).fontSize))),
  });
});</script></body>
"""


def fitted(html: str, folder: Path, width: int, scheme: int) -> dict[str, Any]:
    """What a page in a window so wide measures: its width and room, its colours, its smallest text, and what of
    its cells and headings is cut.

    scheme: 0 dark, 1 light.
    """
    html = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", html)
    frame = f'<iframe width="{width}" height="900" srcdoc="{escape(html.replace("</body>", PROBE))}"></iframe>'
    page = folder / "frame.html"  # a window has a least width, a frame has none
    page.write_text(f"<!doctype html><title></title>{frame}", encoding="utf-8")
    shown = in_browser(page, folder / "home", f"--blink-settings=preferredColorScheme={scheme}")
    title = re.search(r"<title>(\{.*?\})</title>", shown.stdout)
    assert title is not None
    measured: dict[str, Any] = json.loads(title[1])
    return measured
