"""Each entry of the gallery keeps what it claims."""
