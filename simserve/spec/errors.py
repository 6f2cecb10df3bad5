"""What is said when a scenario cannot be simulated: every part that finds a fault in the user's input raises this."""


class ScenarioError(ValueError):
    """A scenario, model, profile or trace that cannot be used.

    The message names the place (file, line, key path), the value found and the remedy, one problem a line; the command
    line prints it as it is.
    """
