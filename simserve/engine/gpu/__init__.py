"""A GPU kernel by kernel: the launch queue, the stream that works it off, and the HBM bandwidth that all share."""
