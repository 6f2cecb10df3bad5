"""`simserve profiles fit`: measured kernels to the tables of a profile, with the errors where they saw nothing."""

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from calibration import distil
from calibration.held_out import roughness
from calibration.kernel_source import read_kernels
from simserve.cli import app
from simserve.cost.grid import read_table
from simserve.spec import resources
from simserve.spec.errors import ScenarioError

SIZES = [2**i for i in range(14)]
Cells = dict[str, object]


def gemms() -> Iterator[Cells]:
    """Weights at 1 TB/s or FLOPs at 100 TFLOP/s, and 5 us."""
    for n in (1024, 2048, 4096, 8192):
        for k in (1024, 2048, 4096):
            for m in SIZES:
                time = 5 + max(2e-6 * n * k, 2e-8 * m * n * k)
                yield {"dtype": "bfloat16", "m": m, "n": n, "k": k, "time_us": time}


def decodes() -> Iterator[Cells]:
    for heads_q, heads_kv in ((4, 1), (8, 1), (16, 4), (32, 8)):
        for batch in (1, 2, 4, 8, 16, 32):
            for length in (16, 64, 128, *(2**i for i in range(8, 15))):
                time = 8 + 5e-4 * batch * heads_kv * length
                yield heads(heads_q, heads_kv, batch) | {"kv_len": length, "time_us": time}


def prefills() -> Iterator[Cells]:
    for heads_q, heads_kv in ((4, 1), (8, 1), (16, 4), (32, 8)):
        for batch in (1, 2, 4, 8, 16, 32, 64, 128, 256):
            for length in (1, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192):
                pairs, tokens = batch * heads_q * length**2 / 2, batch * length
                time = 8 + 5e-6 * pairs + 2e-4 * tokens * heads_q
                yield heads(heads_q, heads_kv, batch) | {"seq_len": length, "time_us": time}


def heads(queries: int, keys: int, batch: int) -> Cells:
    return {"kv_dtype": "bfloat16", "batch": batch, "heads_q": queries, "heads_kv": keys, "head_dim": 128}


def all_reduces() -> Iterator[Cells]:
    for ranks in (2, 4):
        for message in [2**i for i in range(8, 31)]:
            for kernel, start in (("vllm_graph", 5.0), ("nccl", 20.0)):
                time = start * ranks + message / 1e5
                disturbed = (ranks, message, kernel) == (4, 4096, "vllm_graph")
                cells = {"op": "all_reduce", "kernel": kernel, "num_gpus": ranks, "message_bytes": message}
                yield cells | {"time_us": 10 * time if disturbed else time}


FILES = {
    "gemm.csv": gemms,
    "generation_attention.csv": decodes,
    "context_attention.csv": prefills,
    "comm.csv": all_reduces,
}


def write(path: Path, rows: list[Cells]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Kernels of a card called Made-Up, and one GEMM of another."""
    folder = tmp_path / "measured"
    folder.mkdir()
    for name, rows in FILES.items():
        own: list[Cells] = [{"gpu": "Made-Up"} | cells for cells in rows()]
        write(folder / name, own)
    write(folder / "gemm.csv", [*({"gpu": "Made-Up"} | row for row in gemms()), {"gpu": "Other"} | next(gemms())])
    return folder


@pytest.fixture
def output(tmp_path: Path) -> Path:
    folder = tmp_path / "made-up"
    folder.mkdir()
    (folder / "profile.yaml").write_text("base: h100-sxm-80gb\nname: made-up\ntables: made-up\n")
    return folder


def fit(*words: object) -> Result:
    return CliRunner().invoke(app, ["profiles", "fit", *map(str, words)])


def test_tables_are_written_with_their_errors(source: Path, output: Path) -> None:
    result = fit(source, "-o", output)
    assert result.exit_code == 0, result.output
    tables = {"collectives.csv", "decode_attention.csv", "gemm.csv", "prefill_attention.csv"}
    assert {path.name for path in output.iterdir()} == {"profile.yaml", "held_out.yaml", *tables}
    assert "168 of 168" in result.stdout, "all GEMMs of this card, and none of the other's"
    gemm = read_table(output / "gemm.csv")
    assert gemm.rows["bf16", "1024", "2048"][0] == pytest.approx(1e-6 * (5 + 2e-6 * 1024 * 2048), rel=1e-3)
    errors = yaml.safe_load((output / "held_out.yaml").read_text())
    assert list(errors) == ["gemm", "decode_attention", "prefill_attention", "collectives"]
    assert errors["gemm"]["rows"] == errors["gemm"]["times"] == 168
    for kind, facts in errors.items():
        assert facts["points"] > 20
        assert 0 <= facts["median"] <= facts["p90"], kind
        assert facts["median"] < 0.05, f"{kind}: smooth times are found"


def test_the_same_source_gives_the_same_bytes(source: Path, output: Path) -> None:
    fit(source, "-o", output)
    first = {path.name: path.read_bytes() for path in output.iterdir()}
    assert fit(source, "-o", output, "--force").exit_code == 0
    assert {path.name: path.read_bytes() for path in output.iterdir()} == first


def test_a_disturbed_all_reduce_is_left_out(source: Path, output: Path) -> None:
    assert fit(source, "-o", output).exit_code == 0
    table = read_table(output / "collectives.csv")
    times = dict(zip(table.sizes, table.rows["all_reduce", "4"], strict=True))
    assert times[2048] == pytest.approx(20.02e-6, rel=1e-3)
    assert times[4096] != times[4096], "no time at all"


def test_a_dry_run_writes_nothing(source: Path, output: Path) -> None:
    result = fit(source, "-o", output, "--dry-run")
    assert result.exit_code == 0
    assert "prefill_attention" in result.stdout
    assert [path.name for path in output.iterdir()] == ["profile.yaml"]


def test_tables_are_not_replaced_unasked(source: Path, output: Path) -> None:
    (output / "gemm.csv").write_text("mine")
    result = fit(source, "-o", output)
    assert result.exit_code == 2
    assert "exists; --force replaces it" in result.stderr
    assert (output / "gemm.csv").read_text() == "mine"


def test_kernels_in_a_folder_below_are_found(source: Path, output: Path, tmp_path: Path) -> None:
    above = tmp_path / "above"
    above.mkdir()
    source.rename(above / "kernels")
    assert fit(above, "-o", output, "--dry-run").exit_code == 0


def test_attention_inside_a_model_is_one_more_table(source: Path, output: Path) -> None:
    """Its file may have a longer name; the catalogue knows the heads of the model."""
    rows: list[Cells] = []
    lengths = (0, 64, 256, 1024, 4096)
    for chunk in (0, 64, 256, 1024):
        for before in lengths if chunk else (0,):
            for decodes in (0, 1, 16, 64):
                for context in lengths[1:] if decodes else (0,):
                    if chunk or decodes:
                        time = 10 + chunk * (before + chunk) / 1e4 + 5e-3 * decodes * context
                        cells = {
                            "prefill_chunk": chunk,
                            "kv_prefill": before,
                            "n_decode": decodes,
                            "kv_decode": context,
                        }
                        rows.append({"gpu": "made-up", "model": "meta-llama/Llama-3.1-8B", **cells, "time_us": time})
    write(source / "somebodys_mixed_attention.csv", rows)
    result = fit(source, "-o", output)
    assert result.exit_code == 0, result.output
    table = read_table(output / "mixed_attention.csv").rows["bf16", "32", "8", "16", "1024", "256"]
    assert table[2] == pytest.approx(1e-6 * (10 + 256 * 512 / 1e4 + 5e-3 * 16 * 1024), rel=1e-3)
    errors = yaml.safe_load((output / "held_out.yaml").read_text())["mixed_attention"]
    assert errors["points"] == errors["times"] == errors["rows"] == len(rows)
    assert errors["median"] < 0.1


def test_a_source_may_call_the_card_otherwise(source: Path, output: Path) -> None:
    (mine := output.with_name("mine")).mkdir()
    (mine / "profile.yaml").write_text("base: h100-sxm-80gb\n")
    refused = fit(source, "-o", mine)
    assert refused.exit_code == 2
    assert "no kernel was measured on 'mine'; --gpu takes one of made-up, other" in refused.stderr
    assert fit(source, "-o", mine, "--gpu", "MADE-UP", "--dry-run").exit_code == 0


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("gemm.csv", "gpu,dtype,m,n,time_us\n", "gemm.csv: has no column k; expected gpu, dtype, m, n, k, time_us"),
        ("gemm.csv", "gpu,dtype,m,n,k,time_us\na,b,1,2,3\n", "gemm.csv, line 2: has not as many fields"),
        ("gemm.csv", "gpu,dtype,m,n,k,time_us\na,b,1,x,3,4\n", "line 2: n: expected a whole number above 0, got 'x'"),
        ("gemm.csv", "gpu,dtype,m,n,k,time_us\na,b,1,2,3,-4\n", "line 2: time_us: expected microseconds above 0"),
        ("gemm.csv", "gpu,dtype,m,n,k,time_us\na,b,1,2,3,nan\n", "line 2: time_us: expected microseconds above 0"),
        (
            "mixed_attention.csv",
            "gpu,model,prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\nmade-up,Llama-3.1-8B,-1,0,1,16,4\n",
            "line 2: prefill_chunk: expected a whole number or 0, got '-1'",
        ),
        (
            "mixed_attention.csv",
            "gpu,model,prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\nmade-up,Lama,0,0,1,16,4\n",
            "attention inside a model: model Lama is not in the catalogue",
        ),
        ("comm.csv", "gpu,op,kernel,num_gpus,message_bytes,time_us\nmade-up,x,y,2,8,1\n", "for the table collectives"),
    ],
)
def test_a_broken_source_is_refused_with_the_place(
    source: Path, output: Path, file: str, text: str, message: str
) -> None:
    (source / file).write_text(text)
    result = fit(source, "-o", output)
    assert result.exit_code == 2
    assert message in result.stderr
    assert [path.name for path in output.iterdir()] == ["profile.yaml"]


def test_an_unknown_layout_is_told_what_is_expected(tmp_path: Path, output: Path) -> None:
    (empty := tmp_path / "empty").mkdir()
    result = fit(empty, "-o", output)
    assert result.exit_code == 2
    assert "holds no measured kernels; expected one or more of gemm.csv" in result.stderr
    assert "gemm.csv: gpu, dtype, m, n, k, time_us" in result.stderr
    missing = fit(tmp_path / "nowhere", "-o", output)
    assert missing.exit_code == 2
    assert "nowhere: is not a folder" in missing.stderr


def test_tables_need_the_profile_of_their_card(source: Path, tmp_path: Path) -> None:
    result = fit(source, "-o", tmp_path / "new")
    assert result.exit_code == 2
    assert "has no profile.yaml" in result.stderr
    assert not (tmp_path / "new").exists()


def test_other_heads_of_the_same_work_stand_in() -> None:
    """8 KV heads over one prompt are 2 over four: what was measured at one shape is known at the other."""
    rows = [{name: str(cell) for name, cell in row.items()} for row in prefills()]
    wide = ("32", "8")
    without = [row for row in rows if (row["heads_q"], row["heads_kv"], row["batch"]) != (*wide, "1")]
    whole, cut = distil.prefill_attention(rows), distil.prefill_attention(without)
    key = ("bf16", *wide, "alone")
    assert cut[key][512] == pytest.approx(whole[key][512], rel=0.01)


@pytest.mark.parametrize(("experts", "top_k", "ranks"), [(8, 2, 1), (16, 1, 1), (128, 8, 8)])
def test_experts_that_no_token_chooses_take_no_time(experts: int, top_k: int, ranks: int) -> None:
    """A kernel of 20 us and 3 us an expert, measured with tokens that share the experts evenly: in the table it takes
    what tokens touch that choose on their own.
    """
    cells: Cells = {"dtype": "bfloat16", "hidden_size": 64, "inter_size": 32, "moe_tp_size": 1, "moe_ep_size": ranks}
    cells |= {"topk": top_k, "num_experts": experts}
    rows = [
        cells | {"num_tokens": tokens, "distribution": name, "time_us": 20 + 3 * min(experts, tokens * top_k) / ranks}
        for tokens in SIZES
        for name in ("balanced", "power_law_1.2")
    ]
    for row in rows:
        if row["distribution"] != "balanced":
            row["time_us"] = 1e6
    (row,) = distil.moe([{name: str(cell) for name, cell in row.items()} for row in rows]).values()
    left_out = {tokens: (1 - top_k / experts) ** tokens for tokens in SIZES}
    touched = {tokens: 20 + 3 * experts * (1 - share) / ranks for tokens, share in left_out.items()}
    assert row == pytest.approx(touched)


def test_roughness_is_what_a_smooth_curve_misses() -> None:
    smooth = {size: 3.0 * size**1.5 for size in SIZES}
    assert roughness([smooth]) < 1e-9
    jumping = {size: time * (1.1 if i % 2 else 1.0) for i, (size, time) in enumerate(smooth.items())}
    assert roughness([jumping]) > 0.1
    assert roughness([{1: 1.0, 2: 2.0}]) != roughness([{1: 1.0, 2: 2.0}]), "nan: too few points"


def test_rows_of_other_head_sizes_are_not_read(source: Path) -> None:
    rows: list[Cells] = [{"gpu": "Made-Up"} | row | {"head_dim": 64} for row in decodes()]
    write(source / "generation_attention.csv", rows)
    assert "decode_attention" not in read_kernels(source, "made-up")
    with pytest.raises(ScenarioError, match="no kernel was measured on 'nothing'"):
        read_kernels(source, "nothing")


def test_a_profile_is_printed_with_the_errors_of_its_tables() -> None:
    text = CliRunner().invoke(app, ["profiles", "l40s-48gb"]).stdout
    profile = yaml.safe_load(text)
    assert profile["tables"] == "l40s-48gb"
    assert "#   prefill_attention: {rows: 2108" in text
    shown = yaml.safe_load(CliRunner().invoke(app, ["profiles", "l40s-48gb", "--json"]).stdout)
    stated = yaml.safe_load((resources.folder("hardware_profiles") / "l40s-48gb" / "held_out.yaml").read_text())
    assert shown["held_out"] == stated
    assert "held_out" not in CliRunner().invoke(app, ["profiles", "rtx-4090-24gb", "--json"]).stdout


def test_every_table_errs_at_most_five_percent() -> None:
    """At points left out of it, in the median."""
    for path in resources.folder("hardware_profiles").glob("*/held_out.yaml"):
        for kind, facts in yaml.safe_load(path.read_text()).items():
            assert facts["median"] <= 0.05, f"{path.parent.name} {kind}"
            assert facts["roughness"] > 0
