// Every figure that a page shows as images, each with its heading above and its legend below, which in the page stand next to it. They are
// left as JSON in the document, which a browser that runs once prints.

(async () => {
const LINE_PX = 20;
const harmless = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
const inLines = (text, width) =>
  text.split(" ").reduce((rows, word) => {
    const last = rows.pop();
    return last === undefined ? [word] : last.length + word.length < width / 8 ? [...rows, `${last} ${word}`] : [...rows, last, word];
  }, []);

function imagesOf(element) {
  const { width, height, margin } = element._fullLayout,
    seen = new Set();
  // of what follows the sliders also where they stand
  const figure = element.closest("figure") || element,
    captions = [...figure.querySelectorAll("figcaption h3, figcaption p"), ...(figure.querySelector("[data-of]") ? document.querySelectorAll("#where") : [])],
    words = captions.flatMap((caption, index) => inLines(caption.textContent, width).map((line) => (index ? `<span style='font-size:12px'>${harmless(line)}</span>` : `<b>${harmless(line)}</b>`)));
  const data = element.data.map((trace) => {
    const name = trace.name || (trace.legendgroup === "ideal" ? "ideal" : ""),
      showlegend = name !== "" && trace.showlegend !== false && !seen.has(name);
    seen.add(showlegend ? name : "");
    return { ...trace, name, showlegend };
  });
  seen.delete("");
  const head = LINE_PX * words.length,
    foot = seen.size ? LINE_PX * seen.size + 8 : 0,
    left = { x: 0, xref: "container", xanchor: "left", yref: "container" };
  const layout = {
    ...element.layout,
    paper_bgcolor: "#ffffff",
    margin: { l: margin.l, r: margin.r, t: margin.t + head, b: margin.b + foot, autoexpand: false },
    title: { ...left, text: words.join("<br>"), font: { size: 14 }, pad: { l: 8, t: 20 }, y: 1, yanchor: "top" },
    showlegend: foot > 0,
    legend: { ...left, orientation: "v", y: 0, yanchor: "bottom", traceorder: "normal" },
  };
  return (kind) =>
    Plotly.toImage({ data, layout }, { format: kind, scale: kind === "png" ? 2 : 1, width, height: height + head + foot }).then(
      (url) => ({ id: element.id, kind, url }),
      (error) => ({ id: element.id, kind, error: String(error) }),
    );
}

const until = async (reached) => {
  while (!reached()) {
    await new Promise((done) => setTimeout(done, 50));
  }
};
const shown = () => [...document.querySelectorAll('[id^="figure-"]')].filter((element) => element.getClientRects().length > 0);
await until(() => document.documentElement.dataset.drawn === "yes");
// what is closed is drawn when it is opened
document.querySelectorAll("details.folded").forEach((section) => {
  section.open = true;
});
await until(() => shown().every((element) => element.classList.contains("js-plotly-plot")));
const images = [];
for (const make of shown().map(imagesOf)) {
  for (const kind of {{ formats|tojson }}) {
    images.push(await make(kind));
  }
}
const left = document.createElement("script");
Object.assign(left, { id: "images", type: "application/json", textContent: JSON.stringify(images).replaceAll("<", "\\u003c") });
document.body.replaceChildren(left);
})();
