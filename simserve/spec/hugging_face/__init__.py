"""From a Hugging Face `config.json` to a `ModelSpec`: every key is read, known harmless, or refused by name."""
