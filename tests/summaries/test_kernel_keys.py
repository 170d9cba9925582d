"""A module's kernels compile anew when something that they have compiled in changes, and only then."""

from pathlib import Path

from nile.summaries.package import NILE, files_below, is_compiled_in, kernel_key

FILES = {
    "low/mix_kernels.py": "def mix(): ...\n",
    "low/state.py": "PLACE = 3\n",
    "low/spec.py": "import os\nSLICE = 256\nOTHER = {\n    1: 2,\n}\n",
    "high/join_kernels.py": (
        "from nile.low import state as st\nfrom nile.low.mix_kernels import (  # as it is\n    mix,\n)\n"
        "from nile.low.spec import SLICE\n"
    ),
    "high/alone_kernels.py": "from nile.low.spec import OTHER\n",
}


def keys(root: Path, **changed: str) -> dict[str, str]:
    """The key of each module of kernels, with changed texts."""
    package = root / f"{len(list(root.iterdir()))}" / "nile"
    for name, text in FILES.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(changed.get(path.stem, text))
    return {Path(name).stem: kernel_key(package / name, package) for name in FILES if name.endswith("kernels.py")}


def test_an_edit_changes_the_keys_of_what_imports_it(tmp_path: Path) -> None:
    before = keys(tmp_path)
    assert keys(tmp_path) == before

    def changed(**texts: str) -> set[str]:
        return {name for name, key in keys(tmp_path, **texts).items() if key != before[name]}

    assert changed(alone_kernels="from nile.low.spec import OTHER\n# said\n") == {"alone_kernels"}
    assert changed(mix_kernels="def mix(): return 1\n") == {"mix_kernels", "join_kernels"}
    assert changed(state="PLACE = 4\n") == {"join_kernels"}
    assert changed(spec=FILES["low/spec.py"].replace("256", "512")) == {"join_kernels", "alone_kernels"}
    assert changed(spec=FILES["low/spec.py"].replace("1: 2", "1: 3")) == {"alone_kernels"}


def test_every_module_of_kernels_has_a_key_and_most_outlast_an_edit_of_one() -> None:
    modules = [path for path in files_below(NILE) if path.name.endswith("kernels.py")]
    assert len({kernel_key(path, NILE) for path in modules}) == len(modules)
    assert all(is_compiled_in(path) for path in modules)
