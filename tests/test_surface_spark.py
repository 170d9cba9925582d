"""A Spark frame is registered and given like any other table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from test_surface import TABLE

import nile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_a_spark_frame_can_be_registered_and_given(spark: SparkSession) -> None:
    frame = spark.createDataFrame(TABLE.to_pandas())
    db = nile.connect()
    db.register("sales", frame, time="ts")
    result = db.sql("SELECT item, price FROM sales WHERE price > 1")
    assert sorted(result.fetchall()) == [("cup", 2.5), ("tea", 4.0)]
    given = db.sql("SELECT ts, price FROM sales").to_spark(spark)
    assert sorted(row.price for row in given.collect()) == [1.0, 2.5, 4.0]
