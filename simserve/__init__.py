"""simserve: a discrete-event simulator of LLM serving.

From Python: `simserve.spec.load.load_scenario` reads a scenario, `simserve.simulation.simulate` runs it,
`simserve.report.summary.summarize` says what came of it. The command line (`simserve --help`) is made of the same.
"""

__version__ = "0.1.0"
