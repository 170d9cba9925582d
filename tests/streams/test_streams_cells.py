"""Which text is which value. The same table is what the Spark path has to agree with."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nile.base.cells import infer_type, misfit_reason, parse_cells, parse_instant

MICRO, NANO = pa.timestamp("us"), pa.timestamp("ns")


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1", "-2", " 3 ", "", None], pa.int64()),
        (["+1", "0"], pa.int64()),
        (["9223372036854775807", "-9223372036854775808"], pa.int64()),
        (["1", "2.5"], pa.float64()),
        (["1e5", ".5", "5."], pa.float64()),
        (["1", "nan", "-Infinity"], pa.float64()),
        (["true", "FALSE"], pa.bool_()),
        (["2011-01-01", "2011-12-09 08:01", "2011-12-09T08:01:00.5Z"], MICRO),
        (["9999-12-31"], MICRO),
        (["2011-12-09 08:01:00.123456789"], NANO),
        (["007", "8"], pa.string()),
        (["00.5", "1.5"], pa.float64()),
        (["0012", "1.5"], pa.string()),
        (["9223372036854775808"], pa.string()),
        (["2011-02-30"], pa.string()),
        (["nan", "inf"], pa.string()),
        (["1", "x"], pa.string()),
        (["0x1F"], pa.string()),
        (["1_000"], pa.string()),
        (["1,000"], pa.string()),
        (["t", "f"], pa.string()),
        (["20110101", "2011-01-01"], pa.string()),
        (["", None], pa.string()),
        ([], pa.string()),
    ],
)
def test_a_column_has_the_type_that_all_its_cells_have(cells: list[str | None], expected: pa.DataType) -> None:
    assert infer_type(pa.array(cells, pa.string())) == expected


@pytest.mark.parametrize(
    ("wanted", "cells", "values", "misfits"),
    [
        (pa.int64(), ["1", "x", "+5", "007", "", None, " 4\t"], [1, None, 5, 7, None, None, 4], [1]),
        (pa.int64(), ["1", "9" * 30, "0" * 30 + "1", "-" + "9" * 19], [1, None, 1, None], [1, 3]),
        (pa.int64(), ["1.0", "1e3", "0x1F", "--1", "nan"], [None] * 5, [0, 1, 2, 3, 4]),
        (
            pa.float64(),
            ["1", "x", "-inf", "1e400", ".", "0x1p3"],
            [1.0, None, float("-inf"), float("inf")] + [None] * 2,
            [1, 4, 5],
        ),
        (pa.bool_(), ["True", "yes", "", "1"], [True, None, None, None], [1, 3]),
        (pa.string(), ["", " a ", "caf\ufffd", None], [None, " a ", None, None], [2]),
    ],
)
def test_a_cell_fits_its_column_or_is_marked(
    wanted: pa.DataType, cells: list[str | None], values: list[object], misfits: list[int]
) -> None:
    found, misfit = parse_cells(pa.array(cells, pa.string()), wanted)
    assert found.type == wanted
    assert found.to_pylist() == values
    assert misfit is not None
    assert misfit.nonzero()[0].tolist() == misfits


def test_nothing_is_marked_when_all_cells_fit() -> None:
    assert parse_cells(pa.array(["1", "", None]), pa.int64())[1] is None


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T00:00:01", 10**9),
        ("1970-01-01 00:00", 0),
        ("1970-01-01 00:00:00.000000001", 1),
        ("1970-01-01 02:00:00+02:00", 0),
        ("1970-01-01 02:00:00+0200", 0),
        ("1969-12-31 19:00-05", 0),
        ("1970-01-01 05:30:00+05:30", 0),
        ("1969-12-31 23:59:59.999Z", -1_000_000),
        ("2000-02-29", 951_782_400 * 10**9),
        ("9999-12-31", 253_402_214_400 * 10**9),
        ("0001-01-01", -62_135_596_800 * 10**9),
    ],
)
def test_an_iso_time_is_read_to_the_nanosecond(text: str, nanoseconds: int) -> None:
    assert parse_instant(text) == nanoseconds


NO_TIMES = ["", "2011", "2011-1-1", "2011-13-01", "2011-02-30", "1900-02-29", "2011-01-01 24:00", "2011-01-01 10"]
NO_TIMES += ["2011-01-01 10:60", "2011-01-01 10:00:60", "2011-01-01 10:00:00.", "2011-01-01 10:00:00.1234567890"]
NO_TIMES += ["2011-01-01Z", "2011-01-01 10:00 UTC", "2011-01-01 10:00+15:00", "01/02/2011", "2011-01-01\n", "now"]
NO_TIMES += ["٢٠١١-01-01"]


@pytest.mark.parametrize("text", NO_TIMES)
def test_text_that_is_no_iso_time_is_refused(text: str) -> None:
    assert parse_instant(text) is None
    _, misfit = parse_cells(pa.array([text or "?"]), NANO)
    # Cells are trimmed first, so a line end after a time does no harm there.
    assert (misfit is not None) == (text != "2011-01-01\n")


CELLS = ["1", "-7", "x", "", "007", "1.5", "nan", "true", "2011-02-30", "2011-02-28", "9999-01-01", "1e400"]
CELLS += ["2011-01-01 10:00:00+01:00", "2011-01-01 10:00:00.1234567", "9" * 25, " 3 ", "\ufffd"]


@given(
    st.lists(st.sampled_from([*CELLS, None]), max_size=12),
    st.sampled_from([pa.int64(), pa.float64(), pa.bool_(), MICRO, NANO, pa.string()]),
    st.integers(0, 12),
)
def test_how_cells_are_split_into_batches_does_not_change_what_they_are(
    cells: list[str | None], wanted: pa.DataType, cut: int
) -> None:
    def judged(some: list[str | None]) -> list[tuple[str, bool]]:
        values, misfit = parse_cells(pa.array(some, pa.string()), wanted)
        marks = [False] * len(some) if misfit is None else misfit.tolist()
        return [
            (str(value), mark)
            for value, mark in zip(
                values.to_pylist() if wanted != NANO else values.cast("int64").to_pylist(), marks, strict=True
            )
        ]

    assert judged(cells) == judged(cells[:cut]) + judged(cells[cut:])


@given(st.lists(st.sampled_from([*CELLS, None]), min_size=1, max_size=8))
def test_every_cell_of_a_sample_fits_the_type_inferred_from_it(cells: list[str | None]) -> None:
    sample = pa.array(cells, pa.string())
    _, misfit = parse_cells(sample, infer_type(sample))
    clean = "\ufffd" not in cells
    assert (misfit is None) or not clean


@pytest.mark.parametrize(
    ("wanted", "needed"),
    [
        (pa.int64(), "whole number"),
        (pa.float64(), "number"),
        (pa.bool_(), "boolean"),
        (MICRO, "timestamp"),
        (pa.string(), "UTF-8 text"),
    ],
)
def test_the_reason_of_a_misfit_names_column_and_need(wanted: pa.DataType, needed: str) -> None:
    assert misfit_reason("price", wanted) == f"cell of 'price' is no {needed}"
