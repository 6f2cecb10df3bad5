"""State-space blocks of the keys that many families share, and the format that their states are kept in."""

from simserve.spec.dtypes import canonical_dtype
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.layers.sequence import StateDtype
from simserve.spec.layers.state_space import Mamba2
from simserve.spec.quantities import shown

_DTYPES: tuple[StateDtype, ...] = ("bf16", "fp16", "fp32")


def state_dtype(keys: Keys, name: str, default: StateDtype | None = None) -> StateDtype | None:
    """Format of the state by a key of the file; None is that of the activations.

    Raises:
        ScenarioError: a format that no state is kept in.
    """
    stated = keys.text(name, default="auto")
    if stated == "auto":
        return default
    found = next((dtype for dtype in _DTYPES if dtype == canonical_dtype(stated)), None)
    if found is None:
        raise keys.error(name, f"expected auto, float32, float16 or bfloat16, got {shown(stated)}")
    return found


def mamba2(keys: Keys, width: int, *, norm: bool = True) -> Mamba2:
    """Mamba-2 of the keys that Bamba's class and those after it have, with `width` channels; `norm`: its output has one
    with weights.

    Raises:
        ScenarioError: heads that do not make the channels, or that groups do not divide.
    """
    heads, groups = keys.count("mamba_n_heads", default=128), keys.count("mamba_n_groups", default=1)
    if width % heads:
        raise keys.error("mamba_n_heads", f"{heads} does not divide the {width} channels of the Mamba layers")
    if heads % groups:
        raise keys.error("mamba_n_groups", f"{groups} does not divide mamba_n_heads {heads}")
    dim = width // heads if _is_open(keys, "mamba_d_head") else keys.count("mamba_d_head")
    if heads * dim != width:
        raise keys.error("mamba_d_head", f"{heads} heads of {dim} do not make the {width} channels of the Mamba layers")
    return Mamba2(
        num_heads=heads,
        head_dim=dim,
        num_groups=groups,
        state_size=keys.count("mamba_d_state", default=256),
        conv_kernel=keys.count("mamba_d_conv", default=4),
        conv_bias=keys.flag("mamba_conv_bias", default=True),
        bias=keys.flag("mamba_proj_bias", default=False),
        norm=norm,
    )


def time_step_rank(keys: Keys, name: str, hidden: int) -> int:
    """Rank of the projection to the time step; "auto" or absent is a sixteenth of the hidden size."""
    if _is_open(keys, name):
        return -(-hidden // _RANK)
    return keys.count(name)


def _is_open(keys: Keys, name: str) -> bool:
    """Whether a key leaves its value to the class: "auto" or absent."""
    value = keys.value(name)
    return value is None or (isinstance(value, str) and value == "auto")


def expanded(keys: Keys, hidden: int, name: str = "expand") -> int:
    """Channels of a state-space layer: a multiple of the hidden size.

    Raises:
        ScenarioError: a multiple that makes no whole number of channels.
    """
    channels = keys.factor(name, default=2.0) * hidden
    if not 1 <= channels < _MOST or channels != int(channels):
        raise keys.error(name, f"expected a multiple of hidden_size {hidden} that is a whole number, got {channels:g}")
    return int(channels)


def positions(keys: Keys) -> tuple[int, tuple[str, ...]]:
    """Positions of a model that has no limit of its own, and what to say of that: as many as vLLM takes where the file
    states none (vLLM 0.33, config/model.py, _get_and_verify_max_len).
    """
    found = keys.whole("max_position_embeddings", "model_max_length", default=0, null=0)
    if found:
        return found, ()
    return _POSITIONS, (f"the file states no longest sequence: {_POSITIONS} tokens, as vLLM takes it then",)


_RANK = 16
_MOST = 2**40
_POSITIONS = 2048

STATE_SPACE = (
    *("mamba_chunk_size", "chunk_size", "mamba_expand", "expand", "use_mamba_kernels", "use_mambapy", "hidden_act"),
    *(
        "use_associative_scan",
        "time_step_limit",
        "time_step_min",
        "time_step_max",
        "time_step_floor",
        "time_step_scale",
    ),
    *("time_step_init_scheme", "residual_in_fp32", "rescale_prenorm_residual", "num_logits_to_keep"),
)
"""Keys that change nothing: how kernels cut the sequence, how weights began; the expansion beside stated channels."""
