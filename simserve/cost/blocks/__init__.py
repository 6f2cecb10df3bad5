"""The operators of the blocks of a layer, its attention and its MLP, on one GPU of a tensor-parallel group."""
