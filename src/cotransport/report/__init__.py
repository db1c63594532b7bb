"""Tables, figures and one HTML page from results. The report needs the results and nothing else of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cotransport.errors import RunError, StorageError
from cotransport.experiments.results import Result
from cotransport.system.files import write_text

if TYPE_CHECKING:
    from cotransport.report.summaries import StreamSummary

__all__ = ["Report", "write_report"]


class Report(NamedTuple):
    """A report that was written."""

    page: Path
    """The HTML page."""
    streams: list[StreamSummary]
    """What the report says, for callers that show a part of it."""


def write_report(results: Sequence[Result], out: Path) -> Report:
    """Write a report on the results into the folder `out`.

    Writes `report.html`, `summary.csv`, `summary.md`, `summary.tex`, `curves.csv` and `figures/`. Also writes
    `initial.csv` and `transport.csv` if the results have these numbers, and removes them otherwise.
    """
    # importing matplotlib, pandas and plotly takes more than a second, and other commands do not need them
    from cotransport.report import tables
    from cotransport.report.aggregate import summarise
    from cotransport.report.figures import draw_figures
    from cotransport.report.page import render_page

    if not results:
        raise RunError("There are no results to report. `cotransport run` makes them")
    streams = summarise(results)
    page = out / "report.html"
    texts = {
        "summary.csv": tables.summary_csv(streams),
        "curves.csv": tables.curves_csv(streams),
        "initial.csv": tables.initial_csv(streams),
        "transport.csv": tables.transport_csv(streams),
        "summary.md": tables.summary_markdown(streams),
        "summary.tex": tables.summary_latex(streams),
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            if text:
                write_text(out / name, text)
            else:
                (out / name).unlink(missing_ok=True)  # from an earlier report
        draw_figures(streams, out / "figures")
        write_text(page, render_page(streams))
    except StorageError:
        raise
    except OSError as error:
        raise RunError(
            f"{error.filename or out}: the report cannot be written ({error.strerror}). Give another folder with --out"
        ) from error
    return Report(page, streams)
