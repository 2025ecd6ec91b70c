"""Real processes of the reference pipeline, killed by a real SIGKILL at chosen operations."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from crash.reference import ACTS, IS_FULL

AN_ACT = 0 if IS_FULL else 4


def test_a_process_that_is_killed_anywhere_is_resumed(tmp_path: Path) -> None:
    script = Path(__file__).with_name("killing.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), str(AN_ACT)],
        env={**os.environ, "PYTHONPATH": str(script.parents[1])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    for act in ("ingest", *ACTS):
        # An act whose last operation was not reached again has survived that one.
        assert done.stdout.count(f"\n{act}: ") + done.stdout.startswith(f"{act}: ") >= (AN_ACT or 20)
    assert done.stdout.count(" killed") >= done.stdout.count(" survived") * 4
