"""A config is checked at the edge: every mistake is named with its file, line, key and cure."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nile.experiments.run.config import (
    EXAMPLE,
    BurstsConfig,
    RunConfig,
    StreamConfig,
    SummaryConfig,
    SyntheticData,
    build_config,
    load_config,
)
from nile.experiments.run.toml_lines import line_of
from nile.preferences.budget import Budget
from nile.preferences.clock import Bursts, Pace
from nile.pyramid.grid.spec import SummarySpec
from nile.summaries.errors import BudgetError, ConfigError, MemoryRefused, NileError, SourceMissing

SECOND = 1_000_000_000
SIDES = """
[left]
source = "synthetic"
time = "ts"
key = "item_id"
[right]
source = "synthetic"
time = "ts"
key = "item_id"
"""


def write(folder: Path, text: str) -> Path:
    file = folder / "run.toml"
    file.write_text(text, encoding="utf-8")
    return file


def load(folder: Path, top: str = "", tables: str = SIDES) -> RunConfig:
    return load_config(write(folder, top + tables))


def mistakes(folder: Path, top: str = "", tables: str = SIDES) -> str:
    with pytest.raises((ConfigError, BudgetError)) as caught:
        load(folder, top, tables)
    return str(caught.value).replace(str(folder / "run.toml"), "run.toml")


# --- the example and the defaults -------------------------------------------------------------------------


def test_the_example_is_a_config_and_spells_out_the_defaults(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, EXAMPLE))
    left = StreamConfig(source="synthetic", time="ts", key="item_id", where="vstore = 0")
    right = StreamConfig(source="synthetic", time="ts", key="item_id", where="vstore = 1")
    assert config == RunConfig(left=left, right=right, window="1 hour")  # type: ignore[arg-type]
    assert (config.window, config.synthetic) == (3_600 * SECOND, SyntheticData())


def test_the_example_names_every_key() -> None:
    for owner in (RunConfig, StreamConfig, SummaryConfig, SyntheticData, BurstsConfig):
        for name in owner.model_fields:
            assert re.search(rf"^(# +)?{name} = |^(# +)?\[{name}\]", EXAMPLE, re.M), name


def test_what_the_example_comments_out_is_the_default_too(tmp_path: Path) -> None:
    spelt = re.sub(r"^# (\w+ = )", r"\1", EXAMPLE, flags=re.M)
    assert spelt != EXAMPLE
    full, plain = load_config(write(tmp_path, spelt)), load_config(write(tmp_path, EXAMPLE))
    assert full.summary.spec(full.window) == SummarySpec(900 * SECOND, max_length=225 * SECOND)
    assert full.summary.spec(full.window).zone_length == plain.summary.spec(plain.window).zone_length
    assert {name for name in RunConfig.model_fields if getattr(full, name) != getattr(plain, name)} == {
        "summary",
        "structures",
    }
    assert full.structures == (plain.summary.structure,)


def test_the_smallest_config_has_two_sides_and_no_window(tmp_path: Path) -> None:
    config = load(tmp_path)
    side = StreamConfig(source="synthetic", time="ts", key="item_id")
    assert config == RunConfig(left=side, right=side)
    assert config.window is None
    assert load(tmp_path, 'window = "none"\n') == config


def test_summary_defaults_are_those_of_the_pyramid() -> None:
    assert SummaryConfig().spec(4_000) == SummarySpec(1_000)
    assert SummaryConfig(granularity=7).spec(4_000) == SummarySpec(7 * SECOND)


def test_without_window_and_granularity_the_first_granularity_is_an_hour() -> None:
    assert SummaryConfig().spec(None) == SummarySpec(3_600 * SECOND)
    assert SummaryConfig().spec(1).granularity == 1


def test_a_config_cannot_be_changed(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load(tmp_path).fade = 0.5  # type: ignore[misc]


# --- budgets, pacing, structures ---------------------------------------------------------------------------


def test_budgets_may_be_in_any_unit_and_bursts_shape_the_exponential_replay(tmp_path: Path) -> None:
    top = 'budgets = [0.1, 0.5]\nbudget_unit = "share"\nreplay = "exponential"\nspeed = 50\nstructures = ["T1", "T3"]\n'
    config = load(tmp_path, top, f"{SIDES}[bursts]\nfactor = 4\nshare = 0.25\n")
    assert [config.budget(amount) for amount in config.budgets] == [Budget(share=0.1), Budget(share=0.5)]
    assert config.pace == Pace("exponential", 100_000_000, Bursts(4.0, 0.25))
    assert (config.speed, config.structures) == (50.0, ("T1", "T3"))
    assert load(tmp_path, 'budgets = 2000\nbudget_unit = "outputs"\n').budget(2000) == Budget(outputs=2000)


@pytest.mark.parametrize(
    ("top", "tables", "told"),
    [
        ('budgets = 2\nbudget_unit = "share"\nreplay = "data"\n', SIDES, r"run.toml:1: budgets: needed a share"),
        ('budgets = 0.5\nbudget_unit = "share"\n', SIDES, r'needed replay = "data" or "exponential"'),
        ('budgets = 1.5\nbudget_unit = "outputs"\n', SIDES, r"needed a whole number of outputs"),
        ('budget_unit = "second"\n', SIDES, r"did you mean 'seconds'"),
        ('methods = "shed-uniform"\nbudget_unit = "seconds"\n', SIDES, r"needed budgets that are fractions"),
        ('replay = "data"\n', f"{SIDES}[bursts]\n", r"bursts: needed replay 'exponential'"),
        ("", f"{SIDES}[bursts]\nshare = 1\n", r"bursts.share: needed a share in \(0, 1\)"),
        ('structures = ["T5"]\n', SIDES, r"structures\[0\]: needed one of T1"),
        ("speed = 0\n", SIDES, r"speed: needed a number > 0"),
    ],
)
def test_what_budgets_and_pacing_can_get_wrong_together_is_named(
    tmp_path: Path, top: str, tables: str, told: str
) -> None:
    assert re.search(told, mistakes(tmp_path, top, tables))


# --- what may be written ----------------------------------------------------------------------------------


def test_one_value_may_stand_where_a_list_does(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        'budgets = 0.1\npreferences = "asc"\nmethods = "nile"\nseeds = 7\nguides = "directory"\ncosts = "memory"\n',
    )
    assert config.budgets == (0.1,)
    assert (config.preferences, config.methods, config.seeds) == (("asc",), ("nile",), (7,))
    assert (config.guides, config.costs) == (("directory",), ("memory",))


@pytest.mark.parametrize(
    ("written", "seconds"), [("3600", 3600), ("0.5", 0.5), ('"6 hours"', 21_600), ('"100 ms"', 0.1), ('"1h"', 3600)]
)
def test_durations_are_seconds_or_text(tmp_path: Path, written: str, seconds: float) -> None:
    config = load(
        tmp_path,
        f"window = {written}\nreplay_mean = {written}\n",
        f"{SIDES}[summary]\ngranularity = {written}\nmax_length = {written}\n",
    )
    expected = round(seconds * SECOND)
    assert (config.window, config.replay_mean) == (expected, expected)
    assert (config.summary.granularity, config.summary.max_length) == (expected, expected)


def test_every_key_of_a_full_config_arrives(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.csv").write_text("ts,k\n")
    config = load(
        tmp_path,
        """
        window = 10
        budgets = [0.25, 2]
        preferences = ["asc", "desc"]
        methods = ["hash-drop"]
        seeds = [3, 1]
        guides = ["directory"]
        fade = 0.8
        output = "ranges"
        costs = ["memory", "engine"]
        replay = "exponential"
        replay_mean = "50 ms"
        outlier_cap = 9
        forgetting = true
        batch_rows = 100
        """,
        """
        [left]
        source = "data/a.csv"
        time = "t"
        key = "k"
        where = "x > 1"
        [right]
        source = "synthetic"
        time = "u"
        key = "v"
        [synthetic]
        seed = 5
        tuples = 10
        items = 3
        [summary]
        granularity = 4
        rate = 2
        depth = 5
        structure = "T3"
        buckets = 8
        sketch = "countsketch"
        confidence = "variance"
        threshold = 0.5
        max_length = 2
        sketch_rows = 5
        sketch_columns = 64
        """,
    )
    assert config == RunConfig(
        left=StreamConfig(source=str(tmp_path / "data/a.csv"), time="t", key="k", where="x > 1"),
        right=StreamConfig(source="synthetic", time="u", key="v"),
        synthetic=SyntheticData(seed=5, tuples=10, items=3),
        window=10,
        budgets=(0.25, 2.0),
        preferences=("asc", "desc"),
        methods=("hash-drop",),
        seeds=(3, 1),
        guides=("directory",),
        fade=0.8,
        output="ranges",
        costs=("memory", "engine"),
        replay="exponential",
        replay_mean=0.05,  # type: ignore[arg-type]
        outlier_cap=9,
        forgetting=True,
        batch_rows=100,
        summary=SummaryConfig(
            granularity=4,
            rate=2,
            depth=5,
            structure="T3",
            buckets=8,
            sketch="countsketch",
            confidence="variance",
            threshold=0.5,
            max_length=2,
            sketch_rows=5,
            sketch_columns=64,
        ),
    )


def test_relative_sources_start_at_the_folder_of_the_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_text("ts,k\n")
    tables = SIDES.replace('"synthetic"', '"a.csv"')
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in", tables)
    assert load_config("in/run.toml").left.source == "in/a.csv"
    absolute = tables.replace("a.csv", str(tmp_path / "in/a.csv"))
    assert load(tmp_path, "", absolute).right.source == str(tmp_path / "in/a.csv")


def test_windows_line_ends_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_bytes(b"\xef\xbb\xbf" + ("fade = 0.5\n" + SIDES).replace("\n", "\r\n").encode())
    assert load_config(file).fade == 0.5


def test_values_from_a_command_line_are_checked_alike() -> None:
    side = {"source": "synthetic", "time": "ts", "key": "item_id", "where": None}
    config = build_config({"left": side, "right": side, "window": None, "budgets": (0.1,)}, where="options")
    assert (config.budgets, config.window, config.left.where) == ((0.1,), None, None)
    with pytest.raises(ConfigError, match=r"^options: budgets\[0\]: needed finite fractions > 0"):
        build_config({"left": side, "right": side, "budgets": (0,)}, where="options")


# --- what is refused, and how it is told ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("budgets = [0.1, -0.5]", "run.toml:1: budgets[1]: needed finite fractions > 0, such as [0.1, 0.5]; got -0.5"),
        ("budgets = 0", "run.toml:1: budgets: needed finite fractions > 0, such as [0.1, 0.5]; got 0"),
        ("budgets = inf", "run.toml:1: budgets: needed finite fractions > 0, such as [0.1, 0.5]; got inf"),
        ("budgets = [nan]", "run.toml:1: budgets[0]: needed finite fractions > 0, such as [0.1, 0.5]; got nan"),
        ("budgets = true", "run.toml:1: budgets: needed finite fractions > 0, such as [0.1, 0.5]; got true"),
        ('budgets = "a"', "run.toml:1: budgets: needed finite fractions > 0, such as [0.1, 0.5]; got 'a'"),
        ("budgets = []", "run.toml:1: budgets: needed finite fractions > 0, such as [0.1, 0.5]; got an empty list"),
        ("budgets = [0.5, 0.5]", "run.toml:1: budgets: needed each value once; got 0.5 twice"),
        ("fade = 0", "run.toml:1: fade: needed one number in (0, 1]; got 0"),
        ("fade = 1.5", "run.toml:1: fade: needed one number in (0, 1]; got 1.5"),
        ("fade = [0.5]", "run.toml:1: fade: needed one number in (0, 1]; got [0.5]"),
        ("seeds = 1.5", "run.toml:1: seeds: needed whole numbers >= 0; got 1.5"),
        ("seeds = [-1]", "run.toml:1: seeds[0]: needed whole numbers >= 0; got -1"),
        ('preferences = "acs"', "needed one of desc, weighted, asc; got 'acs'; did you mean 'asc'?"),
        (
            'methods = ["hashdrop"]',
            "needed one of nile, paper, hash-drop, hash-backlog, scan, hash-buckets, shed-uniform, hash-keys; got "
            "'hashdrop'; did you mean 'hash-drop'?",
        ),
        (
            'methods = ["nile", "scan"]\noutput = "ranges"',
            "run.toml:1: methods: needed methods that keep position lists, for ranges; got 'scan'",
        ),
        ('guides = "zzz"', "run.toml:1: guides: needed one of countsketch, directory; got 'zzz'"),
        ('output = "pair"', "needed one of pairs, ranges; got 'pair'; did you mean 'pairs'?"),
        ('costs = "Engine"', "needed one of engine, memory; got 'Engine'; did you mean 'engine'?"),
        ("replay = 3", "run.toml:1: replay: needed one of none, exponential, data; got 3"),
        ("outlier_cap = 0", "run.toml:1: outlier_cap: needed a whole number >= 1; got 0"),
        ("forgetting = 1", "run.toml:1: forgetting: needed true or false; got 1"),
        ("batch_rows = 0", "run.toml:1: batch_rows: needed a whole number >= 1; got 0"),
        ("window = -3", "run.toml:1: window: needed a duration"),
        ('window = "a while"', "got 'a while'"),
        ("window = 07:32:00", "run.toml:1: window: needed a duration"),
        ("window = true", "run.toml:1: window: needed a duration"),
        ("widnow = 3", "run.toml:1: widnow: needed a known key; got 'widnow'; did you mean 'window'?"),
        ("zzz = 3", "needed a known key; got 'zzz'; known here: left, right, window, budgets"),
        ("granularity = 3", "granularity: needed a known key; got 'granularity', which belongs in [summary]"),
        ("summary = 3", "run.toml:1: summary: needed a table [summary]; got 3"),
    ],
)  # fmt: skip
def test_a_bad_line_is_told_with_its_number_its_key_and_its_cure(tmp_path: Path, line: str, told: str) -> None:
    assert told in mistakes(tmp_path, line + "\n")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("rate = 1", "run.toml:11: summary.rate: needed a whole number from 2 to 4096; got 1"),
        ("depth = 0", "run.toml:11: summary.depth: needed a whole number from 1 to 32; got 0"),
        ('structure = "T9"', "run.toml:11: summary.structure: needed one of T1, T2, T3, T4; got 'T9'"),
        ("buckets = 20", "run.toml:11: summary.buckets: needed a power of two; got 20; try 32"),
        ('sketch = "hll"', "run.toml:11: summary.sketch: needed countsketch; got 'hll'"),
        ('confidence = "two_window"', "got 'two_window'; did you mean 'two-window'?"),
        ("threshold = nan", "run.toml:11: summary.threshold: needed a confidence in [0, 1); got nan"),
        ("granularity = 0", "run.toml:11: summary.granularity: needed a duration"),
        ("budgets = 1", "got 'budgets', which belongs at the top of the file, above the first [table]"),
        ("sketch_row = 1", "sketch_row: needed a known key; got 'sketch_row'; did you mean 'sketch_rows'?"),
    ],
)  # fmt: skip
def test_a_bad_line_of_a_table_is_told_with_its_table(tmp_path: Path, line: str, told: str) -> None:
    assert told in mistakes(tmp_path, tables=f"{SIDES}[summary]\n{line}\n")


def test_a_missing_key_or_table_is_told_where_it_should_stand(tmp_path: Path) -> None:
    told = mistakes(tmp_path, tables='[left]\nsource = "synthetic"\ntime = "ts"\n')
    assert told.splitlines() == [
        "run.toml: right: needed a table [right] with source, time, key and, if wanted, where; it is missing",
        'run.toml:1: left.key: needed the name of the join column, such as key = "item_id"; it is missing',
    ]


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    told = mistakes(tmp_path, "fade = 3\nbudgets = [\n  0.1,\n  -1,\n]\nseeds = -1\n")
    assert [line.split(": ")[:2] for line in told.splitlines()] == [
        ["run.toml:1", "fade"],
        ["run.toml:2", "budgets[1]"],
        ["run.toml:6", "seeds"],
    ]


def test_synthetic_settings_that_nothing_uses_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,item_id\n")
    tables = SIDES.replace('"synthetic"', '"a.csv"') + "[synthetic]\nseed = 1\n"
    assert 'run.toml:10: synthetic: needed a side with source = "synthetic"' in mistakes(tmp_path, "", tables)


def test_a_source_that_is_not_there_is_told_with_its_line(tmp_path: Path) -> None:
    for name in ("nowhere.parquet", "odd\\u0000name.csv"):
        with pytest.raises(SourceMissing, match=r"run\.toml:3: left\.source: needed an existing file; got '.*"):
            load(tmp_path, "", SIDES.replace("synthetic", name, 1))


def test_summaries_too_large_for_memory_are_refused_before_they_are_built(tmp_path: Path) -> None:
    huge = f"{SIDES}[summary]\nbuckets = 4096\nsketch_columns = 1048576\n"
    with pytest.raises(MemoryRefused, match=r"run\.toml:10: summary: .*GiB"):
        load(tmp_path, "", huge)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"fade = 1\nfade = = 2\n", ":2: needed TOML, with text in quotes; got: invalid value"),
        (b"fade = 1\nwindow = one hour\n", ":2: needed TOML, with text in quotes; got: invalid value"),
        (b"fade = 1\nkey = [1,\n", ":2: needed TOML"),
        (b"fade = 1\n# caf\xe9\n", ":2: needed TOML in UTF-8; got byte 0xe9"),
        (b"a = " + b"[" * 5_000 + b"]" * 5_000, "got values too deep or too long"),
        (b"fade = " + b"1" * 5_000, "got values too deep or too long"),
        (b"#" * 300_000, "needed at most 262144 bytes of TOML, got 300000"),
    ],
)
def test_a_file_that_is_not_toml_is_told_with_its_line(tmp_path: Path, content: bytes, told: str) -> None:
    file = tmp_path / "run.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert told in str(caught.value)


def test_a_missing_config_and_a_directory_are_told(tmp_path: Path) -> None:
    with pytest.raises(SourceMissing, match=r"no such file; `nile run --example` prints one"):
        load_config(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="needed a TOML file, got a directory"):
        load_config(tmp_path)


def test_long_values_are_cut_in_messages(tmp_path: Path) -> None:
    told = mistakes(tmp_path, f'fade = "{"x" * 10_000}"\n')
    assert len(told) < 200


toml_values = st.recursive(
    st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text("ad.=1é", max_size=8) | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("adkey", max_size=6), inner, max_size=3),
    max_leaves=6,
)
keys = st.sampled_from([*RunConfig.model_fields, "nonsense"])


@given(st.dictionaries(keys, toml_values, max_size=5))
def test_whatever_a_table_holds_the_answer_is_a_config_or_an_error_nile_names(table: dict[str, object]) -> None:
    side = {"source": "synthetic", "time": "ts", "key": "item_id"}
    config = told = None
    try:
        config = build_config({"left": side, "right": side, **table}, where="options")
    except NileError as error:
        told = str(error)
    if config is None:
        assert told is not None
        assert told.startswith("options: ")
    else:
        assert all(budget > 0 and math.isfinite(budget) for budget in config.budgets)
        assert 0 < config.fade <= 1


# --- lines ------------------------------------------------------------------------------------------------

TOML = '''\
# a comment
a = 1

[t]
text = """
a = 2
b = 3
"""
list = [
  1,
  2,
]
[t.u]
"odd key" = 1
v.w = { x = 1 }
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (["a"], 2),
        (["t"], 4),
        (["t", "text"], 5),
        (["t", "list"], 9),
        (["t", "list", "1"], 9),
        (["t", "u", "odd key"], 14),
        (["t", "u", "v", "w", "x"], 15),
        (["t", "missing"], 4),
        (["missing"], None),
    ],
)
def test_a_key_is_found_on_the_line_where_its_statement_begins(path: list[str], line: int | None) -> None:
    assert line_of(TOML, path) == line
