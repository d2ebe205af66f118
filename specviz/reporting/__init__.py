"""The report: what a trace shows, as one offline HTML page."""

from specviz.reporting.compose import report

__all__ = ["report"]
