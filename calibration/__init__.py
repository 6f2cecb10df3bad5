"""A real PyTorch and Triton engine, and how its measured step times become the costs that simserve simulates with."""
