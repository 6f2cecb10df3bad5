"""Beside independent counts: what simserve reads of a folder of configurations, as the table of `docs/models.md`.

`python tests/models_table.py FOLDER TRUTH.csv [--write docs/models.md]`. The truth has a row a file with the columns
`file`, `params_total_text`, `params_total_with_towers`, `params_active`, `kv_bytes_per_token_full_bf16`,
`state_bytes_per_sequence`, `index_cache_bytes_per_token`, `weight_bytes`, `kv_dtype_vllm_033_auto` and `max_model_len`.
Ends with 1 where a file is wrong: read, and off by more than the tolerance of a column.
"""

import argparse
import csv
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from simserve.report.model_facts import model_facts
from simserve.spec.catalogue import read_model
from simserve.spec.dtypes import bytes_per_element
from simserve.spec.errors import ScenarioError

TABLE = "<!-- table -->"
"""Where the table begins in the page; all behind it is replaced."""


class Compared(NamedTuple):
    """A fact beside the truth; `off` is the share by which they differ."""

    fact: str
    found: float
    truth: float
    tolerance: float

    @property
    def off(self) -> float:
        """Difference over the truth."""
        return self.found / self.truth - 1 if self.truth else float(self.found != 0)

    @property
    def is_wrong(self) -> bool:
        """Whether they differ by more than is allowed."""
        return abs(self.off) > self.tolerance


def compared(facts: Mapping[str, Any], truth: Mapping[str, str]) -> list[Compared]:
    """All facts that the truth has for a file."""
    # A layout of its own is the same whatever the format of KV.
    own_layout = any(kind.startswith("compressed") for kind in facts["layers"])
    per_element = 2 if own_layout else bytes_per_element(facts["kv_dtype"])
    found = {
        "parameters": (facts["num_parameters"], truth["params_total_with_towers"], 1e-6),
        "active": (facts["num_active_parameters"], truth["params_active"], 1e-6),
        "weight bytes": (facts["weight_bytes"], truth["weight_bytes"], 1e-3),
        "KV bytes": (facts["kv_bytes_per_token"] * 2 / per_element, truth["kv_bytes_per_token_full_bf16"], 0.0),
        "state bytes": (facts["state_bytes_per_sequence"], truth["state_bytes_per_sequence"], 0.0),
        "index bytes": (facts["index_cache_bytes_per_token"], truth["index_cache_bytes_per_token"], 0.0),
        "max_model_len": (facts["max_model_len"], truth["max_model_len"], 0.0),
    }
    return [Compared(fact, float(own), float(other), most) for fact, (own, other, most) in found.items() if other]


def row(name: str, facts: Mapping[str, Any], truth: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Cells of a file, and what is wrong with it."""
    all_of_it = {each.fact: each for each in compared(facts, truth)}
    wrong = [f"{each.fact} {each.found:,.0f}, not {each.truth:,.0f}" for each in all_of_it.values() if each.is_wrong]
    cells = [
        name,
        f"{facts['num_parameters'] / 1e9:.3f}",
        *(_off(all_of_it.get(fact)) for fact in ("parameters", "active")),
        f"{facts['weight_bytes'] / 1e9:.2f}",
        _off(all_of_it.get("weight bytes")),
        f"{facts['kv_bytes_per_token']:,.0f}",
        _off(all_of_it.get("KV bytes")),
        facts["kv_dtype"],
        "yes" if facts["simulated"] is True else str(facts["simulated"]),
    ]
    return cells, wrong


def _off(each: Compared | None) -> str:
    if each is None:
        return ""
    return "=" if each.found == each.truth else f"{each.off:+.4%}"


HEADER = [
    *("file", "parameters (B)", "off", "active off", "weights (GB)", "off"),
    *("KV bytes a token", "off", "KV in", "runs"),
]


def main() -> int:
    """Print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("truth", type=Path)
    parser.add_argument("--write", type=Path, help="Page whose table is replaced.")
    arguments = parser.parse_args()
    with arguments.truth.open(encoding="utf-8", newline="") as file:
        truths = list(csv.DictReader(file))
    lines, wrong = [f"| {' | '.join(HEADER)} |", f"|{'---|' * len(HEADER)}"], []
    for truth in truths:
        name = truth["file"].removesuffix("_config.json").replace("--", "/")
        try:
            cells, faults = row(name, model_facts(read_model(arguments.folder / truth["file"])), truth)
        except ScenarioError as error:
            cells, faults = [name, *[""] * (len(HEADER) - 2), f"refused: {error}"], [f"refused: {error}"]
        lines.append(f"| {' | '.join(cells)} |")
        wrong += [f"{name}: {fault}" for fault in faults]
    if arguments.write:
        page = arguments.write.read_text(encoding="utf-8")
        arguments.write.write_text(page[: page.index(TABLE) + len(TABLE)] + "\n\n" + "\n".join(lines) + "\n", "utf-8")
    else:
        print("\n".join(lines))
    print(f"{len(truths)} files, {len({fault.split(':')[0] for fault in wrong})} differ", file=sys.stderr)
    print("\n".join(wrong), file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
