"""A server's settings, and the token that its clients must send."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from nile.summaries.errors import ConfigError

__all__ = ["LOOPBACK", "Settings", "new_token", "read_token"]

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_LEAST_TOKEN = 16


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits and names; sizes in bytes, times in seconds.

    token: what every client shows.  hosts: names that a request may be addressed to, beside loopback's; origins: of
    pages on other servers that may ask, such as "https://board.example".  files: whether SQL may name files.
    body, body_wait, body_time: how large a body may be, how long the next part of it may take, and all of it.
    rate: requests a second of one client on average, burst: at once; streams: that one client may hold open.
    retain: outputs of a standing query that those who come back still find; tail: bytes of them that are held ready.
    gather: how long new outputs are waited for before all are sent together.
    send_wait: how long a client may take nothing before its stream is cut; heartbeat: how often one that has nothing to
    hear is told so.  statements: that run at the same time.  drain: how long open answers may take at the end.
    log_requests: whether the log has a line for each.
    """

    token: str = field(repr=False)
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    files: bool = False
    body: int = 64 << 20
    body_wait: float = 10.0
    body_time: float = 120.0
    rate: float = 500.0
    burst: int = 1_000
    streams: int = 64
    retain: int = 1_000_000
    tail: int = 8 << 20
    gather: float = 0.005
    send_wait: float = 60.0
    heartbeat: float = 15.0
    statements: int = 4
    drain: float = 10.0
    log_requests: bool = False


def new_token() -> str:
    """43 characters of 256 random bits."""
    return secrets.token_urlsafe(32)


def read_token(path: Path) -> str:
    """The token in a file that only its owner may read; where there is none, a new one is written to it.

    Raises ConfigError.
    """
    place = f"token file {path}"
    try:
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        pass
    except OSError as error:
        raise ConfigError(f"{place}: needed one that can be made; got {error.strerror}; name another") from None
    else:
        with open(made, "w", encoding="ascii") as file:
            file.write(new_token() + "\n")
    try:
        if os.name == "posix" and (mode := path.stat().st_mode) & 0o077:
            raise ConfigError(f"{place}: needed mode 600, as of a password; got {mode & 0o777:o}; run chmod 600 on it")
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{place}: needed readable ASCII; got {type(error).__name__}; name another") from None
    if len(token) < _LEAST_TOKEN or not token.isprintable() or " " in token:
        raise ConfigError(
            f"{place}: needed at least {_LEAST_TOKEN} printable characters without a space; got {len(token)}; "
            "remove the file, and a new one is made"
        )
    return token
