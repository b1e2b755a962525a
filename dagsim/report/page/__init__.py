"""The report of runs as one HTML file that opens from disk and loads nothing else."""

from dagsim.report.page.document import write_page

__all__ = ["write_page"]
