"""A page of one file: its head, the style sheet and the script, and a policy under which nothing else may load."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256

from nile.report.pages.markup import Markup, element, joined, void
from nile.report.pages.style import SCRIPT, STYLE

__all__ = ["document"]


def document(title: str, *main: Markup) -> str:
    """The whole page as HTML text.  main: what stands in it."""
    head = joined(
        void("meta", charset="utf-8"),
        void("meta", http_equiv="Content-Security-Policy", content=_policy()),
        void("meta", name="viewport", content="width=device-width, initial-scale=1"),
        void("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Markup(STYLE)),
    )
    body = element("body", element("main", *main), element("script", Markup(SCRIPT)))
    return f"<!doctype html>\n{element('html', element('head', head), body, lang='en')}\n"


def _policy() -> str:
    """Nothing may be loaded, and no style or script may run but the page's own, by its hash."""
    own = [b64encode(sha256(text.encode()).digest()).decode() for text in (STYLE, SCRIPT)]
    return (
        f"default-src 'none'; style-src 'sha256-{own[0]}'; script-src 'sha256-{own[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )
