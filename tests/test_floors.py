"""Imports point down, the judges stand apart, nothing is pickled, `import nile` stays light."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLOORS = ("experiments", "nile", "preferences", "pyramid", "summaries")  # top to bottom
LOWER = ("preferences", "pyramid", "summaries")
BESIDE = tuple(floor for floor in FLOORS if floor != "nile")
"""Folders beside `nile`, imported as nile.summaries and so on; here each goes by the name of its folder."""
ROOM_NAMES = """
summaries
pyramid.disk pyramid.grid pyramid.lake pyramid.history
preferences
nile.base nile.expressions nile.aggregates
nile.exact.state nile.exact.join nile.exact.selfscheduling nile.exact.plan nile.exact.pipeline nile.runtime
nile.streams.files nile.streams nile.sensors nile.sensors.connectors nile.sensors.sinks nile.mining nile.sql
nile.operators.common nile.operators.opponents nile.operators.join nile.operators.multiway nile.operators.selection
nile.operators.aggregate nile.operators.history nile.operators.drive nile.operators.inputs
nile.operators.strategies
nile.report nile.report.pages nile.report.accuracy nile.answers
nile.execution nile.execution.over nile.execution.exact nile.execution.approximate nile.execution.progress
nile.execution.live nile.execution.statement
nile.durable nile.client
nile.spark nile.spark.exact nile.spark.ingesting nile.spark.building nile.spark.scan
nile.spark.standing nile.engine nile.spark.sink nile.shell nile.server nile.server.flight
nile
experiments.run experiments.figures experiments.benchmarks experiments.benchmarks.accuracy experiments.atlas
experiments.faults experiments.examples experiments.commands experiments
"""
ROOMS = tuple(ROOM_NAMES.split())
"""The rooms from bottom to top.  A module lies in the room whose name is the longest prefix of its own."""
LOADERS = ("lazy", "Late", "import_module")
"""What is called with the name of a module in order to load it."""
HEAVY = frozenset(
    {
        "pyarrow",
        "numba",
        "pyspark",
        "pandas",
        "duckdb",
        "polars",
        "datasketches",
        "sqlglot",
        "rich",
        "pydantic",
    }
)
PICKLERS = frozenset(
    {
        "pickle",
        "_pickle",
        "cPickle",
        "pickletools",
        "cloudpickle",
        "dill",
        "marshal",
        "shelve",
        "joblib",
        "jsonpickle",
        "yaml",
        "code",
        "codeop",
        "runpy",
        "copyreg",
    }
)
# What would run code that bytes name or hold, beside unpickling.
RUNNERS = frozenset({"eval", "exec", "compile", "__import__", "execfile"})
PICKLING = frozenset({"read_pickle", "to_pickle", "__reduce__", "__reduce_ex__", "__setstate__", "find_class"})
IMPORTERS = frozenset(
    {"summaries.lazy", "nile", "nile.spark", "nile.exact.state.arrow"}
)  # they import what their own lines name


NAMERS = frozenset({"nile.sensors.sensor"})  # it loads the class that CREATE SENSORS names; no file of Nile's holds one


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@lru_cache(maxsize=1)
def nodes(source: str) -> tuple[ast.AST, ...]:
    """Of the whole of `source`, the module first; kept until another one is asked for."""
    return tuple(ast.walk(ast.parse(source)))


def names_of(node: ast.AST, package: list[str]) -> list[str]:
    """Dotted names that an import statement asks for; `from a import b` gives a and a.b."""
    if isinstance(node, ast.Import):
        return [by_folder(alias.name) for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        above = package[: len(package) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        told = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        return told if node.level else list(map(by_folder, told))
    return []


def by_folder(name: str) -> str:
    """nile.summaries.x -> summaries.x; summaries.x, which is not there once Nile is installed, -> BARE.summaries.x."""
    first, _, rest = name.partition(".")
    if first in BESIDE:
        return f"BARE.{name}"
    return rest if first == "nile" and rest.partition(".")[0] in BESIDE else name


def loaded_by_name(node: ast.AST) -> list[str]:
    """Modules of the project that a call such as `lazy("nile.sql.plan")` loads."""
    if not isinstance(node, ast.Call):
        return []
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    told = [each.value for each in node.args[:1] if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return [by_folder(name) for name in told if called in LOADERS and name.split(".")[0] in FLOORS]


def imports(source: str, module: str, *, is_package: bool = False) -> set[str]:
    """Every dotted name that `source` imports anywhere: inside functions, under TYPE_CHECKING, lazily by its name."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    return {name for node in nodes(source) for name in (*names_of(node, package), *loaded_by_name(node))}


def loaded_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when the module is imported: no function bodies, no TYPE_CHECKING branch."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield other
                yield from loaded_at_import(other)
            continue
        yield child
        yield from loaded_at_import(child)


def eager(source: str) -> set[str]:
    """Top names of the packages that importing `source` would load at once."""
    return {name.split(".")[0] for node in loaded_at_import(nodes(source)[0]) for name in names_of(node, []) if name}


def upward(source: str, module: str) -> set[str]:
    return above(imports(source, module), module)


def above(names: set[str], module: str) -> set[str]:
    """Those of `names` that lie on a higher floor than `module`."""
    floor = FLOORS.index(module.split(".")[0])
    return {name for name in names if name.split(".")[0] in FLOORS[:floor]}


def room_of(name: str) -> str:
    """The room that a module, or what is imported from one, lies in; "" for a folder that only holds rooms."""
    parts = name.split(".")
    found = next(room for end in range(len(parts), 0, -1) if (room := ".".join(parts[:end])) in (*ROOMS, *FLOORS))
    is_folder = len(parts) > 1 and (ROOT / parts[0] / parts[1]).is_dir()
    return "" if found not in ROOMS or (found == "nile" and is_folder) else found


def climbing(names: set[str], module: str) -> set[str]:
    """Those of `names` that lie in a higher room than `module`.  A folder's own `__init__` may name what is in it."""
    own = ROOMS.index(room_of(module)) if room_of(module) else len(ROOMS)
    inside = {name for name in names if name.split(".")[0] in FLOORS and not name.startswith(f"{module}.")}
    return {name for name in inside if (room := room_of(name)) and ROOMS.index(room) > own}


def pickled(source: str) -> set[str]:
    """What `source` imports or calls that would read or write pickles."""
    found = {name for name in imports(source, "m.m") if PICKLERS & set(name.split("."))}
    for node in nodes(source):
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            if not (isinstance(node.value, ast.Constant) and node.value.value is False):
                found.add("allow_pickle")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("lazy", "__import__"):
            asked = {
                a.value.split(".")[0] for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)
            }
            found |= asked & PICKLERS
    return found


def run_from_data(source: str) -> set[str]:
    """What in `source` could run code that a file holds or names."""
    found = set()
    for node in nodes(source):
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id in RUNNERS:
                found.add(called.id)
            imports_by_name = isinstance(called, ast.Attribute) and called.attr in ("import_module", "exec_module")
            if isinstance(called, ast.Attribute) and called.attr == "resolve_name":
                found.add("resolve_name")
            if imports_by_name and not (node.args and isinstance(node.args[0], ast.Constant)):
                found.add("import_module")
        if isinstance(node, ast.Attribute) and (
            node.attr in PICKLING or (node.attr in RUNNERS and ast.unparse(node.value) in ("builtins", "__builtins__"))
        ):
            found.add(node.attr)
        if isinstance(node, ast.FunctionDef) and node.name in PICKLING:
            found.add(node.name)
    return found


@dataclass(frozen=True)
class Seen:
    """What the checks see in a file."""

    imports: set[str]
    eager: set[str]
    pickled: set[str]
    runs: set[str]


@cache
def house() -> dict[Path, Seen]:
    """Every file of the project, looked at once."""
    found = {}
    for path in sources(*FLOORS, "tests"):
        source = path.read_text("utf-8")
        named = imports(source, module_of(path), is_package=path.name == "__init__.py")
        found[path] = Seen(named, eager(source), pickled(source), run_from_data(source))
    return found


# --- the checks see what they should ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "source", "found"),
    [
        ("summaries.a", "import nile.pyramid.grid", {"pyramid.grid"}),
        ("summaries.a", "def f():\n    from nile import answer", {"nile", "nile.answer"}),
        (
            "nile.report.a",
            "from nile.experiments.run.config import RunConfig",
            {"experiments.run.config", "experiments.run.config.RunConfig"},
        ),
        ("nile.report.a", "from . import svg\nfrom ..streams import csv\nimport nile.summaries.errors", set()),
        ("experiments.a", "import nile, nile.pyramid, nile.preferences, nile.summaries", set()),
    ],
)
def test_an_upward_import_is_seen_wherever_it_hides(module: str, source: str, found: set[str]) -> None:
    assert upward(source, module) == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import pyarrow as pa", {"pyarrow"}),
        ("try:\n    import pandas.api\nexcept ImportError:\n    pass", {"pandas"}),
        ("class A:\n    from rich import box", {"rich"}),
        ("if TYPE_CHECKING:\n    import numba\nelse:\n    import duckdb", {"duckdb"}),
        ("if TYPE_CHECKING:\n    import numba\ndef f():\n    import polars", set()),
    ],
)
def test_an_eager_import_is_told_from_a_lazy_one(source: str, found: set[str]) -> None:
    assert eager(source) == found


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "def f():\n    from pyspark import cloudpickle",
        "numpy.load(path, allow_pickle=True)",
        "marshal = lazy('marshal')",
    ],
)
def test_a_pickle_is_seen_under_its_other_names(source: str) -> None:
    assert pickled(source)


@pytest.mark.parametrize(
    "source",
    [
        "eval(text)",
        "f = lambda t: exec(t)",
        "exec(compile(text, 'x', 'exec'))",
        "import builtins\nbuiltins.eval(text)",
        "__import__(name)",
        "import importlib\nimportlib.import_module(params['module'])",
        "import pkgutil\npkgutil.resolve_name(params['class'])",
        "pandas.read_pickle(path)",
        "class A:\n    def __setstate__(self, state): pass",
    ],
)
def test_what_runs_code_out_of_data_is_seen(source: str) -> None:
    assert run_from_data(source)


def test_what_only_looks_like_it_is_let_through() -> None:
    assert run_from_data("re.compile('x')\njson.loads(text)\nevaluate(text)\nself.exec(query)") == set()


def test_every_floor_has_modules_to_look_at() -> None:
    for floor in FLOORS:
        assert sources(floor), floor


# --- the house --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("floor", FLOORS)
def test_imports_point_down_only(floor: str) -> None:
    wrong = {
        module_of(path): found for path in sources(floor) if (found := above(house()[path].imports, module_of(path)))
    }
    assert wrong == {}


def test_what_is_imported_is_nile_alone() -> None:
    """`import summaries` would find a folder of the reader's own, or nothing, where Nile is installed."""
    bare = {module_of(path): [n for n in seen.imports if n.startswith("BARE.")] for path, seen in house().items()}
    assert {module: found for module, found in bare.items() if found} == {}
    links = {name: (ROOT / "nile" / name).resolve() for name in BESIDE}
    assert links == {name: ROOT / name for name in BESIDE}


def test_every_module_lies_in_a_room() -> None:
    homeless = [path for path in sources(*FLOORS) if not room_of(module_of(path))]
    assert [path for path in homeless if path.name != "__init__.py"] == []


@pytest.mark.parametrize(
    ("module", "source", "found"),
    [
        ("nile.sql.a", "from nile.streams import order", set()),
        ("nile.streams.a", "from nile.sql import plan", {"nile.sql", "nile.sql.plan"}),
        ("nile.report.a", "if TYPE_CHECKING:\n    import nile.answers.result", {"nile.answers.result"}),
        ("nile.base.a", "def f():\n    plan = lazy('nile.sql.plan')", {"nile.sql.plan"}),
        ("nile.exact.join.a", "kernels = arrow.Late('nile.exact.pipeline.x')", {"nile.exact.pipeline.x"}),
        ("pyramid.disk.a", "importlib.import_module('nile.pyramid.history.keys')", {"pyramid.history.keys"}),
        ("nile.shell.a", "from nile import __version__", {"nile", "nile.__version__"}),
        ("nile.operators.join.a", "from nile.operators import common", set()),
    ],
)
def test_an_import_of_a_higher_room_is_seen_wherever_it_hides(module: str, source: str, found: set[str]) -> None:
    assert climbing(imports(source, module), module) == found


def test_imports_between_rooms_point_down_only() -> None:
    wrong = {
        module_of(path): found
        for path in house()
        if "tests" not in path.relative_to(ROOT).parts and (found := too_high(path))
    }
    assert wrong == {}


def too_high(path: Path) -> set[str]:
    return climbing(house()[path].imports, module_of(path))


def test_no_folder_holds_more_than_twenty_five_modules_and_each_says_what_it_holds() -> None:
    folders = {path.parent for path in sources(*FLOORS)}
    full = folders | {path.parent for path in sources("tests")}
    assert {str(f): n for f in full if (n := len(list(f.glob("*.py")))) > 25} == {}
    silent = [str(f) for f in folders if not ast.get_docstring(ast.parse((f / "__init__.py").read_text("utf-8")))]
    assert silent == []
    assert [path.name for path in (ROOT / "nile").glob("*.py")] == ["__init__.py"]


def judges() -> list[Path]:
    """The modules that say what is true: nothing below may reach them."""
    return sources("nile/exact", "nile/spark/exact")


def test_the_judges_import_no_lower_floor_but_the_errors() -> None:
    wrong = {}
    for path in judges():
        below = {name for name in house()[path].imports if name.split(".")[0] in LOWER}
        strange = {n for n in below if n != "summaries" and not n.startswith("summaries.errors")}
        if strange:
            wrong[module_of(path)] = strange
    assert wrong == {}


def test_the_judges_reach_no_lower_floor_through_another_module_of_nile() -> None:
    """Summaries.lazy and summaries.heavy may be reached that way: they only put off an import."""
    harmless = ("summaries.errors", "summaries.heavy", "summaries.lazy")
    by_module = {module_of(path): path for path in sources(*FLOORS)}
    for judge in judges():
        seen, ahead = set(), [module_of(judge)]
        while ahead:
            module = ahead.pop()
            if module in seen:
                continue
            seen.add(module)
            ahead += [name for name in house()[by_module[module]].imports if name in by_module and name != "summaries"]
        reached = {m for m in seen if m.split(".")[0] in LOWER and m not in harmless}
        assert reached == set(), module_of(judge)


def test_nothing_is_pickled() -> None:
    assert {module_of(path): seen.pickled for path, seen in house().items() if seen.pickled} == {}


def test_nothing_runs_what_a_file_says() -> None:
    wrong = {}
    for path in sources(*FLOORS):
        allowed = {"import_module"} if module_of(path) in IMPORTERS else set()
        allowed |= {"resolve_name"} if module_of(path) in NAMERS else set()
        if found := house()[path].runs - allowed:
            wrong[module_of(path)] = found
    assert wrong == {}


@pytest.mark.parametrize("floor", [floor for floor in FLOORS if floor != "experiments"])
def test_heavy_packages_load_on_first_use_only(floor: str) -> None:
    wrong = {}
    for path in sources(floor):
        allowed = {"numba"} if path.stem.endswith("kernels") else set()
        if found := (house()[path].eager & HEAVY) - allowed:
            wrong[module_of(path)] = found
    assert wrong == {}


def test_import_nile_loads_no_heavy_package() -> None:
    told = "import json, sys, nile; print(json.dumps([nile.__file__, *{m.split('.')[0] for m in sys.modules}]))"
    run = subprocess.run([sys.executable, "-c", told], cwd=ROOT, capture_output=True, text=True, check=True)
    file, *loaded = json.loads(run.stdout)
    assert Path(file) == ROOT / "nile/__init__.py"
    assert HEAVY & set(loaded) == set()


def test_the_walks_of_the_architecture_page_name_files_that_exist_and_never_climb_back() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    walks = [part.split("```")[1] for part in page.split("\n## One ")[1:]]
    assert len(walks) == 3
    for walk in walks:
        files = [next(word for word in line.split() if word.endswith(".py")) for line in walk.splitlines() if line]
        assert 0 < len(files) <= 12
        assert [name for name in files if not (ROOT / name).is_file()] == []
        heights = [ROOMS.index(room_of(name.removesuffix(".py").replace("/", "."))) for name in files]
        assert heights == sorted(heights, reverse=True)
