"""The interface of a sink, and rows as messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar
from urllib.parse import SplitResult

from nile.base.show import first_rows, render
from nile.sensors.connectors.messages import options_of
from nile.summaries.errors import SourceError
from nile.summaries.heavy import pa

__all__ = ["Sink"]


class Sink(ABC):
    """Somewhere that rows are sent to.  One `open`, then `send` again and again, then one `close`, also after an error.

    using: its name; form: what an address looks like; own: the options behind the ? of an address that are not the
    receiver's; rows: at most so many in one `send`; columns: of the rows, with `id_name` where the address has ?id=.
    A message is a JSON object of a row's columns; of a single column of TEXT or BLOB it is the value as it is.
    """

    using: ClassVar[str]
    form: ClassVar[str]
    own: ClassVar[tuple[str, ...]] = ()
    rows: int = 4096

    def __init__(self, address: str, schema: pa.Schema) -> None:
        """Look at the address, and connect to nothing.  Raises SourceError."""
        self.where = f"sink to {self.using.upper()}"
        self.parts, self.url, self.options = options_of(address, ("id", *self.own), where=self.where)
        self.id_name = self.options.get("id")
        if self.id_name in schema.names or self.id_name == "":
            raise SourceError(f"{self.where}: needed a name in id= that no column has; got {self.id_name!r}; rename it")
        if not self.fits(self.parts):
            raise SourceError(f"{self.where}: needed {self.form}; got {address!r}")
        self.columns = [*schema.names, *([] if self.id_name is None else [self.id_name])]
        kind = schema.field(0).type if len(schema) == 1 and self.id_name is None else None
        self.plain = kind is not None and (pa.types.is_string(kind) or pa.types.is_binary(kind))

    @abstractmethod
    def fits(self, parts: SplitResult) -> bool:
        """Whether an address is one."""

    @abstractmethod
    def open(self) -> None:
        """Connect.  Raises whatever the receiver's client raises, SourceError where its package is missing."""

    @abstractmethod
    def send(self, rows: pa.RecordBatch, ids: Sequence[str]) -> None:
        """Returns once the receiver has all of them; raises where it is not known that it has.

        ids: of each row, the same whenever it is sent.
        """

    @abstractmethod
    def close(self) -> None:
        """Disconnect."""

    def number(self, name: str, default: int) -> int:
        """A whole number above 0 among the options.  Raises SourceError."""
        text = self.options.get(name)
        if text is not None and not (text.isdecimal() and 0 < int(text) < 1 << 31):
            raise SourceError(f"{self.where}: needed a whole number above 0 in {name}=; got {text!r}")
        return default if text is None else int(text)

    def values(self, rows: pa.RecordBatch, ids: Sequence[str]) -> list[tuple[Any, ...]]:
        """Rows as Python's values, in the order of `columns`; times with nanoseconds as text."""
        found, _ = first_rows(iter([rows]), None)
        return found if self.id_name is None else [(*row, id_) for row, id_ in zip(found, ids, strict=True)]

    def messages(self, rows: pa.RecordBatch, ids: Sequence[str]) -> list[bytes]:
        """A message a row."""
        if self.plain:
            texts = rows.column(0).to_pylist()
            return [b"" if text is None else text.encode() if isinstance(text, str) else text for text in texts]
        return render(self.columns, [], self.values(rows, ids), "json").encode().split(b"\n")[:-1]

    def missing(self, package: str) -> SourceError:
        """What says that a package has to be installed."""
        return SourceError(f"{self.where}: needed the package {package}; install nile-streams[{self.using}]")
