"""Tables, figures and one HTML page from the results of runs. Reads results and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cotransport.errors import RunError, StorageError
from cotransport.experiments.results import find_results
from cotransport.system.files import write_text

__all__ = ["write_report"]


def write_report(folders: Sequence[Path], out: Path | None = None) -> Path:
    """Report on all results below the folders, and return the path of the page.

    Writes `report.html`, `summary.csv`, `summary.md`, `summary.tex`, `curves.csv` and `figures/` into `out`, by
    default the first of the folders; and `initial.csv` and `transport.csv` where the results tell of it.
    """
    # matplotlib and plotly take a second to import, which no other command should wait for
    from cotransport.report import aggregate, figures, page, tables

    streams = aggregate.summarise(find_results(*folders))
    out = folders[0] if out is None else out
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_text(out / "summary.csv", tables.summary_csv(streams))
        write_text(out / "curves.csv", tables.curves_csv(streams))
        for name, text in (
            ("initial.csv", tables.initial_csv(streams)),
            ("transport.csv", tables.transport_csv(streams)),
        ):
            if text:
                write_text(out / name, text)
            else:
                (out / name).unlink(missing_ok=True)  # of an earlier report
        write_text(out / "summary.md", tables.summary_markdown(streams))
        write_text(out / "summary.tex", tables.summary_latex(streams))
        figures.draw_figures(streams, out / "figures")
        write_text(out / "report.html", page.render_page(streams))
    except StorageError:
        raise
    except OSError as error:
        raise RunError(
            f"{error.filename or out}: the report cannot be written ({error.strerror}). Give another folder with --out"
        ) from error
    return out / "report.html"
