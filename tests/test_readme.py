"""The README says nothing that is not so: its commands run, print what it shows, and name keys and files that exist.

`python tests/test_readme.py` runs the commands and writes what they print into the README.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simserve.cli import app
from simserve.report.summary import summarize
from simserve.simulation import simulate
from simserve.spec.load import load_scenario, parse_scenario

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"`(simserve [^`]*)`")


def output(command: str) -> str:
    """What a command prints (its last line, with `| tail -1`), without the blanks that nobody sees."""
    command, tail, _ = command.partition(" | tail -1")
    result = CliRunner().invoke(app, shlex.split(command)[1:], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    lines = [line.rstrip() for line in result.stdout.rstrip().splitlines()]
    return "\n".join(lines[-1:] if tail else lines)


def sessions() -> Iterator[tuple[str, str]]:
    """Each command of the README's console blocks, and what is shown below it."""
    for block in CONSOLE.findall(TEXT):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            yield command, shown.rstrip()


@pytest.mark.parametrize(("command", "shown"), [*sessions()])
def test_commands_print_what_the_readme_shows(command: str, shown: str) -> None:
    assert output(command) == shown


@pytest.mark.parametrize("command", sorted(set(COMMAND.findall(TEXT))))
def test_commands_in_the_text_exist(command: str) -> None:
    words = shlex.split(command)[1:]
    groups = {"trace", "validate", "profiles"}
    verbs = words[: 2 if words[0] in groups else 1]
    page = CliRunner().invoke(app, [*verbs, "--help"])
    assert page.exit_code == 0, f"no such verb: {command}"
    for word in words:
        if word.startswith("-"):
            assert word in page.stdout, f"no such option: {word}"


def keys_of(value: Any, path: str = "") -> Iterator[str]:
    """Every key path of nested mappings."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield f"{path}{key}"
            yield from keys_of(item, f"{path}{key}.")


def test_scenario_keys_in_the_readme_exist() -> None:
    known = set(keys_of(load_scenario(ROOT / "scenarios" / "quickstart.yaml").model_dump()))
    stated = set(re.findall(r"\b((?:engine|cluster|workload|run|slo|cost)\.[a-z_.]+[a-z])\b", TEXT))
    files = {name for name in stated if name.endswith((".yaml", ".py", ".json", ".csv"))}
    assert stated - files
    assert stated - files <= known


def test_examples_of_yaml_are_scenarios(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quickstart, own = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    assert quickstart == (ROOT / "scenarios" / "quickstart.yaml").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.csv").write_text("arrival,input_len,output_len\n0,10,2\n")
    (tmp_path / "path" / "to").mkdir(parents=True)
    model = (ROOT / "simserve" / "models" / "llama-3.1-8b.json").read_text(encoding="utf-8")
    (tmp_path / "path" / "to" / "config.json").write_text(model)
    gpu = parse_scenario(own).cluster.gpu
    assert gpu.hbm_bandwidth == 2e12
    other = own.replace("model: path/to/config.json", "#").replace("# model: {", "model: {")
    assert parse_scenario(other).model.weight_dtype == "fp8"


MECHANISMS = (
    (),
    ("engine.speculative={method: ngram, num_speculative_tokens: 2, acceptance: 0.7}",),
    ("workload.client={timeout: 10 s}",),
    ("engine.preemption=swap",),
    ("cluster.pools={prefill: {}, decode: {}}", "cluster.kv_link={bandwidth: 50 GB/s}"),
)
"""What has metrics of its own."""


def test_metrics_in_the_readme_are_keys_of_the_summary() -> None:
    summary: set[str] = set()
    for keys in MECHANISMS:
        scenario = load_scenario(ROOT / "scenarios" / "quickstart.yaml", ["workload.trace.limit=20", *keys])
        summary |= summarize(simulate(scenario)).keys()
    table = TEXT.partition("## What the numbers mean")[2].partition("\n\nPercentiles")[0]
    names = [
        name
        for row in table.splitlines()
        if row.startswith("| `")
        for name in re.findall(r"`(\w+)`", row.split("|")[1])
    ]
    assert len(names) > 15
    assert not [name for name in names if name not in summary and f"mean_{name}_ms" not in summary]


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert target.startswith("https://") or (ROOT / target).exists(), target


def write_readme() -> None:
    """Run the commands of the README and put in what they print."""

    def ran(block: re.Match[str]) -> str:
        commands = re.findall(r"^\$ (.*)$", block[1], flags=re.MULTILINE)
        return "```console\n" + "\n".join(f"$ {command}\n{output(command)}" for command in commands) + "\n```"

    README.write_text(CONSOLE.sub(ran, TEXT), encoding="utf-8")


if __name__ == "__main__":
    write_readme()
