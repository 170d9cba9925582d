"""Ctrl-C while numpy, Arrow, pandas or numba load on first use: it comes out, and whatever is called next works."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHILD = """
import signal, sys

class Interrupting:
    def __init__(self, wanted):
        self.wanted = wanted

    def find_spec(self, name, path=None, target=None):
        if name == self.wanted:
            self.wanted = None
            signal.raise_signal(signal.SIGINT)
        return None

signal.signal(signal.SIGINT, signal.default_int_handler)
import nile
assert "numpy" not in sys.modules
hook = Interrupting(sys.argv[1])
sys.meta_path.insert(0, hook)

def used():
    db = nile.connect()
    db.stream("s", [("t", "int64"), ("k", "int64")], time="t")
    db.push("s", {"t": [1, 2], "k": [1, 2]})
    assert db.sql("SELECT a.k, count(*) AS n FROM s a, s b WHERE a.k = b.k GROUP BY a.k").fetchall() == [(1, 1), (2, 1)]
    assert db.sql("SELECT a.t, b.t AS u FROM s a, s b WHERE a.k = b.k").to_arrow().num_rows == 2
    return db

try:
    used()
except KeyboardInterrupt:
    print("interrupted")
assert hook.wanted is None, "it was never loaded"
db = used()
import pandas as pd
db.push("s", pd.DataFrame({"t": [3], "k": [4]}))
db.register("r", pd.DataFrame({"t": [3], "k": pd.array([None], dtype="Int64"), "w": pd.to_datetime(["2026-01-01"])}))
assert db.sql("SELECT k, w FROM r").to_arrow().to_pylist()[0]["k"] is None
assert len(db.sql("SELECT t, k FROM s").to_pandas()) == 3
print("works")
"""

MODULES = [
    "numpy._core.numerictypes", "pandas._libs.tslibs", "pandas.core.frame",
    "numpy", "numpy._core.multiarray", "numpy.lib", "pyarrow", "pyarrow.lib", "pyarrow._compute", "pandas",
    "pandas.core.arrays.arrow.array", "pandas.io.api", "pyarrow.pandas_compat", "sqlglot.expressions", "numba",
    "numba.core.typing", "llvmlite.binding",
]  # fmt: skip


@pytest.mark.parametrize("module", [
    pytest.param(name, marks=() if n < 3 else pytest.mark.slow) for n, name in enumerate(MODULES)
])  # fmt: skip
def test_what_comes_after_an_interrupted_loading_works(module: str) -> None:
    done = subprocess.run([sys.executable, "-c", CHILD, module], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["interrupted", "works"]), done.stderr[-1500:]
