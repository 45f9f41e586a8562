// A figure as the page draws it, with its heading above and its legend below, which in the page stand beside it.
const [id, format, scale, done] = arguments,
  LINE_PX = 20,
  element = document.getElementById(id),
  { width, height, margin } = element._fullLayout,
  seen = new Set();
const harmless = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
const inLines = (text) =>
  text.split(" ").reduce((rows, word) => {
    const last = rows.pop();
    return last === undefined ? [word] : last.length + word.length < width / 8 ? [...rows, `${last} ${word}`] : [...rows, last, word];
  }, []);
// of what follows the sliders also where they stand
const figure = element.closest("figure") || element,
  captions = [...figure.querySelectorAll("figcaption h3, figcaption p"), ...(figure.querySelector("[data-of]") ? document.querySelectorAll("#card-where") : [])],
  words = captions.flatMap((caption, index) => inLines(caption.textContent).map((line) => (index ? `<span style='font-size:12px'>${harmless(line)}</span>` : `<b>${harmless(line)}</b>`)));
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
Plotly.toImage({ data, layout }, { format, scale, width, height: height + head + foot }).then((url) => done({ url }), (error) => done({ error: String(error) }));
