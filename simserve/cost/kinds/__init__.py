"""The kinds of attention that the layers of a model may have, each in a file of its own, and the list of them."""
