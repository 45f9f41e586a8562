// The strokes that figures over a swept key are made of.

function xOf(view, point) {
  return keyValue(view.state.x, point);
}
function ends(view) {
  const { values } = xKey(view);
  return [values[0], values[values.length - 1]];
}

// a curve with a marker a point, hollow beyond what was calibrated; where x is no matter of it, a level line
function curveTrace(view, each, y, texts) {
  const colour = seriesColour(each.curve);
  const at = each.flat ? ends(view) : each.points.map((point) => xOf(view, point));
  const over = (values) => (each.flat ? [values[0], values[0]] : values);
  return {
    type: "scatter",
    mode: each.flat ? "lines" : "lines+markers",
    name: plotText(each.name),
    legendgroup: "s" + each.curve,
    hoverinfo: "text",
    x: at,
    y: over(each.points.map(y)),
    hovertext: over(each.points.map(texts)),
    line: { color: colour, width: 2.25, dash: each.flat ? "dash" : "solid" },
    marker: {
      symbol: markerSymbol(each.curve),
      size: 9,
      line: { color: colour, width: 2 },
      color: over(each.points.map((point) => (number("beyond", point) ? PAPER : colour))),
    },
  };
}

// an interval around a curve; around a single point, an error bar
function bandTrace(view, each, low, middle, high) {
  const colour = seriesColour(each.curve),
    lows = each.points.map(low),
    highs = each.points.map(high);
  if (each.points.length === 1 && !each.flat) {
    const value = middle(each.points[0]);
    return {
      type: "scatter",
      mode: "markers",
      x: [xOf(view, each.points[0])],
      y: [value],
      marker: { size: 1, color: colour },
      hoverinfo: "skip",
      legendgroup: "s" + each.curve,
      error_y: {
        type: "data",
        symmetric: false,
        array: [Math.max(0, highs[0] - value)],
        arrayminus: [Math.max(0, value - lows[0])],
        color: colour,
        thickness: 1.5,
        width: 6,
      },
    };
  }
  const at = each.flat ? ends(view) : each.points.map((point) => xOf(view, point));
  const over = (values) => (each.flat ? [values[0], values[0]] : values);
  return {
    type: "scatter",
    mode: "lines",
    fill: "toself",
    fillcolor: bandColour(each.curve),
    line: { width: 0, color: bandColour(each.curve) },
    hoverinfo: "skip",
    legendgroup: "s" + each.curve,
    x: [...at, ...at.slice().reverse()],
    y: [...over(highs), ...over(lows).slice().reverse()],
  };
}

// a dotted line to compare with
function referenceTrace(x, y, words) {
  return {
    type: "scatter",
    mode: "lines",
    x,
    y,
    line: { color: MUTED, width: 1.5, dash: "dot" },
    hoverinfo: "text",
    hovertext: x.map(() => words),
    legendgroup: "ideal",
  };
}

// a ring around each point that lies at the sliders' values, so that colour is not all that marks it
function ringTraces(view, lines, y) {
  const held = lines.filter((each) => swept(view.state.x) && each.chosen >= 0 && !each.flat && y(each.chosen) !== null);
  if (!held.length) {
    return [];
  }
  return [
    {
      type: "scatter",
      mode: "markers",
      name: "chosen",
      x: held.map((each) => xOf(view, each.chosen)),
      y: held.map((each) => y(each.chosen)),
      hoverinfo: "skip",
      legendgroup: "chosen",
      marker: { symbol: "circle-open", size: 17, color: INK, line: { color: INK, width: 1.75 } },
    },
  ];
}

// a line down the figure at the slider's value of x
function chosenLine(view) {
  if (!swept(view.state.x)) {
    return [];
  }
  const value = xKey(view).values[view.state.at[view.state.x]];
  return [
    {
      type: "line",
      xref: "x",
      yref: "paper",
      x0: value,
      x1: value,
      y0: 0,
      y1: 1,
      line: { color: MUTED, width: 1, dash: "dash" },
      layer: "below",
    },
  ];
}

// what is drawn where nothing that is chosen holds a result
function emptyFigure(words = "No result at these settings.") {
  return {
    data: [],
    layout: layoutOf({
      xaxis: { visible: false },
      yaxis: { visible: false, fixedrange: true },
      annotations: [{ text: words, xref: "paper", yref: "paper", x: 0.5, y: 0.5, showarrow: false, font: { size: 14, color: MUTED } }],
    }),
  };
}
