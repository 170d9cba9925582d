"""Standard input, or another open descriptor of the process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from nile.sensors.connectors.messages import Messages
from nile.sensors.sensor import END, NO_VALUE
from nile.summaries.errors import SourceError

__all__ = ["StandardInput"]


class StandardInput(Messages):
    """USING 'stdin': each line is a value, until the input ends; read when there is something.

    address: the number of the descriptor, 0 for standard input.  One row alone may read it.
    """

    def init(self, address: Any, row: Mapping[str, Any]) -> None:  # noqa: ARG002
        if not (isinstance(address, str) and address.isdecimal()):
            raise SourceError(
                f"sensors USING 'stdin': needed the number of a descriptor, '0' for standard input; got {address!r}"
            )
        self._descriptor = int(address)
        self._left = b""

    def fileno(self) -> int:
        return self._descriptor

    def read(self) -> Any:
        data = os.read(self._descriptor, 1 << 16)
        if not data:
            last, self._left = self._left, b""
            return self.found([last]) if last else END
        *lines, self._left = (self._left + data).split(b"\n")
        return self.found(line.removesuffix(b"\r") for line in lines) if lines else NO_VALUE
