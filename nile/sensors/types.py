"""The column types of sensors, as Arrow types."""

from __future__ import annotations

from nile.summaries.errors import ConfigError
from nile.summaries.heavy import pa

__all__ = ["TYPES", "column_type"]

_NAMES = "TINYINT SMALLINT INT INTEGER BIGINT REAL FLOAT DOUBLE TEXT VARCHAR STRING BOOLEAN BOOL TIMESTAMP DATE BLOB"
TYPES = tuple(_NAMES.split())
"""Names of types; of each there are lists too, `INT[]` or `LIST<INT>`."""


def column_type(text: str, *, where: str) -> pa.DataType:
    """The Arrow type of a type's text, such as INT or DOUBLE[].  Raises ConfigError."""
    if text.endswith("[]"):
        return pa.list_(column_type(text[:-2], where=where))
    kinds = {
        "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": pa.int32(), "INTEGER": pa.int32(), "BIGINT": pa.int64(),
        "REAL": pa.float32(), "FLOAT": pa.float32(), "DOUBLE": pa.float64(), "TEXT": pa.string(),
        "VARCHAR": pa.string(), "STRING": pa.string(), "BOOLEAN": pa.bool_(), "BOOL": pa.bool_(),
        "TIMESTAMP": pa.timestamp("us"), "DATE": pa.date32(), "BLOB": pa.binary(),
    }  # fmt: skip
    if text.upper() not in kinds:
        raise ConfigError(f"{where}: needed a type ({', '.join(TYPES)}, or a list of one, INT[]); got {text!r}")
    return kinds[text.upper()]
