"""`simserve validate` and `simserve fit-server`: the simulator against measured servers."""

from pathlib import Path
from typing import Annotated

import typer

from simserve.cli.arguments import ChatTemplateTokens, Force, Json, Overrides, ScenarioName, Workers, load
from simserve.cli.console import fail, guarded, print_json, print_table, progress_bar, results_console, say

validate = typer.Typer(no_args_is_help=True, help="Compare predictions with measured servers.")


@validate.command()
@guarded
def table(
    runs: Annotated[Path, typer.Argument(metavar="TABLE.csv", show_default=False, help="Measured runs, one a row.")],
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write every error to this file.")] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw predicted against measured: FILE.svg and .png.")
    ] = None,
    tier: Annotated[str | None, typer.Option("--tier", metavar="A|B|C", help="Take rows of this tier only.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="Take the first N rows.")] = None,
    left_out: Annotated[
        bool,
        typer.Option("--left-out", help="Simulate again with host times from other GPUs, models and TP than a row's."),
    ] = False,
    errors: Annotated[
        Path | None,
        typer.Option("--errors", metavar="FILE", help="Write the median errors by GPU and model that runs then state."),
    ] = None,
    workers: Workers = None,
) -> None:
    """Simulate every run of a table and print predicted against measured.

    What a row does not state takes the default of its engine's version, and is listed.

    Example: simserve validate table runs.csv --tier A --json errors.json --plot errors
    """
    from simserve.planning.executor import default_workers, open_executor
    from simserve.report.evidence import FILE
    from simserve.validation.error_file import write_errors
    from simserve.validation.printing import print_left_out, print_report, save_pictures
    from simserve.validation.table import chosen_rows, left_out_table, validate_table, write_json

    for path in (json, plot, errors):
        if path is not None and not path.absolute().parent.is_dir():
            fail(f"{path}: there is no folder {path.absolute().parent}")
    rows = chosen_rows(runs, tier, limit)
    with (
        progress_bar(f"{len(rows)} runs") as progress,
        open_executor(workers or default_workers(len(rows))) as executor,
    ):
        report = validate_table(rows, executor, progress)
        again = left_out_table(report.predictions, executor, progress) if left_out else None
    print_report(report, results_console())
    if again is not None:
        print_left_out(report, again, results_console())
    if json is not None:
        write_json(report, json)
        say(f"wrote {json}")
    if errors is not None:
        lines = write_errors((again or report).errors, errors)
        say(f"wrote {errors}: {lines} medians; as hardware_profiles/{FILE} every run states them")
    if plot is not None:
        stem = plot.with_suffix("") if plot.suffix in {".svg", ".png"} else plot
        for path in save_pictures(report, stem):
            say(f"wrote {path}")


@validate.command()
@guarded
def run(
    scenario: ScenarioName,
    against: Annotated[
        Path,
        typer.Option(
            "--against", metavar="BENCH", show_default=False, help="Detailed .json of vllm bench serve, .jsonl or .csv."
        ),
    ],
    overrides: Overrides = None,
    chat_template_tokens: ChatTemplateTokens = None,
    json: Json = False,
) -> None:
    """Replay the arrivals and lengths of a recorded benchmark and print the errors.

    BENCH: the .json that `vllm bench serve --save-result --save-detailed` writes, or a .csv with arrival_s, prompt_len,
    output_len, ttft_s and e2e_s (client's clock), or a .jsonl with arrival_time, queued_ts, first_token_ts,
    last_token_ts, input_toks and output_toks (engine's clock). The scenario's own workload is not used. Of the prompts
    the .json has the client's count, which --chat-template-tokens turns into the server's; prompt_len and input_toks
    are the server's, and client_prompt_len or client_input_toks may stand beside them.

    Example: simserve validate run mine.yaml --against bench.json
    """
    from simserve.report.counted import counted_by
    from simserve.validation.replay_benchmark import read_recording, replay_report

    recording = read_recording(against, chat_template_tokens)
    report = replay_report(load(scenario, overrides), recording)
    if json:
        print_json(report)
        return
    rows = [
        [metric, *(_shown(metric, each[key]) for key in ("measured", "predicted")), f"{100 * each['error']:+.1f} %"]
        for metric, each in report["metrics"].items()
    ]
    note = f"{report['requests']} requests of {against.name}, by the {report['clock']}'s clock"
    note += f"; input tokens counted by: {counted_by(report)}"
    print_table("Replay of a benchmark", ["metric", "measured", "predicted", "error"], rows, note)


def _shown(metric: str, value: float) -> str:
    return f"{value:.5g} tok/s" if metric.endswith("throughput") else f"{value * 1e3:.5g} ms"


def fit_server(
    scenario: ScenarioName,
    against: Annotated[
        list[Path],
        typer.Option(
            "--against", metavar="BENCH", show_default=False, help="A benchmark of that server; repeat for more."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="DIR", show_default=False, help="Folder for the fitted profile.yaml."),
    ],
    overrides: Overrides = None,
    chat_template_tokens: ChatTemplateTokens = None,
    force: Force = False,
) -> None:
    """Fit a hardware profile to benchmarks of your own server: bandwidth, FLOP/s, and the host's times.

    The scenario describes the server that was measured; its GPU is where the fit starts, and what the benchmarks do
    not tell stays near it. With two benchmarks or more each is also predicted from the others.

    Example: simserve fit-server mine.yaml --against bench1.json --against bench2.json -o hardware_profiles/my-server
    """
    from simserve.validation.fit import fit_server as fit
    from simserve.validation.fit import write_profile
    from simserve.validation.replay_benchmark import read_recording

    if (output / "profile.yaml").exists() and not force:
        raise FileExistsError(f"{output / 'profile.yaml'} exists")
    recordings = [read_recording(path, chat_template_tokens) for path in against]
    with progress_bar("fitting") as progress:
        fitted = fit(load(scenario, overrides), recordings, progress)
    factors = [[name, f"{factor:.3g}"] for name, factor in fitted.factors.items()]
    print_table("Constants, as multiples of the base profile's", ["constant", "factor"], factors)
    for title, errors in (("Fitted", fitted.fitted), ("Predicted from the other benchmarks", fitted.left_out)):
        for path, each in errors.items():
            rows = [
                [e.metric, _shown(e.metric, e.measured), _shown(e.metric, e.predicted), f"{100 * e.error:+.1f} %"]
                for e in each
            ]
            print_table(f"{title}: {Path(path).name}", ["metric", "measured", "predicted", "error"], rows)
    say(f"wrote {write_profile(fitted.gpu, output, force=force)}; use it as cluster.gpu={output}/profile.yaml")
