// The traces that figures over a swept key are made of.

const SMALLEST_SHOWN = 1e-3,
  WHISKER = { color: INK, thickness: 1, width: 3 };

function xOf(view, point) {
  return view.key.values[place(view.state.x, point)];
}
function ends({ key: { values } }) {
  return [values[0], values[values.length - 1]];
}

// where a curve runs, and what it has there; where x is no matter of it, it is level
function over({ flat, points }, read) {
  return flat ? [read(points[0]), read(points[0])] : points.map(read);
}
function along(view, each) {
  return each.flat ? ends(view) : each.points.map((point) => xOf(view, point));
}

function scatterTrace(changes) {
  return { type: "scatter", mode: "markers", hoverinfo: "text", ...changes };
}

// a curve with a marker at each point, hollow beyond what was measured
function curveTrace(view, each, y, texts) {
  const { colour, symbol } = curves[each.curve];
  return scatterTrace({
    mode: each.flat ? "lines" : "lines+markers",
    name: plotText(each.name),
    legendgroup: "s" + each.curve,
    x: along(view, each),
    y: over(each, y),
    hovertext: over(each, texts),
    line: { color: colour, width: 2.25, dash: each.flat ? "dash" : "solid" },
    marker: {
      symbol,
      size: 9,
      line: { color: colour, width: 2 },
      color: over(each, (point) => (data.hollow[point] ? PAPER : colour)),
    },
  });
}

// from values to the ends of their intervals
function whiskers(middles, lows, highs, changes) {
  const away = (from, to) => from.map((each, index) => Math.max(0, each - to[index]));
  return { type: "data", symmetric: false, array: away(highs, middles), arrayminus: away(middles, lows), ...changes };
}

// an interval around a curve; around a single point, an error bar
function bandTrace(view, each, low, middle, high) {
  const { colour, band } = curves[each.curve],
    legendgroup = "s" + each.curve;
  if (each.points.length === 1 && !each.flat) {
    const [middles, lows, highs] = [middle, low, high].map((read) => each.points.map(read));
    const bar = whiskers(middles, lows, highs, { color: colour, thickness: 1.5, width: 6 });
    const marker = { size: 1, color: colour };
    return scatterTrace({ x: along(view, each), y: middles, marker, hoverinfo: "skip", legendgroup, error_y: bar });
  }
  const at = along(view, each);
  return scatterTrace({
    mode: "lines",
    fill: "toself",
    fillcolor: band,
    line: { width: 0, color: band },
    hoverinfo: "skip",
    legendgroup,
    x: [...at, ...at.slice().reverse()],
    y: [...over(each, high), ...over(each, low).reverse()],
  });
}

// a dotted line to compare with
function referenceTrace(x, y, words) {
  const dotted = { color: MUTED, width: 1.5, dash: "dot" };
  return scatterTrace({ mode: "lines", x, y, line: dotted, hovertext: x.map(() => words), legendgroup: "ideal" });
}

// a ring around each point that lies at the sliders' values, so that colour is not all that marks it
function ringTraces(view, lines, y) {
  const held = lines.filter((each) => swept(view.state.x) && !each.flat && each.points.includes(each.chosen));
  const rings = scatterTrace({
    name: "chosen",
    x: held.map((each) => xOf(view, each.chosen)),
    y: held.map((each) => y(each.chosen)),
    hoverinfo: "skip",
    legendgroup: "chosen",
    marker: { symbol: "circle-open", size: 17, color: INK, line: { color: INK, width: 1.75 } },
  });
  return held.length ? [rings] : [];
}

function upright(x, line) {
  return { type: "line", xref: "x", yref: "paper", x0: x, x1: x, y0: 0, y1: 1, line: { color: MUTED, width: 1, ...line }, layer: "below" };
}

// a line down the figure at the slider's value of x
function chosenLine(view) {
  return swept(view.state.x) ? [upright(view.key.values[view.state.at[view.state.x]], { dash: "dash" })] : [];
}

function barTrace(changes) {
  return { type: "bar", orientation: "h", hoverinfo: "text", ...changes };
}

// what is drawn where nothing that is chosen holds a result
function emptyFigure(words = "No result at these settings.") {
  const middle = { text: words, xref: "paper", yref: "paper", x: 0.5, y: 0.5, showarrow: false, font: { size: 14, color: MUTED } };
  return { data: [], layout: layoutOf({ xaxis: { visible: false }, yaxis: { visible: false, fixedrange: true }, annotations: [middle] }) };
}
