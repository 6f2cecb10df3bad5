"""`simserve trace`: recorded traffic rewritten in simserve's own format."""

from pathlib import Path
from typing import Annotated

import typer

from simserve.cli.arguments import ChatTemplateTokens, Force
from simserve.cli.console import guarded, say
from simserve.spec.names import TraceFormat

trace = typer.Typer(no_args_is_help=True, help="Convert recorded traffic to simserve's own format.")


@trace.command()
@guarded
def convert(
    source: Annotated[Path, typer.Argument(show_default=False, help="The recorded trace.")],
    target: Annotated[Path, typer.Argument(show_default=False, help="NAME.csv or NAME.jsonl to write.")],
    form: Annotated[
        TraceFormat,
        typer.Option("--format", show_default=False, help="What the source is."),
    ],
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Rows to take.")] = None,
    offset: Annotated[int, typer.Option(min=0, metavar="N", help="Rows to leave out first.")] = 0,
    skip_bad_rows: Annotated[bool, typer.Option("--skip-bad-rows", help="Leave out rows that are broken.")] = False,
    chat_template_tokens: ChatTemplateTokens = None,
    force: Force = False,
) -> None:
    """Rewrite a trace as arrival (s), input_len and output_len (tokens).

    input_len is what the server computes. Where only the client counted (vllm_bench), its count is written as
    client_input_len, and input_len beside it once --chat-template-tokens says what the server adds.

    Formats: azure (Azure LLM inference traces), vllm_bench (result of vllm bench serve --save-detailed), csv and jsonl
    (simserve's own).

    Example: simserve trace convert bench.json mine.csv --format vllm_bench
    """
    from simserve.workload.trace_writer import convert_trace

    taken = convert_trace(
        source,
        target,
        form,
        limit=limit,
        offset=offset,
        skip_bad_rows=skip_bad_rows,
        force=force,
        chat_template_tokens=chat_template_tokens,
    )
    say(f"wrote {len(taken)} requests to {target}, input tokens counted by the {taken.input_counted_by}")
