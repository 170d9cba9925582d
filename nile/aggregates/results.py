"""The types of what aggregates give."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nile.aggregates.catalogue import Kind
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    import pyarrow

__all__ = ["result_type"]


def result_type(kind: Kind, given: pyarrow.DataType | None) -> pyarrow.DataType:
    """The type of an aggregate over values of the type `given` (None: of rows)."""
    if given is None or kind.gives == "whole":
        return pa.int64()
    if kind.gives == "text":
        return pa.string()
    types = pa.types
    if types.is_dictionary(given):
        given = given.value_type
    if kind.gives == "values":
        return pa.list_(given)
    if kind.gives == "same" or (kind.is_quantile and types.is_temporal(given)):
        return given
    return pa.int64() if kind.gives == "sum" and (types.is_integer(given) or types.is_boolean(given)) else pa.float64()
