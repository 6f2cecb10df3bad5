"""The answer's length decides how many steps a request takes, the prompt's length how long the first one lasts.

A thousand tokens of answer are {steps_of_1000_tokens:,.0f} steps, whether the prompt has 10 tokens
({seconds_of_10_in_1000_out:.2f} s in all) or 4,000 ({seconds_of_4000_in_1000_out:.2f} s). Prefill multiplies
({prefill_bound_by_compute:.0%} of its time is bound by FLOPs), decode reads weights ({decode_bound_by_memory:.0%}
bound by bandwidth).

Attention makes every token of a long prompt look at all before it, so that the first token takes more than in
proportion: {ttft_of_64000_tokens_ms:,.0f} ms after 64,000 tokens, and {ttft_ratio_of_128000_to_64000:.1f} times that
after twice as many. Who halves a long prompt gains more than half; under 500 tokens there is little to gain, as the
weights are read anyway.
"""

from typing import TYPE_CHECKING, Any

from notebooks.gallery._runs import kernels, share_bound_by, summary
from simserve.report.plots.style import BLUE, GREY, RED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROMPTS = (125, 250, 500, 1000, 2000, 4000, 8000, 16000, 32000, 64000, 128000)
ANSWERS = (1, 250, 500, 1000)
GROUPS = {
    "matrix products": ("linear", "lm_head"),
    "attention": ("attention_prefill", "attention_decode"),
    "all else": ("elementwise", "sampler", "host"),
}


def of(prompt: int, answer: int) -> dict[str, Any]:
    """Numbers of one request on an idle server."""
    return summary("autoregression", f"workload.input={prompt}", f"workload.output={answer}")


def measure() -> dict[str, Any]:
    """Time of a request over the length of its answer, and of its first token over that of its prompt."""
    ttft = {prompt: of(prompt, 1)["mean_ttft_ms"] for prompt in PROMPTS}
    seconds = {prompt: [of(prompt, answer)["mean_e2el_ms"] / 1e3 for answer in ANSWERS] for prompt in (10, 4000)}
    parts = {
        label: [sum(of(prompt, 1)["step_time_breakdown"].get(group, 0.0) for group in groups) for prompt in PROMPTS]
        for label, groups in GROUPS.items()
    }
    return {
        "steps_of_1000_tokens": of(4000, 1000)["total_steps"],
        "seconds_of_10_in_1000_out": seconds[10][-1],
        "seconds_of_4000_in_1000_out": seconds[4000][-1],
        "prefill_bound_by_compute": share_bound_by("compute", kernels("autoregression", chunks=[(4000, 0)])),
        "decode_bound_by_memory": share_bound_by("memory", kernels("autoregression", decodes=1, context=4000)),
        "ttft_of_4000_tokens_ms": ttft[4000],
        "ttft_of_64000_tokens_ms": ttft[64000],
        "ttft_ratio_of_8000_to_4000": ttft[8000] / ttft[4000],
        "ttft_ratio_of_128000_to_64000": ttft[128000] / ttft[64000],
        "ttft_ratio_of_500_to_125": ttft[500] / ttft[125],
        "seconds_by_answer_after_10": seconds[10],
        "seconds_by_answer_after_4000": seconds[4000],
        **parts,
    }


def draw(measured: dict[str, Any], figure: "Figure") -> None:
    """Time over the length of the answer; time of a prompt's token over the length of the prompt."""
    left, right = figure.subplots(1, 2)
    for prompt, colour in ((10, BLUE), (4000, RED)):
        times = measured[f"seconds_by_answer_after_{prompt}"]
        left.plot(ANSWERS, times, color=colour, marker="o", markersize=3, label=f"prompt of {prompt:,} tokens")
    left.set(title="Time of a request", xlabel="tokens of the answer", ylabel="seconds", xlim=(0, None), ylim=(0, None))
    left.legend()
    layers = [[1e6 * s / n for s, n in zip(measured[part], PROMPTS, strict=True)] for part in GROUPS]
    right.stackplot(PROMPTS, layers, labels=list(GROUPS), colors=[BLUE, RED, GREY])
    right.set(title="First token, per token of the prompt", xlabel="tokens of the prompt", ylabel="µs a token")
    right.set_xscale("log")
    right.set_xlim(PROMPTS[0], PROMPTS[-1])
    right.set_xticks(PROMPTS[::2], [f"{prompt:,}" for prompt in PROMPTS[::2]])
    right.minorticks_off()
    right.legend(loc="upper center")
