"""From a Hugging Face `config.json` to a `ModelSpec`: every key is read, known to change nothing, or refused by name."""
