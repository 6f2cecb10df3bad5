"""`python -m simserve`."""

from simserve.cli import main

main()
