"""The version, in the one place that the packaging and the program read it from."""

__version__ = "0.1.0"
