"""Arrow bodies of strangers: looked at before anything works on them, since Arrow's kernels believe what a batch says.

Format: Apache Arrow, "IPC streaming format"; the places in a message are those of its schema, Message.fbs.
"""

from __future__ import annotations

import struct

from nile.summaries.errors import SourceError
from nile.summaries.heavy import pa, pc

__all__ = ["checked", "read_ipc"]

_MOST_DECODED = 1 << 30  # bytes that a column may take once its dictionary is spelled out
_HEADER_TYPE, _HEADER, _DATA, _COMPRESSION = 1, 2, 1, 3  # fields of Message, of DictionaryBatch, of RecordBatch
_DICTIONARY, _BATCH = 2, 3


def read_ipc(body: bytes) -> pa.Table:
    """The rows of an IPC stream.  Raises SourceError, ArrowInvalid.

    Compressed ones are refused: how much they unpack to is known when they are unpacked.
    """
    for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(body)):
        if _is_compressed(bytes(message.metadata)):
            raise SourceError(
                "rows: needed an Arrow stream that is not compressed; got a compressed one; nothing was taken: "
                "write it without"
            )
    with pa.ipc.open_stream(body) as reader:
        table = reader.read_all()
    if table.num_rows > len(body):
        raise SourceError(
            f"rows: needed rows that take bytes; got {table.num_rows:,} in {len(body):,} bytes; nothing was taken: "
            "give each column the type that it has in the stream"
        )
    return checked(table)


def checked(table: pa.Table) -> pa.Table:
    """The same rows, whose lengths, offsets and text are what they say.  Raises ArrowInvalid, SourceError.

    Cost: O(rows) of text, O(1) a column of numbers.
    """
    table.validate(full=True)
    for name, column in zip(table.schema.names, table.columns, strict=True):
        for chunk in column.chunks:
            if pa.types.is_dictionary(chunk.type) and (size := _decoded(chunk)) > _MOST_DECODED:
                raise SourceError(
                    f"rows, column '{name}': needed at most {_MOST_DECODED:,} bytes once its dictionary is spelled "
                    f"out; got up to {size:,}; nothing was taken: push fewer rows"
                )
    return table


def _decoded(chunk: pa.Array) -> int:
    """At most how many bytes a column takes without its dictionary."""
    values = chunk.dictionary
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
        longest = pc.max(pc.binary_length(values)).as_py() or 0
    else:
        longest = 16 if pa.types.is_primitive(kind) else values.nbytes
    return len(chunk) * int(longest)


def _is_compressed(metadata: bytes) -> bool:
    """Whether the buffers of a message are compressed.  Raises SourceError."""
    try:
        (root,) = struct.unpack_from("<I", metadata, 0)
        at = _field(metadata, root, _HEADER_TYPE)
        kind = metadata[at] if at else 0
        if kind not in (_DICTIONARY, _BATCH) or not (at := _field(metadata, root, _HEADER)):
            return False
        table = at + struct.unpack_from("<I", metadata, at)[0]
        if kind == _DICTIONARY:
            if not (at := _field(metadata, table, _DATA)):
                return False
            table = at + struct.unpack_from("<I", metadata, at)[0]
        return bool(_field(metadata, table, _COMPRESSION))
    except (struct.error, IndexError):
        raise SourceError("rows: needed an Arrow stream; got a message that is none; nothing was taken") from None


def _field(data: bytes, table: int, number: int) -> int:
    """Where a field of a flatbuffer's table is; 0: it has none."""
    (back,) = struct.unpack_from("<i", data, table)
    vtable = table - back
    if vtable < 0:
        raise IndexError(vtable)
    (size,) = struct.unpack_from("<H", data, vtable)
    if 4 + 2 * number + 2 > size:
        return 0
    (at,) = struct.unpack_from("<H", data, vtable + 4 + 2 * number)
    return table + at if at else 0
