"""Heavy packages, each loaded when an attribute of it is first used; the one place that says which they are.

`from nile.summaries.heavy import pa` costs nothing, and type checkers see the package itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    import datasketches
    import duckdb
    import numba
    import polars as pl
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as pacsv
    import pyarrow.dataset as pads
    import pyarrow.flight as flight
    import pyarrow.json as pajson
    import pyarrow.parquet as pq
    import pyspark
    import pyspark.java_gateway as java_gateway
    import pyspark.logger as spark_logger
    import pyspark.sql as spark_sql
    import pyspark.sql.functions as spark_functions
    import pyspark.sql.pandas.types as spark_types
    import rich.box as rich_box
    import rich.cells as rich_cells
    import rich.console as rich_console
    import rich.markup as rich_markup
    import rich.table as rich_table
    import sqlglot
    import sqlglot.errors as sqlglot_errors
    import sqlglot.expressions as exp
else:
    datasketches = lazy("datasketches")
    duckdb = lazy("duckdb")
    numba = lazy("numba")
    pl = lazy("polars")
    pa = lazy("pyarrow")
    pc = lazy("pyarrow.compute")
    pacsv = lazy("pyarrow.csv")
    pads = lazy("pyarrow.dataset")
    flight = lazy("pyarrow.flight")
    pajson = lazy("pyarrow.json")
    pq = lazy("pyarrow.parquet")
    pyspark = lazy("pyspark")
    java_gateway = lazy("pyspark.java_gateway")
    spark_logger = lazy("pyspark.logger")
    spark_sql = lazy("pyspark.sql")
    spark_functions = lazy("pyspark.sql.functions")
    spark_types = lazy("pyspark.sql.pandas.types")
    rich_box = lazy("rich.box")
    rich_cells = lazy("rich.cells")
    rich_console = lazy("rich.console")
    rich_markup = lazy("rich.markup")
    rich_table = lazy("rich.table")
    sqlglot = lazy("sqlglot")
    sqlglot_errors = lazy("sqlglot.errors")
    exp = lazy("sqlglot.expressions")

__all__ = [
    "datasketches",
    "duckdb",
    "exp",
    "flight",
    "java_gateway",
    "numba",
    "pa",
    "pacsv",
    "pads",
    "pajson",
    "pc",
    "pl",
    "pq",
    "pyspark",
    "rich_box",
    "rich_cells",
    "rich_console",
    "rich_markup",
    "rich_table",
    "spark_functions",
    "spark_logger",
    "spark_sql",
    "spark_types",
    "sqlglot",
    "sqlglot_errors",
]
