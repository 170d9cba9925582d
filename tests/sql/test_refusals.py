"""What is refused is called by the name that people know, and what is advised works."""

from __future__ import annotations

import numpy as np
import pytest

import nile
from nile.exact.join.chain import encode_all


@pytest.fixture(scope="module")
def db() -> nile.Database:
    return nile.connect().register("s", {"t": [1.0, 2.0, 3.0], "k": ["a", "b", "a"], "v": [1.5, 2.5, 3.5]}, time="t")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SELECT levenshtein(k, 'a') FROM s", r"the function levenshtein\(\) is not allowed"),
        ("SELECT regexp_extract_all(k, 'a') FROM s", r"the function regexp_extract_all\(\) is not allowed"),
        ("SELECT string_agg(k, ',') OVER () FROM s", r"string_agg\(\) OVER is not there yet; first_value"),
        ("SELECT to_char(v, '9') FROM s", r"the function to_char\(\) is not allowed"),
        ("SELECT random() FROM s", "got random numbers; write SAMPLE"),
        ("SELECT lgamma(v) FROM s", r"the function lgamma\(\) is not allowed"),
        ("SELECT k FROM s WHERE ANY (SELECT k FROM s)", "ANY other than behind =, <>, <, <=, > or >=: it is not"),
    ],
)
def test_a_refusal_names_no_class_of_the_parser(db: nile.Database, text: str, told: str) -> None:
    with pytest.raises((nile.SqlError, nile.NotYet), match=told):
        db.sql(text)


def test_what_is_advised_in_their_place_works(db: nile.Database) -> None:
    text = "SELECT quantile_cont(v, 0.5) AS a, quantile_disc(v, 0.5) AS b, max(k || k) AS c FROM s"
    assert db.sql(text).fetchall() == [(2.5, 2.5, "bb")]


def test_a_length_of_zones_is_in_seconds_as_the_granularity_beside_it(db: nile.Database) -> None:
    assert db.summarize("s", "k", granularity=60, max_length=10).spec.max_length == 10_000_000_000
    db.sql("CREATE SUMMARY long ON s (k) WITH GRANULARITY 60 AND COLLAPSE (2, 3) USING max_length = '15 s'")
    assert db.summary("long").spec.max_length == 15_000_000_000


def test_keys_that_are_no_column_of_arrow_are_refused_by_name() -> None:
    with pytest.raises(nile.KeyTypeError, match=r"got numpy\.ndarray; write pyarrow\.array\(keys\)"):
        encode_all([np.array([1, 2])])
