"""The database's metadata as the tables that drivers ask for: names, columns, types, and capabilities.

The shape of each table is the protocol's.  Source: Apache Arrow, format/FlightSql.proto, comments of each command.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from nile.base.version import __version__
from nile.engine.database import Database
from nile.execution.statement.control import CONTROL
from nile.server.flight.wire import Fields, flag, numbers, text, texts
from nile.sql.expression_text import identifier
from nile.summaries.errors import NileError
from nile.summaries.heavy import pa

__all__ = ["TABLES", "told"]

_KINDS = ("SYSTEM TABLE", "TABLE", "VIEW")
_NAMES = ("catalog_name", "db_schema_name")
_NULLABLE, _SEARCHABLE, _RADIX = 1, 3, 10

# name, number of XdbcDataType, size, what literals stand between, whether text, whether a number has a sign, the
# generic number of a time and its part
_TYPES: tuple[tuple[str, int, int | None, str | None, bool, bool | None, int, int | None], ...] = (
    ("BOOLEAN", -7, 1, None, False, None, -7, None),
    ("TINYINT", -6, 3, None, False, False, -6, None),
    ("BIGINT", -5, 19, None, False, False, -5, None),
    ("BLOB", -3, None, "'", False, None, -3, None),
    ("DECIMAL", 3, 38, None, False, False, 3, None),
    ("INTEGER", 4, 10, None, False, False, 4, None),
    ("SMALLINT", 5, 5, None, False, False, 5, None),
    ("REAL", 7, 24, None, False, False, 7, None),
    ("DOUBLE", 8, 53, None, False, False, 8, None),
    ("TEXT", 12, None, "'", True, None, 12, None),
    ("DATE", 91, 10, "'", False, None, 9, 1),
    ("TIME", 92, 18, "'", False, None, 9, 2),
    ("TIMESTAMP", 93, 29, "'", False, None, 9, 3),
)

_CAPABILITIES: dict[int, str | bool | int] = {
    0: "Nile", 1: __version__, 3: False, 4: True, 5: False, 8: 0, 9: True, 100: 0, 101: 0, 500: False, 501: False,
    502: True, 503: 1, 504: '"', 505: 1, 506: True, 507: 3, 515: True, 516: True, 518: True, 519: False, 520: True,
    521: True, 522: 3, 523: True, 524: False, 525: 3, 526: 1, 528: 2, 529: "", 530: "", 531: "", 532: False, 536: False,
    537: False, 538: 7, 539: True, 540: 3, 557: 65_536, 562: 0, 563: False, 572: True, 573: False, 574: True,
}  # fmt: skip
"""By number of SqlInfo.  Text, yes or no, or a number."""
_WIDE = frozenset({557})  # numbers of 64 bits

Given = Callable[[Database, Fields], Iterator[tuple[Any, ...]]]


def told(db: Database, name: str, fields: Fields) -> pa.Table:
    """The table that a command asks for.  Cost: O(what is registered)."""
    schema, rows = TABLES[name]
    if name == "CommandGetTables" and flag(fields, 5):
        schema = schema.append(pa.field("table_schema", pa.binary(), False))
    if name == "CommandGetSqlInfo":
        return _capabilities(schema, set(numbers(fields, 1)))
    found = list(rows(db, fields))
    arrays = [pa.array([row[at] for row in found], field.type) for at, field in enumerate(schema)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _schema(*columns: tuple[str, Any, bool]) -> pa.Schema:
    """Columns with their types, and whether they may be null."""
    return pa.schema([pa.field(*column) for column in columns])


def _catalogs(_db: Database, _fields: Fields) -> Iterator[tuple[str]]:
    yield ("",)


def _schemas(_db: Database, fields: Fields) -> Iterator[tuple[str, str]]:
    if _named(fields, 1, 2):
        yield "", ""


def _tables(db: Database, fields: Fields) -> Iterator[tuple[Any, ...]]:
    if not _named(fields, 1, 2):
        return
    like, kinds, columns = _like(text(fields, 3)), texts(fields, 4), flag(fields, 5)
    for kind, names in (
        ("SYSTEM TABLE", CONTROL),
        ("TABLE", (*db.streams, *db.relations)),
        ("VIEW", db.sql("SHOW VIEWS").to_arrow()["name"].to_pylist()),
    ):
        if kinds and kind not in kinds:
            continue
        for name in sorted(filter(like, set(names))):
            yield ("", "", name, kind, *([_columns(db, name)] if columns else ()))


def _columns(db: Database, name: str) -> bytes:
    """The schema of a name that FROM may say; of a view that does not hold any more none."""
    try:
        schema = db.sql(f"SELECT * FROM {identifier(name)}").schema
    except NileError:
        schema = pa.schema([])
    data: bytes = schema.serialize().to_pybytes()
    return data


def _kinds(_db: Database, _fields: Fields) -> Iterator[tuple[str]]:
    yield from ((kind,) for kind in _KINDS)


def _types(_db: Database, fields: Fields) -> Iterator[tuple[Any, ...]]:
    wanted = [number - (1 << 64) if number >> 63 else number for number in numbers(fields, 1)]
    for name, number, size, quote, is_text, unsigned, generic, part in _TYPES:
        if wanted and number not in wanted:
            continue
        radix = None if unsigned is None else 2 if name in ("REAL", "DOUBLE") else _RADIX
        yield (
            name, number, size, quote, quote, None, _NULLABLE, is_text, _SEARCHABLE, unsigned, False,
            None if unsigned is None else False, name, None, None, generic, part, radix, None,
        )  # fmt: skip


def _none(_db: Database, _fields: Fields) -> Iterator[tuple[Any, ...]]:
    """Nile has no keys: neither of relations nor between them."""
    return iter(())


def _named(fields: Fields, catalog: int, schema: int) -> bool:
    """Whether the one catalog and the one schema, both without a name, are among those asked for."""
    return not text(fields, catalog) and _like(text(fields, schema))("")


def _like(pattern: str | None) -> Callable[[str], bool]:
    """% for any text, _ for any sign; no pattern: whatever."""
    if pattern is None:
        return lambda _name: True
    signs = {"%": ".*", "_": "."}
    compiled = re.compile("".join(signs.get(sign) or re.escape(sign) for sign in pattern), re.DOTALL)
    return lambda name: compiled.fullmatch(name) is not None


def _capabilities(schema: pa.Schema, wanted: Iterable[int]) -> pa.Table:
    """One row a number that is asked for and known; none asked for: all."""
    known = {**_CAPABILITIES, 2: pa.__version__}
    asked = sorted(known.keys() & set(wanted) if wanted else known)
    kinds, values = [], []
    children: tuple[list[Any], ...] = ([], [], [], [], [], [])
    for number in asked:
        value = known[number]
        kind = 0 if isinstance(value, str) else 1 if isinstance(value, bool) else 2 if number in _WIDE else 3
        kinds.append(kind)
        values.append(len(children[kind]))
        children[kind].append(value)
    union = schema.field(1).type
    return pa.Table.from_arrays(
        [
            pa.array(asked, pa.uint32()),
            pa.UnionArray.from_dense(
                pa.array(kinds, pa.int8()),
                pa.array(values, pa.int32()),
                [pa.array(held, union.field(at).type) for at, held in enumerate(children)],
                [union.field(at).name for at in range(union.num_fields)],
            ),
        ],
        schema=schema,
    )


_INFO = _schema(
    ("info_name", pa.uint32(), False),
    (
        "value",
        pa.dense_union(
            [
                pa.field("string_value", pa.string()),
                pa.field("bool_value", pa.bool_()),
                pa.field("bigint_value", pa.int64()),
                pa.field("int32_bitmask", pa.int32()),
                pa.field("string_list", pa.list_(pa.field("string_data", pa.string()))),
                pa.field("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.field("$data$", pa.int32())))),
            ]
        ),
        True,
    ),
)
_KEYS = _schema(
    *((f"{side}_{name}", pa.string(), name in _NAMES) for side in ("pk", "fk")
      for name in (*_NAMES, "table_name", "column_name")),
    ("key_sequence", pa.int32(), False), ("fk_key_name", pa.string(), True), ("pk_key_name", pa.string(), True),
    ("update_rule", pa.uint8(), False), ("delete_rule", pa.uint8(), False),
)  # fmt: skip
TABLES: dict[str, tuple[pa.Schema, Given]] = {
    "CommandGetSqlInfo": (_INFO, _none),
    "CommandGetCatalogs": (_schema(("catalog_name", pa.string(), False)), _catalogs),
    "CommandGetDbSchemas": (
        _schema(("catalog_name", pa.string(), True), ("db_schema_name", pa.string(), False)), _schemas,
    ),
    "CommandGetTables": (
        _schema(*((name, pa.string(), True) for name in _NAMES), ("table_name", pa.string(), False),
                ("table_type", pa.string(), False)), _tables,
    ),
    "CommandGetTableTypes": (_schema(("table_type", pa.string(), False)), _kinds),
    "CommandGetPrimaryKeys": (
        _schema(*((name, pa.string(), True) for name in _NAMES), ("table_name", pa.string(), False),
                ("column_name", pa.string(), False), ("key_name", pa.string(), True),
                ("key_sequence", pa.int32(), False)), _none,
    ),
    "CommandGetExportedKeys": (_KEYS, _none),
    "CommandGetImportedKeys": (_KEYS, _none),
    "CommandGetCrossReference": (_KEYS, _none),
    "CommandGetXdbcTypeInfo": (
        _schema(
            ("type_name", pa.string(), False), ("data_type", pa.int32(), False), ("column_size", pa.int32(), True),
            ("literal_prefix", pa.string(), True), ("literal_suffix", pa.string(), True),
            ("create_params", pa.list_(pa.field("item", pa.string(), False)), True), ("nullable", pa.int32(), False),
            ("case_sensitive", pa.bool_(), False), ("searchable", pa.int32(), False),
            ("unsigned_attribute", pa.bool_(), True), ("fixed_prec_scale", pa.bool_(), False),
            ("auto_increment", pa.bool_(), True), ("local_type_name", pa.string(), True),
            ("minimum_scale", pa.int32(), True), ("maximum_scale", pa.int32(), True),
            ("sql_data_type", pa.int32(), False), ("datetime_subcode", pa.int32(), True),
            ("num_prec_radix", pa.int32(), True), ("interval_precision", pa.int32(), True),
        ), _types,
    ),
}  # fmt: skip
"""The columns of each table, and what fills it, by the name of the command."""
