"use strict";

// The chart library is compressed, because it would be nine tenths of the page.
async function unpack() {
  const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), char => char.charCodeAt(0));
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
function colourScale(dark, exponent) {
  const colours = dark ? ["#1b2530", "#2a6a9e", "#b5dcff"] : ["#f2f6fa", "#6aaed6", "#08478d"];
  return colours.map((colour, i) => [(i / 2) ** exponent, colour]);
}

// Draws the visible charts only, because plotly cannot measure a hidden element.
function draw(dark) {
  for (const element of document.querySelectorAll("[data-chart]")) {
    if (element.offsetParent === null) continue;
    const {data, layout} = structuredClone(charts[element.dataset.chart]);
    if (layout.coloraxis) layout.coloraxis.colorscale = colourScale(dark, layout.meta === "faint" ? 2 : 1);
    Plotly.react(element, data, {...layout, template: theme(dark), dragmode: false},
                 {responsive: true, displayModeBar: false});
  }
}

function start() {
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

unpack().then(start, () => {
  const main = document.querySelector("main"), note = document.createElement("p");
  note.className = "note";
  note.textContent = "This browser is too old for the charts. " + main.dataset.withoutCharts;
  main.prepend(note);
});
