"""What a person reads of a run: metrics, tables, run folders, plots and pages, all pure functions of its records."""
