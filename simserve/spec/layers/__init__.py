"""What a model is made of: the layer is the unit, an attention and an MLP, each with its sizes and number formats."""
