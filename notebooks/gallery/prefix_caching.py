"""Of an 800-token system prompt with 12 new tokens only the 12 are computed, as long as what is shared comes first.

Alone on the server, such a request waits {ttft_hit_ms:.1f} ms for its first token, and {ttft_variable_first_ms:.1f} ms
where the 12 tokens come first: a block is found by all tokens before it, so that nothing after a difference is ever
found. With 64 users at work a million tokens cost ${dollars_hit:.4f} in place of ${dollars_off:.4f} at $2.50 per GPU
hour; of the prompts alone, GPU time for GPU time, a prompt that hits is worth {price_of_hit:.0%} of one that does not.

The next turn of a chat finds the last prompt and its answer: {chat_hit_rate:.0%} of the tokens of later turns. Blocks
that nobody uses stay until others need the room, and those that were used longest ago go first. Of 64 system prompts a
cache that holds half finds {hit_rate_of_half_the_blocks:.0%}. A prompt that one request in ten uses is found
{hit_rate_one_in_ten:.0%} of the time where the cache holds ten of the documents that come between, and one that every
other request uses {hit_rate_one_in_two:.0%} of the time.
"""

from typing import TYPE_CHECKING, Any

from notebooks.gallery._runs import run, summary
from simserve.report.plots.style import BLUE, FAINT, GREY, RED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OFF = "engine.enable_prefix_caching=false"
VARIABLE_FIRST = "workload.shared_prefix=null"
ALONE = ("workload.arrivals={process: closed_loop, users: 1}", "workload.num_requests=20")
BUSY = ("workload.arrivals={process: closed_loop, users: 64}", "workload.num_requests=1000")
PROMPTS_ALONE = ("workload.arrivals={process: all_at_once}", "workload.output=1", "workload.num_requests=1000")
CHATS = (
    VARIABLE_FIRST,
    "workload.sessions={turns: 8, think_time: 5 s, first_input: 812}",
    "workload.input=12",
    "workload.output={distribution: uniform, min: 50, max: 250}",  # chats in step with each other would queue
    "workload.num_requests=800",
    "workload.arrivals.rate=1",
)
TURNS = range(1, 9)
GROUPS = 64
BLOCKS_OF_A_PROMPT = 800 // 16
BLOCKS = (400, 800, 1600, 2400, 3200, 4000, 4800)


def ttft(*overrides: str) -> float:
    """Median TTFT, in milliseconds, of one user after the other."""
    time: float = summary("prefix_caching", *ALONE, *overrides)["median_ttft_ms"]
    return time


def dollars(load: tuple[str, ...], *overrides: str) -> float:
    """Price of a million tokens."""
    price: float = summary("prefix_caching", *load, *overrides)["cost_per_million_tokens"]
    return price


def hit_rate_of(blocks: int) -> float:
    """Hit tokens over prompt tokens of 64 system prompts, each as likely as any other, in a cache of so many blocks."""
    many = (f"workload.shared_prefix.groups={GROUPS}", "workload.num_requests=2000", "workload.arrivals.rate=5")
    rate: float = summary("prefix_caching", *many, f"engine.num_gpu_blocks={blocks}")["prefix_cache_hit_rate"]
    return rate


def hit_rate_among_documents(share: float) -> float:
    """Hit tokens over prompt tokens of one system prompt that so many requests use, among documents of 200 blocks each,
    in a cache that holds ten of them.
    """
    hot = f"{{name: hot, share: {share}, shared_prefix: {{groups: 1, length: 800}}}}"
    cold = f"{{name: documents, share: {1 - share}, input: 3200}}"
    requests = run(
        "prefix_caching",
        VARIABLE_FIRST,
        f"workload.classes=[{hot}, {cold}]",
        "engine.num_gpu_blocks=2000",
        "workload.num_requests=2000",
        "workload.arrivals.rate=4",
    ).requests
    is_hot = requests["class_index"] == 0
    return float(requests["cached_len"][is_hot].sum() / requests["input_len"][is_hot].sum())


def turns(*overrides: str) -> tuple[list[float], float]:
    """Mean TTFT of each turn of a chat in milliseconds; hit tokens over prompt tokens of all turns but the first."""
    requests = run("prefix_caching", *CHATS, *overrides).requests
    waits = 1e3 * (requests["first_token"] - requests["arrival"])
    later = requests["turn"] > 0
    hits = float(requests["cached_len"][later].sum() / requests["input_len"][later].sum())
    return [float(waits[requests["turn"] == turn - 1].mean()) for turn in TURNS], hits


def measure() -> dict[str, Any]:
    """TTFT and price with and without hits, hits of chats, and of caches that are too small."""
    rates = {blocks: hit_rate_of(blocks) for blocks in BLOCKS}
    with_cache, chat_hit_rate = turns()
    without, _ = turns(OFF)
    return {
        "ttft_hit_ms": ttft(),
        "ttft_variable_first_ms": ttft(VARIABLE_FIRST),
        "ttft_off_ms": ttft(OFF),
        "hit_rate": summary("prefix_caching")["prefix_cache_hit_rate"],
        "hit_rate_variable_first": summary("prefix_caching", VARIABLE_FIRST)["prefix_cache_hit_rate"],
        "dollars_hit": dollars(BUSY),
        "dollars_off": dollars(BUSY, OFF),
        "price_of_hit": dollars(PROMPTS_ALONE) / dollars(PROMPTS_ALONE, OFF),
        "chat_hit_rate": chat_hit_rate,
        "chat_ttft_of_turn_8_ms": with_cache[-1],
        "chat_ttft_of_turn_8_off_ms": without[-1],
        "hit_rate_of_half_the_blocks": rates[GROUPS * BLOCKS_OF_A_PROMPT // 2],
        "hit_rate_of_all_and_half_the_blocks": rates[GROUPS * BLOCKS_OF_A_PROMPT * 3 // 2],
        "hit_rate_one_in_two": hit_rate_among_documents(0.5),
        "hit_rate_one_in_ten": hit_rate_among_documents(0.1),
        "hit_rates": list(rates.values()),
        "ttft_by_turn_ms": with_cache,
        "ttft_by_turn_off_ms": without,
    }


def draw(measured: dict[str, Any], figure: "Figure") -> None:
    """TTFT of three orders, hits over the size of the cache, TTFT over the turns of a chat."""
    bars, size, chats = figure.subplots(1, 3)
    names = ("shared\nfirst", "variable\nfirst", "cache\noff")
    times = [measured["ttft_hit_ms"], measured["ttft_variable_first_ms"], measured["ttft_off_ms"]]
    bars.bar(names, times, color=[BLUE, RED, GREY], width=0.6)
    bars.set(title="800 shared + 12", ylabel="TTFT alone, ms")
    bars.tick_params(axis="x", length=0, labelsize=8)
    bars.grid(visible=False, axis="x")
    size.plot(BLOCKS, [100 * rate for rate in measured["hit_rates"]], color=BLUE, marker="o", markersize=3)
    size.axvline(GROUPS * BLOCKS_OF_A_PROMPT, color=FAINT, linewidth=1, linestyle=":")
    size.text(GROUPS * BLOCKS_OF_A_PROMPT * 0.97, 3, "all fit", size=7, color=FAINT, ha="right")
    size.set(title="64 system prompts", xlabel="blocks of the cache", ylabel="hits, % of prompt tokens", ylim=(0, 100))
    size.set_xlim(0, None)
    chats.plot(TURNS, measured["ttft_by_turn_off_ms"], color=GREY, marker="o", markersize=3, label="cache off")
    chats.plot(TURNS, measured["ttft_by_turn_ms"], color=BLUE, marker="o", markersize=3, label="cache on")
    chats.set(title="Chats", xlabel="turn", ylabel="TTFT, ms", ylim=(0, None))
    chats.legend()
