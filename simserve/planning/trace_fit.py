"""A scenario with a synthetic workload that has the statistics of a trace, written and drawn from once."""

from pathlib import Path
from typing import Final

import yaml

from simserve.spec.errors import ScenarioError
from simserve.spec.load import parse_scenario
from simserve.workload.recorded import trace_of
from simserve.workload.trace_fit import Nearness, fit_trace, nearness
from simserve.workload.traces import Trace
from simserve.workload.workload import build_workload

_HEAD: Final = """\
# Fitted to {name}: {count} requests. Model and cluster are to be replaced by yours; the workload is the trace's.
{notes}
name: fit of {quoted}
model: llama-3.1-8b
cluster: {{gpu: h100-sxm-80gb}}
"""


def fit_scenario(trace: Trace, name: str, out: Path, *, force: bool = False) -> tuple[list[Nearness], list[str]]:
    """Write the scenario; how near one draw of it is to the trace, and sentences on what it leaves out.

    Raises:
        ScenarioError: the trace has nothing to fit, or the file is there and not `force`.
    """
    if out.exists() and not force:
        raise ScenarioError(f"{out}: is there already; choose another name or force it")
    section, notes = fit_trace(trace)
    plain = name.replace("\n", " ")
    head = _HEAD.format(
        name=plain,
        quoted=yaml.safe_dump(plain, default_style="'").strip().strip("'"),
        count=len(trace),
        notes="\n".join(f"# {note}" for note in notes),
    )
    text = head + yaml.safe_dump({"workload": section}, sort_keys=False, default_flow_style=None, width=120)
    drawn = trace_of(build_workload(parse_scenario(text)))
    out.parent.mkdir(parents=True, exist_ok=True)
    unfinished = out.with_name(f"{out.name}.part")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(out)
    finally:
        unfinished.unlink(missing_ok=True)
    return nearness(trace, drawn), notes
