"""How a checkpoint's weights are quantised: `quantization_config` by method, and `hf_quant_config.json` beside it."""
