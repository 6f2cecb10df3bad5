"""`simserve trace`: recorded traffic looked at, rewritten in our own format, and turned into a synthetic load."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simserve.cli.arguments import ChatTemplateTokens, Force, Json
from simserve.cli.console import fail, guarded, print_json, print_table, say
from simserve.spec.names import TraceFormat
from simserve.spec.workload import TimeUnit, Turns

if TYPE_CHECKING:
    from simserve.workload.traces import Trace

trace = typer.Typer(no_args_is_help=True, help="Look at recorded traffic, convert it, or fit a synthetic load to it.")

Recorded = Annotated[Path, typer.Argument(show_default=False, metavar="FILE", help="The recorded trace.")]
Format = Annotated[
    TraceFormat | None,
    typer.Option("--format", show_default=False, help="What the file is; recognised where it is left out."),
]
Limit = Annotated[int | None, typer.Option(min=1, metavar="N", help="Rows to take.")]
Offset = Annotated[int, typer.Option(min=0, metavar="N", help="Rows to leave out first.")]
SkipBadRows = Annotated[bool, typer.Option("--skip-bad-rows", help="Leave out rows that are broken.")]
Unit = Annotated[TimeUnit | None, typer.Option("--time-unit", show_default=False, help="Of times in JSON lines.")]
BlockSize = Annotated[int | None, typer.Option(min=1, metavar="N", help="Tokens that one of the hash_ids stands for.")]
Tokenizer = Annotated[str | None, typer.Option(metavar="FILE", help="tokenizer.json by which texts are counted.")]
Characters = Annotated[
    float | None,
    typer.Option("--characters-per-token", min=1e-3, metavar="R", help="Ratio by which texts are counted."),
]
TurnsTaken = Annotated[Turns, typer.Option("--turns", help="Of conversations: the first exchange, or all of them.")]
ResultTaken = Annotated[
    int | None, typer.Option("--result", min=0, metavar="N", help="Which of several results in the file, from 0.")
]


@trace.command()
@guarded
def inspect(
    file: Recorded,
    form: Format = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", show_default=False, help="Picture to write, as .svg and .png.")
    ] = None,
    limit: Limit = None,
    offset: Offset = 0,
    time_unit: Unit = None,
    block_size: BlockSize = None,
    tokenizer: Tokenizer = None,
    characters_per_token: Characters = None,
    turns: TurnsTaken = "first",
    result: ResultTaken = None,
    json: Json = False,
) -> None:
    """Say what a file is, what would be taken from it, and what looks odd.

    Rows that are no requests are counted, and the first is named: a run refuses them unless it is told to leave them
    out. Formats are recognised by what is in the file; gzip and zstandard are unpacked.

    Example: simserve trace inspect mooncake.jsonl
    """
    from simserve.workload.trace_facts import arrival_times_of, rate_over_time, trace_facts
    from simserve.workload.traces import read_trace

    found = read_trace(
        file,
        form,
        limit=limit,
        offset=offset,
        skip_bad_rows=True,
        needs_arrival=None,
        options=_options(time_unit, block_size, tokenizer, characters_per_token, turns, result),
    )
    facts = trace_facts(found)
    if out is not None:
        from simserve.report.plots import save_figure, traffic_plot

        times = arrival_times_of(found)
        rate = rate_over_time(times) if len(times) else None
        drawn = traffic_plot(times.tolist(), rate, found.input_len, found.output_len, title=file.name)
        out.parent.mkdir(parents=True, exist_ok=True)
        svg, png = save_figure(drawn, out.with_suffix("") if out.suffix in {".svg", ".png"} else out)
        say(f"wrote {svg} and {png}")
    if json:
        print_json(facts)
        return
    print_table(f"{file}", ("trace", "found"), list(_lines(facts)))
    for note in facts["notes"]:
        typer.echo(f"- {note}")


def _lines(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What a person wants to know of a trace."""
    yield "format", f"{facts['format']}{' (recognised)' if facts['format_recognised'] else ''}"
    yield "requests", f"{facts['requests']:,}"
    yield "rows", f"{facts['rows']:,}"
    yield "left out", f"{facts['left_out']:,}"
    yield "span (s)", _number(facts["span_s"])
    yield "rate (requests/s)", f"{_number(facts['mean_rate'])}, peak {_number(facts['peak_rate'])}"
    yield "burstiness (1 = Poisson)", f"{_number(facts['burstiness'])}, cv of gaps {_number(facts['gap_cv'])}"
    for kind in ("input", "output"):
        lengths = facts[f"{kind}_lengths"]
        shown = ", ".join(f"{name} {lengths[name]:,.0f}" for name in ("mean", "min", "p50", "p90", "p99", "max"))
        yield f"{kind} tokens", f"{facts[f'{kind}_tokens']:,}: {shown}"
    yield "input counted by", facts["input_tokens_counted_by"]
    yield "correlation of input and output", _number(facts["length_correlation"])
    yield "sessions", f"{facts['sessions']:,}, turns {_number(facts['turns_per_session'])}"
    hits = facts["ideal_hit_rate"]
    yield "prompt tokens said before (%)", "not known" if hits is None else f"{100 * hits:.2f}"
    if facts["classes"]:
        yield "classes", ", ".join(facts["classes"])[:200]


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:,.4g}"


@trace.command()
@guarded
def convert(
    source: Recorded,
    target: Annotated[Path, typer.Argument(show_default=False, help="NAME.csv, NAME.jsonl or NAME.parquet to write.")],
    form: Format = None,
    limit: Limit = None,
    offset: Offset = 0,
    speedup: Annotated[float, typer.Option(min=1e-9, metavar="X", help="Divide the gaps by this.")] = 1.0,
    rate: Annotated[
        float | None, typer.Option(min=1e-9, metavar="R", help="Scale the gaps to this mean rate in requests/s.")
    ] = None,
    skip_bad_rows: SkipBadRows = False,
    chat_template_tokens: ChatTemplateTokens = None,
    time_unit: Unit = None,
    block_size: BlockSize = None,
    tokenizer: Tokenizer = None,
    characters_per_token: Characters = None,
    turns: TurnsTaken = "first",
    result: ResultTaken = None,
    force: Force = False,
) -> None:
    """Rewrite a trace as arrival (s), input_len and output_len (tokens).

    input_len is what the server computes. Where only the client counted (results of benchmarks), its count is written
    as client_input_len, and input_len beside it once --chat-template-tokens says what the server adds. How prompts
    begin (block hashes) needs NAME.jsonl.

    Example: simserve trace convert bench.json mine.csv
    """
    from simserve.workload.trace_writer import convert_trace

    if rate is not None and speedup != 1:
        fail("--rate and --speedup both scale the gaps: state one of them")
    taken = convert_trace(
        source,
        target,
        form,
        limit=limit,
        offset=offset,
        speedup=speedup,
        rate=rate,
        skip_bad_rows=skip_bad_rows,
        force=force,
        chat_template_tokens=chat_template_tokens,
        options=_options(time_unit, block_size, tokenizer, characters_per_token, turns, result),
    )
    say(f"wrote {len(taken)} requests to {target}, input tokens counted by the {taken.input_counted_by}")
    _say_notes(taken)


@trace.command()
@guarded
def fit(
    file: Recorded,
    out: Annotated[Path, typer.Option("-o", "--out", show_default=False, help="Scenario to write, NAME.yaml.")],
    form: Format = None,
    limit: Limit = None,
    offset: Offset = 0,
    skip_bad_rows: SkipBadRows = False,
    time_unit: Unit = None,
    block_size: BlockSize = None,
    tokenizer: Tokenizer = None,
    characters_per_token: Characters = None,
    turns: TurnsTaken = "first",
    result: ResultTaken = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Write a scenario whose synthetic workload has the statistics of a trace, and say how near it comes.

    The workload is the trace's; model and cluster in the file are to be replaced by yours.

    Example: simserve trace fit mine.csv -o mine.yaml
    """
    from simserve.planning.trace_fit import fit_scenario
    from simserve.workload.traces import read_trace

    found = read_trace(
        file,
        form,
        limit=limit,
        offset=offset,
        skip_bad_rows=skip_bad_rows,
        needs_arrival=None,
        options=_options(time_unit, block_size, tokenizer, characters_per_token, turns, result),
    )
    near, notes = fit_scenario(found, file.name, out, force=force)
    say(f"wrote {out}")
    _say_notes(found)
    if json:
        print_json({"notes": notes, "statistics": [one._asdict() for one in near]})
        return
    rows = [
        (one.statistic, _number(one.trace), _number(one.fitted), f"{one.distance:.3f} ({one.measure})") for one in near
    ]
    print_table(f"{out}: how near one draw of it is to {file}", ("statistic", "trace", "fit", "distance"), rows)
    for note in notes:
        typer.echo(f"- {note}")


def _options(
    time_unit: TimeUnit | None,
    block_size: int | None,
    tokenizer: str | None,
    characters_per_token: float | None,
    turns: Turns,
    result: int | None,
) -> Any:
    from simserve.workload.formats.table import Options

    return Options(
        time_unit=time_unit,
        block_size=block_size,
        tokenizer=tokenizer,
        characters_per_token=characters_per_token,
        turns=turns,
        result=result,
    )


def _say_notes(taken: "Trace") -> None:
    if taken.report is not None:
        for note in taken.report.sentences():
            say(f"- {note}")
