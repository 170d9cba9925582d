"""The shell on a terminal: prompt, history, completion.  Elsewhere: statements from standard input."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from nile.aggregates.catalogue import CATALOGUE
from nile.base.version import __version__
from nile.engine.connect import connect
from nile.engine.database import Database
from nile.shell.commands import COMMANDS
from nile.shell.session import Shell

_readline: ModuleType | None
try:
    import readline as _readline
except ImportError:  # Windows
    _readline = None

__all__ = ["history_file", "run_shell"]

_PROMPT = "nile> "
_MORE = "  ... "
_KEYWORDS = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "BY",
    "HAVING",
    "DISTINCT",
    "UNION",
    "INTERSECT",
    "EXCEPT",
    "ORDER",
    "LIMIT",
    "WITH",
    "PREFERENCE",
    "desc",
    "asc",
    "weighted",
    "FADE",
    "FACTOR",
    "WINDOW",
    "DWINDOW",
    "BUDGET",
    "BY DEADLINE",
    "ERROR",
    "CONFIDENCE",
    "CREATE",
    "STREAM",
    "RELATION",
    "SUMMARY",
    "TIMESTAMP",
    "LATENESS",
    "GRANULARITY",
    "COLLAPSE",
    "USING",
    "SHOW",
    "TABLES",
    "STREAMS",
    "SUMMARIES",
    "DESCRIBE",
    "DROP",
    "VIEW",
    "MATERIALIZED",
    "INSERT",
    "INTO",
    "VALUES",
    "UPDATE",
    "SET",
    "DELETE",
    "DECLARE",
    "ORDERED",
    "CLUSTERED",
    "PAUSE QUERY",
    "RESUME QUERY",
    "PUNCTUATE",
    "PUNCTUATED",
    "MANY ONE",
    "REFERENTIAL",
    "WITHIN",
    "ON VIOLATION",
    "CONSTRAINT",
    "QUERIES",
    "EXPLAIN",
    "ANALYZE",
    "AND",
    "OR",
    "NOT",
    "BETWEEN",
    "LIKE",
    *(kind.sql for kind in CATALOGUE.values() if kind.sql is not None),
]
_HISTORY_LINES = 10_000


def history_file() -> Path:
    """Where the shell's history is kept: NILE_HISTORY, else the user's state folder."""
    named = os.environ.get("NILE_HISTORY")
    if named:
        return Path(named)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "nile" / "history"


def run_shell(*, statements: tuple[str, ...] = (), form: str | None = None, opened: str | None = None) -> int:
    """Run `statements`, or what standard input says, over a new database in memory, or `opened`, a store's or a
    server's.

    Returns the exit status: 0, or that of the statement that failed (`nile.base.status`).

    On a terminal the shell goes on after an error; statements from elsewhere end at the first.
    """
    interactive = not statements and sys.stdin.isatty()
    width = shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 80
    shell = Shell(connect(opened), sys.stdout, sys.stderr, form=form or "table", width=width)
    if interactive:
        with _history() as module:
            _complete(module, shell)
            _converse(shell, module)
        return 0
    for text in statements or (sys.stdin,):
        for line in text.splitlines() if isinstance(text, str) else text:
            if not shell.line(line.rstrip("\n")):
                return shell.status
            if shell.done:
                return 0
        if not shell.finish():
            return shell.status
    return 0


def _converse(shell: Shell, module: ModuleType | None) -> None:
    shell.say(f"Nile {__version__}. Statements end with ';', .help helps, .quit leaves.")
    lines: list[str] = []
    begun = 0
    while not shell.done:
        try:
            if not lines and module is not None:
                begun = module.get_current_history_length()
            lines.append(input(_MORE if shell.waiting else _PROMPT))
            shell.line(lines[-1])
            if not shell.waiting:
                if module is not None:
                    remember(module, begun, lines)
                lines = []
        except EOFError:
            shell.say("")
            return
        except KeyboardInterrupt:
            shell.say("")
            shell.forget()
            lines = []


def remember(module: ModuleType, begun: int, lines: list[str]) -> None:
    """A statement of several lines as one entry of the history, in place of those since `begun`.

    One with a comment to the end of a line stays as it is: in one line the comment would take the rest in.
    """
    if len(lines) < 2 or any("--" in line for line in lines):
        return
    for at in reversed(range(begun, module.get_current_history_length())):
        module.remove_history_item(at)
    module.add_history(" ".join(line.strip() for line in lines if line.strip()))


@contextlib.contextmanager
def _history() -> Iterator[ModuleType | None]:
    """Line editing with a history that outlives the session, where Python has it."""
    if _readline is None:
        yield None
        return
    file = history_file()
    with contextlib.suppress(OSError):
        _readline.read_history_file(file)
    try:
        yield _readline
    finally:
        _readline.set_history_length(_HISTORY_LINES)
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            _readline.write_history_file(file)


def _complete(module: ModuleType | None, shell: Shell) -> None:
    """Tab completes keywords, commands, and names of streams and columns."""
    if module is None:
        return

    def completer(text: str, state: int) -> str | None:
        found = completions(shell.database, text)
        return found[state] if state < len(found) else None

    module.set_completer(completer)
    module.set_completer_delims(" \t\n,();=<>*+-/'")
    module.parse_and_bind("tab: complete")


def completions(database: Database, text: str) -> list[str]:
    """What a word that begins with `text` may become, in order."""
    named = [*database.streams, *database.relations]
    names = {*named, *(column for name in named for column in database.schema(name).names)}
    words = [*COMMANDS] if text.startswith(".") else [*sorted(names), *_KEYWORDS]
    return [word for word in words if word.lower().startswith(text.lower())]
