"""What the image and the unit run: commands that exist, a server that answers, a probe that tells whether it does."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from nile.experiments.commands.serve import serve

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "docs" / "deploy"


def instructions() -> list[tuple[str, str]]:
    """(what, its words) of the Dockerfile, in order."""
    text = (PLACE / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1].strip()) for line in lines]


def said(what: str) -> str:
    found = [words for name, words in instructions() if name == what]
    assert len(found) == 1, what
    return found[0]


def test_the_image_is_built_of_what_there_is_and_runs_as_nobody_in_particular() -> None:
    order = [name for name, _ in instructions()]
    assert order[0] == "FROM"
    assert ":latest" not in said("FROM")
    assert order.index("USER") > order.index("RUN")
    assert said("USER") == "nile"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "/source[server]" in said("RUN")
    assert "server" in project["optional-dependencies"]
    assert said("FROM").removeprefix("python:").removesuffix("-slim") >= project["requires-python"].removeprefix(">=")
    command = json.loads(said("ENTRYPOINT"))
    assert command[0] in project["scripts"]
    assert Path(command[2]).is_relative_to(said("VOLUME"))
    assert said("ENV").startswith(f"NUMBA_CACHE_DIR={said('VOLUME')}/")


def test_the_unit_runs_a_command_that_is_understood() -> None:
    line = next(line for line in (PLACE / "nile.service").read_text().splitlines() if line.startswith("ExecStart="))
    words = shlex.split(line.removeprefix("ExecStart="))
    assert words[1] == "serve"
    assert serve.make_context("serve", words[2:]).params["checkpoint"] == "10 s"


@pytest.mark.slow
def test_what_the_image_starts_answers_its_probe_and_ends_with_a_checkpoint(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    words = [word.replace("/data", str(data)) for word in json.loads(said("ENTRYPOINT"))]
    assert words[words.index("--host") + 1] == "0.0.0.0"
    words[words.index("--host") + 1] = "127.0.0.1"
    command = [sys.executable, "-m", "nile.experiments.cli", *words[1:], "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            told = running.stdout.readline()
            port = told.split("http://127.0.0.1:")[1].split(",")[0]
            probe = json.loads(said("HEALTHCHECK").split("CMD", 1)[1])
            probe = [sys.executable, *(word.replace(":6453", f":{port}") for word in probe[1:])]
            assert subprocess.run(probe, check=False, timeout=60).returncode == 0
            assert (data / "token").stat().st_mode & 0o777 == 0o600
        finally:
            running.send_signal(signal.SIGTERM)
        _, log = running.communicate(timeout=60)
    assert running.returncode in (0, -signal.SIGTERM)
    assert json.loads(log.splitlines()[-1])["event"] == "closed"
    assert subprocess.run(probe, check=False, capture_output=True, timeout=60).returncode != 0
    assert any((data / "store").iterdir())
