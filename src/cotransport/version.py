"""The release. In a place of its own, because modules record it that must not import the package as a whole."""

__version__ = "0.1.0"
