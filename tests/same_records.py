"""Whether two checkouts compute the same: `make same BASE=REVISION`, for a change that must change no number.

Runs the workloads of `make bench`, all scenarios, the gallery and every pair of mechanisms of tests/test_matrix.py in
both, and compares all records by value, and the summaries but for `version`, `events` and keys that only the newer one
has. Each checkout answers its own questions with its own code; those that both ask are compared.
"""

import argparse
import hashlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent.parent
INCIDENTAL = {"version", "events"}
Answer = dict[str, Any]


def answers(root: Path, only: str) -> Iterator[tuple[str, Answer]]:
    """What the checkout at `root` answers to each of its questions whose name contains `only`."""
    for name, ask in questions(root):
        if only in name:
            yield name, ask()


def questions(root: Path) -> Iterator[tuple[str, Callable[[], Answer]]]:
    bench, matrix = importlib.import_module("bench"), importlib.import_module("test_matrix")
    for name in bench.WORKLOADS:
        yield f"bench: {name}", lambda name=name: _of_run(bench.question(name))
    for path in sorted((root / "scenarios").rglob("*.yaml")):
        yield f"scenario: {path.stem}", lambda path=path: _of_run(_loaded(path))
    for one in matrix.MECHANISMS:
        yield f"mechanism: {one}", lambda one=one: _of_run(matrix.asked(one))
    for pair in matrix.PAIRS:
        if not matrix.is_refused(*pair):
            yield f"mechanisms: {' x '.join(pair)}", lambda pair=pair: _of_run(matrix.asked(*pair))
    page = importlib.import_module("notebooks.gallery_page")
    for name in page.names():
        measure = importlib.import_module(f"notebooks.gallery.{name}").measure
        yield f"gallery: {name}", lambda measure=measure: {"measured": _plain(measure())}


def _loaded(path: Path) -> Any:
    from simserve.spec.load import load_scenario

    return load_scenario(path)


def _of_run(scenario: Any) -> Answer:
    from simserve.report.summary import summarize
    from simserve.simulation import simulate

    result = simulate(scenario)
    digests = {
        f"{table}.{name}": _digest(column)
        for table in ("requests", "steps", "gaps", "attempts")
        for name, column in getattr(result, table).items()
    }
    return {"columns": digests, "summary": _plain(summarize(result))}


def _digest(column: Any) -> str:
    values = np.asarray(column)
    kind = np.float64 if values.dtype.kind == "f" else np.int64 if values.dtype.kind in "iub" else None
    content = np.ascontiguousarray(values, dtype=kind).tobytes() if kind else repr(values.tolist()).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=lambda other: np.asarray(other).tolist()))


def differences(before: Answer, after: Answer, place: str = "") -> list[str]:
    """Where two answers differ; keys that only `after` has are no difference."""
    if isinstance(before, dict) and isinstance(after, dict):
        found = [f"{place}{key}: gone" for key in before.keys() - after.keys() - INCIDENTAL]
        for key in before.keys() & after.keys() - INCIDENTAL:
            found += differences(before[key], after[key], f"{place}{key}.")
        return found
    return [] if before == after else [f"{place.removesuffix('.')}: {before} -> {after}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", help="a revision, or a file that --write wrote")
    parser.add_argument("--write", action="store_true", help="write the answers of this checkout to the file `base`")
    parser.add_argument("--only", default="", help="questions whose name contains this")
    parser.add_argument("--root", type=Path, default=HERE, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path[:0] = [str(options.root), str(options.root / "tests")]
    if options.write:
        Path(options.base).write_text(json.dumps(dict(answers(options.root, options.only))), encoding="utf-8")
        return 0
    before = _answers_of(options.base, options.only)
    num_differing = 0
    for name, after in answers(options.root, options.only):
        if name in before and (found := differences(before[name], after)):
            num_differing += 1
            print(f"{name}\n  " + "\n  ".join(sorted(found)[:8]), flush=True)
    print(f"{len(before)} questions, {num_differing} answered otherwise than by {options.base}")
    return min(num_differing, 1)


def _answers_of(base: str, only: str) -> dict[str, Answer]:
    """What the older checkout answers: from a file, or by running this script over its files."""
    if Path(base).is_file():
        answered: dict[str, Answer] = json.loads(Path(base).read_text(encoding="utf-8"))
        return {name: answer for name, answer in answered.items() if only in name}
    with tempfile.TemporaryDirectory() as folder:
        root, out = Path(folder) / "checkout", Path(folder) / "answers.json"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(root), base], check=True, cwd=HERE)
        try:
            command = [sys.executable, __file__, str(out), "--write", "--only", only, "--root", str(root)]
            subprocess.run(command, check=True, cwd=root, env={**os.environ, "PYTHONPATH": str(root)})
            return dict(json.loads(out.read_text(encoding="utf-8")))
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(root)], check=True, cwd=HERE)


if __name__ == "__main__":
    sys.exit(main())
