"""Commands of the shell: lines that begin with a dot."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from nile.aggregates.catalogue import CATALOGUE
from nile.base.show import FORMATS
from nile.execution.options import EMITS
from nile.summaries.errors import ConfigError, SourceMissing

if TYPE_CHECKING:
    from nile.shell.session import Shell

__all__ = ["COMMANDS", "HELP", "command", "no_command"]

HELP = """\
Statements end with ';':
  CREATE STREAM sales FROM 'sales.parquet' TIMESTAMP BY ts;
  SELECT item_id, count(*) FROM sales GROUP BY item_id;
  SELECT a.item_id, a.ts, b.ts FROM s1 a, s2 b WHERE a.item_id = b.item_id
    WITH PREFERENCE desc a.item_id WINDOW '1 hour' BUDGET 10 %;
  EXPLAIN ...;  EXPLAIN ANALYZE ...;  SHOW TABLES;  DESCRIBE sales;

Commands:
  .help               this text
  .tables             streams, stored relations and summaries
  .schema NAME        the columns of one of them
    .aggregates         the aggregate functions of SELECT and HAVING
  .read FILE          run the statements of a file
  .mode FORM          table, csv, json or markdown
    .limit N|all        maximum number of rows shown
    .emit HOW|default   snapshot, changes or append: what exact statements return from now on
    .timer on|off       show how long each statement took
  .quit               leave (also Ctrl-D)"""


def command(shell: Shell, line: str) -> None:
    """Run one dot-command.  Raises ConfigError for one that is not there or has the wrong arguments."""
    try:
        name, *arguments = shlex.split(line)
    except ValueError:
        raise ConfigError(f"{line.split()[0]}: needed quotes in pairs; got {line!r}; close the quote") from None
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {close[0]}?" if close else ".help lists them"
        raise ConfigError(f"{name}: needed a command of the shell; got an unknown one; {hint}")
    run, wanted = COMMANDS[name]
    if len(arguments) != len(wanted):
        usage = " ".join([name, *wanted])
        raise ConfigError(f"{name}: needed {len(wanted)} argument(s); got {len(arguments)}; write {usage}")
    run(shell, *arguments)


def no_command(line: str) -> None:
    """Raises ConfigError for a command of psql's, which names the one here."""
    name, _, rest = line.partition(" ")
    here = {"\\d": ".schema NAME" if rest else ".tables", "\\dt": ".tables", "\\q": ".quit", "\\i": ".read FILE"}
    hint = f"write {here[name]}" if name in here else ".help lists them"
    raise ConfigError(f"{name}: needed a command of the shell, which begins with a dot; got a backslash; {hint}")


def _help(shell: Shell) -> None:
    shell.say(HELP)


def _quit(shell: Shell) -> None:
    shell.done = True


def _tables(shell: Shell) -> None:
    shell.statement("SHOW TABLES")


def _schema(shell: Shell, name: str) -> None:
    shell.statement('DESCRIBE "' + name.replace('"', '""') + '"')


def _aggregates(shell: Shell) -> None:
    named = [
        (f"{kind.sql}(x{', share' if kind.argument else ''})", kind.meaning) for kind in CATALOGUE.values() if kind.sql
    ]
    width = max(len(call) for call, _ in named)
    shell.say("\n".join(f"  {call:{width}}  {meaning}" for call, meaning in named))


def _read(shell: Shell, path: str) -> None:
    file = Path(path).expanduser()
    if not file.is_file():
        raise SourceMissing(f".read: needed a file of statements; got {path!r}, which is not there; check the path")
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (UnicodeDecodeError, OSError) as error:
        raise ConfigError(f".read: needed a readable UTF-8 text file; got {path!r}: {error}; convert it") from None
    shell.script(text)


def _mode(shell: Shell, form: str) -> None:
    if form not in FORMATS:
        raise ConfigError(f".mode: needed one of {', '.join(FORMATS)}; got {form!r}; write .mode csv")
    shell.form = form


def _timer(shell: Shell, state: str) -> None:
    if state not in ("on", "off"):
        raise ConfigError(f".timer: needed on or off; got {state!r}; write .timer on")
    shell.timer = state == "on"


def _emit(shell: Shell, how: str) -> None:
    if how not in (*EMITS, "default"):
        raise ConfigError(f".emit: needed one of {', '.join(EMITS)}, default; got {how!r}; write .emit changes")
    shell.emit = None if how == "default" else how


def _limit(shell: Shell, count: str) -> None:
    shell.set_limit(count)


COMMANDS: dict[str, tuple[Callable[..., None], tuple[str, ...]]] = {
    ".help": (_help, ()),
    ".tables": (_tables, ()),
    ".schema": (_schema, ("NAME",)),
    ".aggregates": (_aggregates, ()),
    ".read": (_read, ("FILE",)),
    ".mode": (_mode, ("FORM",)),
    ".limit": (_limit, ("N|all",)),
    ".emit": (_emit, ("HOW",)),
    ".timer": (_timer, ("on|off",)),
    ".quit": (_quit, ()),
    ".exit": (_quit, ()),
}
