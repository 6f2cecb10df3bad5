"""Parameters of the parts that towers are made of."""


def linear(inputs: int, outputs: int, *, bias: bool = True) -> int:
    """A linear layer."""
    return inputs * outputs + outputs * bias


def layer_norm(size: int) -> int:
    """A norm with weight and bias."""
    return 2 * size
