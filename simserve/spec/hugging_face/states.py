"""In which format a configuration asks for the states of linear and state-space layers."""

from simserve.spec.dtypes import canonical_dtype
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.layers.sequence import StateDtype
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
