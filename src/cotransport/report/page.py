"""The report's page: one HTML file that needs nothing else, neither other files nor a network."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from string import Template

import yaml

from cotransport.report import charts, wording
from cotransport.report.origins import Origins
from cotransport.report.recipes import uses_validation_images
from cotransport.report.summaries import Candidates as Among, MethodSummary, StreamSummary
from cotransport.report.charts import Chart
from cotransport.report.tables import COLUMNS, table
from cotransport.report.text import UNDEFINED

HARDEST = 8
"""Confusions in the list."""
LARGEST = 3
"""Old classes named for each new class."""
MOST_BESIDE = 25
"""Classes up to which a map of classes fits beside its list."""
BEFORE_TRAINING: dict[Among, str] = {"new": "among themselves", "all": "among all classes seen"}
"""Between which classes new ones are told apart before training."""

PAGE = Template("""<!doctype html>
<html lang="en-GB">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:">
<title>$title</title>
<style>
$css
</style>
</head>
<body>
<main>
$header
<noscript><p class="note">The charts of this page need JavaScript; they are beside it as figures, too.</p></noscript>
$sections
</main>
<footer>Made by cotransport. Beside this page: tables as CSV, Markdown and LaTeX, and figures for print.</footer>
<script type="application/json" id="charts">$charts</script>
<script type="text/plain" id="plotly">$plotly</script>
<script>
$script
</script>
</body>
</html>
""")

# Charts are drawn when they are shown, because plotly cannot measure a hidden place, and when the theme changes.
SCRIPT = """
"use strict";

// The chart library is packed: it would be nine tenths of the page. A browser unpacks it in a moment.
async function unpack() {
  const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), letter => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const library = document.createElement("script");
  library.textContent = await new Response(stream).text();
  document.head.append(library);
}

const charts = JSON.parse(document.getElementById("charts").textContent);
const prefersDark = matchMedia("(prefers-color-scheme: dark)");

function theme(dark) {
  const [ink, line, paper] = dark ? ["#c9d1d9", "#30363d", "#1c2128"] : ["#3b444d", "#e3e6ea", "#ffffff"];
  const axis = {gridcolor: line, linecolor: line, zerolinecolor: line, title: {font: {size: 13}}};
  return {layout: {
    font: {color: ink, family: "system-ui, sans-serif", size: 13},
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    xaxis: axis, yaxis: axis,
    hoverlabel: {bgcolor: paper, bordercolor: line, font: {color: ink}, align: "left"},
  }};
}

// An exponent above 1 spends more of the colours on small values.
function scale(dark, exponent) {
  const colours = dark ? ["#1b2530", "#2a6a9e", "#b5dcff"] : ["#f2f6fa", "#6aaed6", "#08478d"];
  return colours.map((colour, i) => [(i / 2) ** exponent, colour]);
}

function draw(dark) {
  for (const place of document.querySelectorAll("[data-chart]")) {
    if (place.offsetParent === null) continue;
    const {data, layout} = structuredClone(charts[place.dataset.chart]);
    if (layout.coloraxis) layout.coloraxis.colorscale = scale(dark, layout.meta === "faint" ? 2 : 1);
    Plotly.react(place, data, {...layout, template: theme(dark), dragmode: false},
                 {responsive: true, displayModeBar: false});
  }
}

function begin() {
  for (const select of document.querySelectorAll("select")) {
    const show = () => {
      for (const option of select.options) document.getElementById(option.value).hidden = !option.selected;
      draw(prefersDark.matches);
    };
    select.addEventListener("change", show);
    show();
  }
  draw(prefersDark.matches);
  prefersDark.addEventListener("change", () => draw(prefersDark.matches));
  addEventListener("beforeprint", () => draw(false));
  addEventListener("afterprint", () => draw(prefersDark.matches));
}

unpack().then(begin, () => {
  document.querySelector("main").insertAdjacentHTML(
    "afterbegin", "<p class='note'>This browser is too old for the charts; they are beside the page as figures.</p>");
});
"""


def whole_page(streams: Sequence[StreamSummary]) -> str:
    """The whole page."""
    from plotly.offline import get_plotlyjs

    ids = [f"stream{number}" for number in range(1, len(streams) + 1)]
    single = len(streams) == 1
    drawn = {
        f"{id_}{suffix}": chart for id_, stream in zip(ids, streams, strict=True) for suffix, chart in _charts(stream)
    }
    return PAGE.substitute(
        title=escape(streams[0].title if single else f"{len(streams)} streams"),
        css=files(__package__).joinpath("page.css").read_text(encoding="utf-8"),
        header=_header(streams[0], "h1") if single else _overview(ids, streams),
        sections="\n".join(_section(id_, stream, single) for id_, stream in zip(ids, streams, strict=True)),
        charts=json_for_script(drawn),
        plotly=base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode(),
        script=SCRIPT,
    )


def _charts(stream: StreamSummary) -> Iterator[tuple[str, Chart]]:
    """Every chart of a stream with the end of its identifier."""
    yield "-accuracy", charts.accuracy_chart(stream)
    for number, method in enumerate(stream.methods, start=1):
        yield f"-method{number}-matrix", charts.matrix_chart(stream, method)
        if len(stream.tasks) > 1:
            yield f"-method{number}-forgetting", charts.forgetting_chart(stream, method)
        if method.confusion is not None:
            yield f"-method{number}-confusion", charts.confusion_chart(method.confusion)
        if method.origins is not None and method.origins.has_map:
            yield f"-method{number}-transport", charts.transport_chart(method.origins)
        for among in BEFORE_TRAINING:
            if method.initial_accuracy(among):
                yield f"-method{number}-initial-{among}", charts.initial_chart(stream, method, among)


def _header(stream: StreamSummary, level: str) -> str:
    first, *others = wording.finding(stream)
    lead = f'<p class="lead">{escape(" ".join(others))}</p>' if others else ""
    return f'<header><p class="overline">{escape(stream.title)}</p><{level}>{escape(first)}</{level}>{lead}</header>'


def _overview(ids: Sequence[str], streams: Sequence[StreamSummary]) -> str:
    items = "".join(
        f'<li><a href="#{id_}">{escape(stream.title)}</a>. {escape(wording.finding(stream)[0])}</li>'
        for id_, stream in zip(ids, streams, strict=True)
    )
    return (
        f'<header><p class="overline">Class-incremental learning</p><h1>Results on {len(streams)} streams</h1>'
        f'<ul class="lead">{items}</ul></header>'
    )


def _section(id_: str, stream: StreamSummary, single: bool) -> str:
    heading = "" if single else _header(stream, "h2")
    note = ". The band is one standard deviation between seeds" if any(m.seeds > 1 for m in stream.methods) else ""
    images = "held-out training images" if uses_validation_images(stream.results[0]) else "the test images"
    return f"""<section id="{id_}" class="stream">
{heading}
{_facts(stream)}
<h3>Accuracy as classes arrive</h3>
<p class="note">{escape(_metric(stream))} on {images} of all classes seen so far{note}.</p>
<div class="chart" role="img" aria-label="Accuracy as classes arrive" data-chart="{id_}-accuracy"></div>
<h3>Averages</h3>
{_averages(stream)}
<h3><label for="{id_}-select">One method in detail</label></h3>
{_details(id_, stream)}
</section>"""


def _metric(stream: StreamSummary) -> str:
    return "Top-1 accuracy" if stream.metric == "top1" else "Top-5 accuracy"


def _averages(stream: StreamSummary) -> str:
    content = table(stream)
    heads = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in ["Method", "Seeds", *content.headings])
    rows = []
    for method, cells in content.rows:
        figures = "".join(
            f"<td>{f'<b>{cell.estimate.text}</b>' if cell.is_best else cell.estimate.text}</td>" for cell in cells
        )
        name = f'<th scope="row">{_swatch(method)}{escape(method.name)}</th>'
        rows.append(f"<tr>{name}<td>{method.seeds}</td>{figures}</tr>")
    bound = ", ".join(escape(method.name) for method in stream.methods if method not in stream.competitors)
    best = f"Best in bold{f' ({bound}, trained on the data of all tasks, does not compete)' if bound else ''}; "
    meanings = "".join(f"<dt>{column.heading}</dt><dd>{column.meaning}</dd>" for column in COLUMNS)
    return f"""<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>
<p class="note">{best}± is the sample standard deviation between seeds; {UNDEFINED} is undefined.</p>
<dl class="meanings">{meanings}</dl>"""


def _details(id_: str, stream: StreamSummary) -> str:
    names = [(f"{id_}-method{number}", method) for number, method in enumerate(stream.methods, start=1)]
    options = "".join(
        f'<option value="{own}"{" selected" if method is stream.competitors[0] else ""}>{escape(method.name)}</option>'
        for own, method in names
    )
    panels = "\n".join(_panel(own, stream, method) for own, method in names)
    return f'<select id="{id_}-select">{options}</select>\n{panels}'


def _panel(id_: str, stream: StreamSummary, method: MethodSummary) -> str:
    over = f", mean over {method.seeds} seeds" if method.seeds > 1 else ""
    parts = [_chart(f"{id_}-matrix", "Accuracy on each task", f"After each task, in percent{over}.")]
    if len(stream.tasks) > 1:
        about = f"From each task's best accuracy to its accuracy at the end{over}."
        parts.append(_chart(f"{id_}-forgetting", "Forgetting", about))
    confusion = method.confusion
    if confusion is not None:
        summed = f", summed over {method.seeds} seeds" if method.seeds > 1 else ""
        lines = " Thin lines part the tasks." if len(confusion.task_starts) > 1 else ""
        about = f"Share of each true class in percent, after the last task{summed}.{lines}"
        wide = " wide" if len(confusion.names) > MOST_BESIDE else ""
        parts.append(_chart(f"{id_}-confusion", "What is taken for what", about, wide))
        hardest = "".join(f"<li>{escape(words)}</li>" for words in confusion.most_frequent(HARDEST))
        parts.append(f"<div><h4>Hardest confusions</h4>{f'<ol>{hardest}</ol>' if hardest else '<p>None.</p>'}</div>")
    if method.origins is not None:
        parts += _transport(id_, method.origins, over)
    parts += [_before_training(id_, method, among) for among in BEFORE_TRAINING if method.initial_accuracy(among)]
    return f'<div id="{id_}" class="panel">{"".join(parts)}</div>'


def _transport(id_: str, sources: Origins, over: str) -> Iterator[str]:
    """The map of what new classes were built from, and the same in words, folded away if it is long."""
    wide = " wide" if max(sources.shares.shape) > MOST_BESIDE else ""
    if sources.has_map:
        gaps = (
            " Empty where the old class had not been learned yet; thin lines part the tasks."
            if len(sources.old_task_starts) > 1
            else ""
        )
        about = f"Shares of the old classes in each new class's first weights, in percent{over}.{gaps}"
        yield _chart(f"{id_}-transport", "What new classes were built from", about, wide)
    note = (
        "Before any training, a new class's weights are mixed from the old classes' weights. "
        f"The {LARGEST} largest shares of each{over}. The effective number of sources is 1 if a single old class was "
        "taken; close to the number of old classes, the plan is diffuse: a little of everything."
    )
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("New class", "Built from", "Effective sources"))
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(sources.largest_shares(new, LARGEST)) or UNDEFINED}</td>'
        f"<td>{sources.effective_sources[new].text} of {sources.possible_sources(new)}</td></tr>"
        for new, name in enumerate(sources.new)
    )
    words = f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
    if len(sources.new) > MOST_BESIDE:
        words = f"<details><summary>All {len(sources.new)} new classes</summary>{words}</details>"
    yield f'<div class="origins{wide}"><h4>Sources of each new class</h4><p class="note">{note}</p>{words}</div>'


def _before_training(id_: str, method: MethodSummary, among: Among) -> str:
    """How well new classes are told apart before they are trained."""
    band = "; mean over seeds, the band is one standard deviation" if method.seeds > 1 else ""
    classes = "only the task's own classes can be answered" if among == "new" else "every class seen can be answered"
    about = f"Top-1 accuracy on each task's new classes before it is trained, if {classes}{band}. "
    about += "Transported weights, the means of each class's images, and one draw of random weights."
    return _chart(f"{id_}-initial-{among}", f"New classes before training, {BEFORE_TRAINING[among]}", about)


def _chart(id_: str, heading: str, note: str, wide: str = "") -> str:
    chart = f'<div class="scroll"><div class="chart" role="img" aria-label="{heading}" data-chart="{id_}"></div></div>'
    return f'<div class="part{wide}"><h4>{heading}</h4><p class="note">{note}</p>{chart}</div>'


def _facts(stream: StreamSummary) -> str:
    pairs = "".join(
        f"<div><dt>{heading}</dt><dd>{escape(value)}</dd></div>" for heading, value in wording.facts(stream)
    )
    recipes: dict[str, list[str]] = {}
    for method in stream.methods:
        for result in method.results:
            text = yaml.safe_dump(result.recipe, sort_keys=False, allow_unicode=True, default_flow_style=None)
            recipes.setdefault(text, []).append(method.name)
    blocks = "".join(
        f"<details><summary>Full recipe{whose}</summary><pre>{escape(text)}</pre></details>"
        for text, whose in ((text, _whose(names) if len(recipes) > 1 else "") for text, names in recipes.items())
    )
    return f'<dl class="facts">{pairs}</dl>{blocks}'


def _whose(names: Sequence[str]) -> str:
    return f" of {escape(', '.join(dict.fromkeys(names)))}"


def _swatch(method: MethodSummary) -> str:
    return f'<span class="swatch" style="background:{method.style.colour}"></span>'


def json_for_script(value: object) -> str:
    """JSON that cannot end the script element it stands in, whatever names it holds."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
