"""`simserve profiles`: the GPUs that simserve knows, and the kernel tables beside them."""

import importlib
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from simserve.cli.arguments import Force, Json, Name
from simserve.cli.console import guarded, print_json, print_table, progress_bar, say

_HELD_OUT = "held_out.yaml"
"""How far the tables of a profile err, beside it."""


class _NameOrVerb(TyperGroup):
    """A group whose first word may be a name, which is shown, instead of a verb."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_verb = args and args[0] in {*self.commands, *ctx.help_option_names}
        return super().parse_args(ctx, args if is_verb else ["show", *args])


profiles = typer.Typer(
    cls=_NameOrVerb,
    help="List the GPUs that simserve knows, print one, or make the kernel tables of one.",
    subcommand_metavar="[NAME | fit SOURCE -o DIR]",
)


@profiles.command()
@guarded
def show(name: Name = None, json: Json = False) -> None:
    """List the GPUs that simserve knows; print one with the source of each number and the errors of its tables.

    Example: simserve profiles h100-sxm-80gb
    """
    from simserve.spec import resources
    from simserve.spec.gpu_names import profile_named
    from simserve.spec.gpus import find_gpu

    if name is None:
        _list(list(resources.names("hardware_profiles")), json)
        return
    name = profile_named(name)
    folder = resources.folder("hardware_profiles") / name
    text = (folder / "profile.yaml").read_text(encoding="utf-8")
    errors = (folder / _HELD_OUT).read_text(encoding="utf-8") if (folder / _HELD_OUT).exists() else ""
    if json:
        import yaml

        stated = yaml.safe_load(text)
        whole = {"base": stated["base"], **find_gpu(name).model_dump()} if "base" in stated else stated
        print_json(whole | ({"held_out": yaml.safe_load(errors)} if errors else {}))
        return
    typer.echo(text, nl=False)
    if base := next((line for line in text.splitlines() if line.startswith("base: ")), ""):
        typer.echo(f"# all else as in {base.removeprefix('base: ')}; --json prints every number")
    if errors:
        typer.echo(_as_comment(errors))


def _as_comment(text: str) -> str:
    """Lines that leave what they follow a profile."""
    return "\n".join(line if line.startswith("#") else f"#   {line}" for line in ["#", *text.splitlines()])


def _list(names: list[str], json: bool) -> None:
    from simserve.spec.gpus import find_gpu

    gpus = [find_gpu(name) for name in names]
    if json:
        print_json([gpu.model_dump() for gpu in gpus])
        return
    rows = [
        [
            name,
            f"{gpu.memory / 2**30:.1f} GiB",
            f"{gpu.hbm_bandwidth / 1e12:.2f} TB/s",
            f"{gpu.peak_flops['bf16'] / 1e12:,.0f} TFLOP/s",
            f"{gpu.interconnect.kind} {gpu.interconnect.bandwidth / 1e9:,.0f} GB/s",
            "calibrated" if gpu.calibrated else "kernels" if gpu.tables else "datasheet",
        ]
        for name, gpu in zip(names, gpus, strict=True)
    ]
    note = "simserve profiles NAME shows the source of each number; another GPU: cluster.gpu: {base: NAME, ...}"
    print_table("", ["GPU", "memory", "bandwidth", "bf16 dense", "link", "cost level"], rows, note)


@profiles.command()
@guarded
def fit(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", show_default=False, help="Folder of measured kernels, see above.")
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="DIR", show_default=False, help="Folder of the profile that gets the tables."
        ),
    ],
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", metavar="NAME", show_default="the name of DIR", help="What the source calls the card."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the errors, write nothing.")] = False,
    force: Force = False,
) -> None:
    """Make the kernel tables of a GPU from measured GEMMs, attention, experts and all-reduces.

    With tables, step times come from measured kernels (cost level `kernels`) instead of a data sheet's peaks. SOURCE is
    a folder of CSV files whose names end as below, with one measured kernel a row, of one GPU or several, times in
    microseconds, any further columns left alone:

    - gemm.csv: gpu, dtype, m, n, k, time_us

    - generation_attention.csv (decodes): gpu, kv_dtype, batch, kv_len, heads_q, heads_kv, time_us

    - context_attention.csv (prompts): gpu, kv_dtype, batch, seq_len, heads_q, heads_kv, time_us

    - mixed_attention.csv (timed inside a model in bf16 on one GPU; a chunk and decodes in one kernel, 0 for none): gpu,
    model, prefill_chunk, kv_prefill, n_decode, kv_decode, time_us

    - moe.csv: gpu, dtype, num_tokens, hidden_size, inter_size, topk, num_experts, moe_tp_size, moe_ep_size,
    distribution (balanced), time_us

    - comm.csv: gpu, op (all_reduce), kernel (vllm_graph, nccl), num_gpus, message_bytes, time_us

    DIR holds the profile.yaml of the card. Each table is tried before it is written: a tenth of its measurements is
    left out, predicted from the others and compared, ten times over, until each has been left out once.

    Example: simserve profiles fit measured/ -o hardware_profiles/h100-sxm-80gb --force
    """
    part: Any = importlib.import_module("calibration.fit_tables")
    if not dry_run:
        part.check_free(output, force)
    with progress_bar("fitting") as progress:
        fitted = part.fit_tables(source, output, gpu, progress)
    rows = [
        [
            each.kind,
            f"{each.times:,} of {each.rows:,}",
            f"{each.errors.points:,}",
            *(_percent(value) for value in (each.errors.median, each.errors.p90, each.errors.roughness)),
        ]
        for each in fitted
    ]
    note = "roughness: how far a measurement lies from the smooth curve through its neighbours, in the median"
    columns = ["table", "times kept of rows read", "points left out once", "median error", "p90", "roughness"]
    print_table(f"Kernel tables of {output.resolve().name}", columns, rows, note)
    if dry_run:
        return
    for path in part.write_tables(fitted, output):
        say(f"wrote {path}")
    say(f"profile.yaml uses them where it says `tables: {output.resolve().name}`")


def _percent(share: float) -> str:
    return "-" if share != share else f"{100 * share:.1f} %"  # noqa: PLR0124 (nan: too few neighbours)
