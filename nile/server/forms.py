"""Rows as bytes and back: NDJSON, server-sent events, Arrow IPC, CSV; answers of statements and outputs of queries."""

from __future__ import annotations

import io
import json
from typing import Any, Literal

from nile.base.show import first_rows, has_bytes, render, with_bytes
from nile.server.trusting import read_ipc
from nile.summaries.errors import SourceError
from nile.summaries.heavy import pa, pacsv, pajson

__all__ = ["ARROW", "Form", "Outputs", "Rows", "form_of", "media_type", "read_rows"]

ARROW = "application/vnd.apache.arrow.stream"
Form = Literal["ndjson", "events", "arrow", "csv"]
_TYPES: dict[str, Form] = {
    ARROW: "arrow",
    "application/x-ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "application/json": "ndjson",
    "text/event-stream": "events",
    "text/csv": "csv",
}
_MEDIA: dict[Form, str] = {
    "arrow": ARROW,
    "ndjson": "application/x-ndjson",
    "events": "text/event-stream",
    "csv": "text/csv; charset=utf-8",
}
_SMALL = 4_096  # bytes that are copied together rather than sent as a part of their own


def form_of(header: str | None, known: tuple[Form, ...]) -> Form:
    """The first of the media types in a header that is among `known`; where it says none of these the first known."""
    for each in (header or "").split(","):
        form = _TYPES.get(each.partition(";")[0].strip().lower())
        if form in known and form is not None:
            return form
    return known[0]


def media_type(form: Form) -> str:
    """What a response of this form says it is."""
    return _MEDIA[form]


class _Sink(io.RawIOBase):
    """What an IPC writer has written since it was last asked: columns as they lie in memory, what is small together."""

    def __init__(self) -> None:
        self._parts: list[bytes | memoryview] = []
        self._small: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        part = memoryview(data)
        if part.nbytes < _SMALL:
            self._small.append(bytes(part))
        else:
            self._gather()
            self._parts.append(part.cast("B"))
        return part.nbytes

    def taken(self) -> list[bytes | memoryview]:
        self._gather()
        parts, self._parts = self._parts, []
        return parts

    def _gather(self) -> None:
        if self._small:
            self._parts.append(b"".join(self._small))
            self._small = []


class _Ipc:
    """An Arrow IPC stream in pieces.  What is said beside rows is an empty batch with metadata."""

    def __init__(self, schema: pa.Schema) -> None:
        self._sink = _Sink()
        self._writer = pa.ipc.new_stream(self._sink, schema)
        self._none = pa.RecordBatch.from_pylist([], schema=schema)

    def pieces(self, batch: pa.RecordBatch, **said: Any) -> list[bytes | memoryview]:
        told = {f"nile.{name}": json.dumps(value) for name, value in said.items()}
        self._writer.write_batch(batch, custom_metadata=told or None)
        return self._sink.taken()

    def rows(self, batch: pa.RecordBatch, **said: Any) -> bytes:
        return b"".join(self.pieces(batch, **said))

    def said(self, **said: Any) -> bytes:
        return self.rows(self._none, **said)

    def end(self) -> bytes:
        self._writer.close()
        return b"".join(self._sink.taken())


class Rows:
    """The answer of a statement: `rows` for each batch, then `end`; or `failed` instead, which says so in the form.

    NDJSON has a line a row, Arrow IPC is a stream, whose last batch is empty and says what the answer is worth.
    """

    def __init__(self, form: Form, schema: pa.Schema) -> None:
        self._form, self._schema, self._begun = form, schema, False
        self._ipc = _Ipc(schema) if form == "arrow" else None

    def rows(self, batch: pa.RecordBatch) -> list[bytes | memoryview]:
        """Of the next batch, in parts; those of Arrow are its columns themselves."""
        if self._ipc is not None:
            return self._ipc.pieces(batch)
        if self._form == "csv":
            header, self._begun = not self._begun, True
            return [_csv(batch, header)]
        return [_json_lines(batch).encode()]

    def failed(self, told: dict[str, str]) -> bytes:
        """What went wrong on the way.  CSV has no way to say it: it is cut off."""
        if self._ipc is not None:
            return self._ipc.said(**told) + self._ipc.end()
        return b"" if self._form == "csv" else (json.dumps({"_error": told}) + "\n").encode()

    def end(self, **worth: Any) -> bytes:
        """After the last batch."""
        if self._ipc is not None:
            return (self._ipc.said(worth=worth) if worth else b"") + self._ipc.end()
        return _csv(pa.RecordBatch.from_pylist([], schema=self._schema), True) if self._csv_without_rows() else b""

    def _csv_without_rows(self) -> bool:
        return self._form == "csv" and not self._begun


class Outputs:
    """The numbered outputs of a standing query, without an end.

    NDJSON: {"query", "epoch", "ordinal"}, then {"ordinal", "rows"} for each batch; {"lost": [from, to]} where outputs
    are gone that were asked for; {"end": why}.  Server-sent events: the same, whose ids are what to come back with.
    Arrow IPC: batches with the metadata nile.ordinal.
    """

    def __init__(self, form: Form, schema: pa.Schema, epoch: int) -> None:
        self._form, self._epoch = form, epoch
        self._ipc = _Ipc(schema) if form == "arrow" else None
        self.alike = not any(map(_has_dictionary, schema.types))
        """Whether the bytes of a batch are the same for all clients: dictionaries of Arrow are sent to each once."""

    def rows(self, ordinal: int, batch: pa.RecordBatch, shared: dict[str, bytes]) -> bytes:
        """Of a batch whose first row has this ordinal.  shared: its bytes, made once for all who read them."""
        if self._ipc is not None:
            if not self.alike:
                return self._ipc.rows(batch, ordinal=ordinal)
            if "arrow" not in shared:
                alone = _Ipc(batch.schema)
                alone.said()  # the schema goes before the first batch
                shared["arrow"] = alone.rows(batch, ordinal=ordinal)
            return shared["arrow"]
        if self._form not in shared:
            lines = _json_lines(batch).rstrip("\n").replace("\n", ",")
            shared[self._form] = self._line(f'{{"ordinal":{ordinal},"rows":[{lines}]}}', ordinal + batch.num_rows)
        return shared[self._form]

    def said(self, ordinal: int, /, **said: Any) -> bytes:
        """Something else: after it, `ordinal` comes."""
        return self._ipc.said(**said) if self._ipc is not None else self._line(json.dumps(said), ordinal)

    def beat(self) -> bytes:
        """That there is nothing to tell."""
        if self._ipc is not None:
            return self._ipc.said(beat=True)
        return b": \n\n" if self._form == "events" else b"\n"

    def end(self, ordinal: int, why: str) -> bytes:
        """Nothing more comes."""
        return self.said(ordinal, end=why) + (b"" if self._ipc is None else self._ipc.end())

    def _line(self, text: str, ordinal: int) -> bytes:
        if self._form == "events":
            return f"id: {self._epoch}:{ordinal}\ndata: {text}\n\n".encode()
        return (text + "\n").encode()


def _has_dictionary(kind: pa.DataType) -> bool:
    return pa.types.is_dictionary(kind) or any(_has_dictionary(kind.field(at).type) for at in range(kind.num_fields))


def _json_lines(batch: pa.RecordBatch) -> str:
    rows, _ = first_rows(iter([batch]), None)
    return render(batch.schema.names, [], rows, "json")


def _as_text(kind: pa.DataType) -> pa.DataType:
    return pa.list_(_as_text(kind.value_type)) if pa.types.is_list(kind) else pa.string()


def _csv(batch: pa.RecordBatch, header: bool) -> bytes:
    rows, _ = first_rows(iter([batch]), None)
    names = batch.schema.names
    skip = 0 if header else len(render(names, [], [], "csv"))
    return render(names, [], rows, "csv")[skip:].encode()


def read_rows(body: bytes, form: Form, schema: pa.Schema) -> pa.Table:
    """The rows of a body, for a stream of this schema (and `_sign`, where rows go).

    A column that a row of NDJSON leaves out is NULL.  Raises SourceError where the bytes are not what they were said to
    be.
    """
    if not body.strip() and form != "arrow":
        return schema.empty_table()
    try:
        if form == "arrow":
            return read_ipc(body)
        if form == "ndjson" and body.lstrip().startswith(b"["):  # an array of them, as most clients send several
            body = b"\n".join(json.dumps(each).encode() for each in json.loads(body))
        signed = [pa.field("_sign", pa.int8())] if b'"_sign"' in body and "_sign" not in schema.names else []
        source = pa.BufferReader(body)
        if form == "csv":
            flat = [field for field in schema if not pa.types.is_nested(field.type)]
            given = pacsv.ConvertOptions(column_types=pa.schema(flat), strings_can_be_null=True)
            return pacsv.read_csv(source, convert_options=given)
        coded = {field.name for field in schema if has_bytes(field.type)}
        given = [field.with_type(_as_text(field.type)) if field.name in coded else field for field in schema]
        rows = pajson.read_json(
            source,
            read_options=pajson.ReadOptions(block_size=len(body) + 1),  # a row has to fit into a block
            parse_options=pajson.ParseOptions(
                explicit_schema=pa.schema([*given, *signed]), unexpected_field_behavior="error"
            ),
        )
        for at, name in enumerate(rows.column_names):
            if name in coded:
                cells = pa.array(map(with_bytes, rows.column(at).to_pylist()), schema.field(name).type)
                rows = rows.set_column(at, schema.field(name), cells)
        return rows
    except SourceError:
        raise
    except (pa.ArrowException, OSError, ValueError, TypeError, OverflowError, RecursionError) as error:
        told = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise SourceError(
            f"rows: needed {_MEDIA[form].partition(';')[0]} of the columns {', '.join(schema.names)}; got: {told}; "
            "nothing was taken: fix them and push again"
        ) from None
