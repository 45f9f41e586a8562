// What all figures share: their layout, and axes with round ticks.

const INK = "var(--ink)",
  MUTED = "var(--muted)",
  PAPER = "var(--paper)";
const LABEL = { showarrow: false, font: { color: INK } };
const LETTER_PX = 6.6,
  MOST_TICKS = 9,
  FEWEST_TICKS = 4;
const ROUND = [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 5, 7], [1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9]];

function layoutOf(changes) {
  return { ...data.style.layout, ...changes };
}

function axisOf(title, changes) {
  return { ...data.style.axis, title: { ...data.style.axis.title, text: title }, ...changes };
}

// of ticks in ascending order those whose labels do not touch, the ends of the list first
function thinned(ticks, width) {
  const kept = [];
  const room = (tick, other) => Math.abs(tick.at - other.at) * width >= (tick.text.length + other.text.length) * 3.6 + 10;
  [ticks[0], ticks[ticks.length - 1], ...ticks.slice(1, -1)].forEach((tick) => {
    if (kept.every((other) => other === tick || room(tick, other))) {
      kept.push(tick);
    }
  });
  return ascending(kept, (tick) => tick.at);
}

function ticksOf(marks) {
  return { tickmode: "array", tickvals: marks.map((mark) => mark.value), ticktext: marks.map((mark) => mark.text) };
}

// room for the last label of a swept key's axis, half of which stands beyond the last point
function keyMargin({ texts }) {
  return { ...data.style.layout.margin, r: Math.max(14, 4 * texts[texts.length - 1].length - 4), b: 50 };
}

// the axis of a swept key: ticks at its values, or at powers of two where they are many
function keyAxis({ name, kind, values }, logarithmic, width) {
  const log = logarithmic && values[0] > 0,
    to = log ? Math.log10 : (each) => each;
  const low = to(values[0]),
    high = to(values[values.length - 1]),
    span = high - low || 1;
  const room = high === low ? (log ? 0.15 : Math.max(1, Math.abs(high) * 0.2)) : 0.045 * span;
  const powers = [];
  if (values.length > MOST_TICKS && kind === "setting" && log) {
    for (let power = Math.ceil(Math.log2(values[0])); 2 ** power <= values[values.length - 1]; power += 1) {
      powers.push(2 ** power);
    }
  }
  const marks = (powers.length > 1 ? powers : values).map((each) => ({
    value: each,
    at: (to(each) - low + room) / (span + 2 * room),
    text: written(each, kind === "setting" && each >= 10000 ? "tick" : kind),
  }));
  return axisOf(name, {
    type: log ? "log" : "linear",
    ...ticksOf(thinned(marks, width - 60)),
    tickangle: 0,
    ticklabelstandoff: 5,
    range: [low - room, high + room],
    showgrid: false,
  });
}

// ticks at round numbers of each decade: the fewer, the more decades there are
function logAxis(values, prefix = "") {
  const ends = values.filter((each) => each > 0).map(Math.log10),
    low = ends.length ? Math.min(...ends) : 0,
    high = ends.length ? Math.max(...ends) : 0,
    room = Math.max(0.05, 0.05 * (high - low), (0.25 - (high - low)) / 2);
  const stride = Math.max(1, Math.round((high - low) / 5));
  const ticksAt = (steps) => {
    const ticks = [];
    for (let power = Math.floor(low) - 1; power <= Math.ceil(high) + 1; power += stride) {
      steps.forEach((step) => ticks.push(Number((step * 10 ** power).toPrecision(6))));
    }
    return ticks.filter((tick) => Math.log10(tick) >= low - room && Math.log10(tick) <= high + room);
  };
  const choices = ROUND.map(ticksAt),
    ticks = choices.find((each) => each.length >= FEWEST_TICKS) || choices[choices.length - 1];
  return axisOf("", {
    type: "log",
    ...ticksOf(ticks.map((tick) => ({ value: tick, text: prefix + written(tick, "tick") }))),
    automargin: low < -1 || prefix !== "",
    range: [low - room, high + room],
  });
}

function linearAxis(high, changes = {}) {
  const { headroom, linear_ticks } = data.style;
  return axisOf("", { range: [0, high > 0 ? high * headroom : 1], nticks: linear_ticks, ...changes });
}

// a layout whose logarithmic axes say where their values end, or what they are, with round ticks
function withTicks(layout, width) {
  const ticked = (axis) => {
    if (!axis || axis.type !== "log" || axis.ticktext) {
      return axis;
    }
    const ends = () => axis.range.map((end) => 10 ** end);
    const made = axis.tickvals ? keyAxis({ name: "", kind: "setting", values: axis.tickvals }, true, width) : logAxis(ends());
    return { ...axis, ...made, title: axis.title };
  };
  return { ...layout, xaxis: ticked(layout.xaxis), yaxis: ticked(layout.yaxis) };
}

// shares from left to right, and rows from top to bottom, the first with room above it for its label
function shareAxis(high) {
  return axisOf("", { range: [0, high], tickformat: ".0%", tickvals: [0, 0.25, 0.5, 0.75, 1], fixedrange: true });
}
function rowsAxis(rows, above = 0.5, texts = []) {
  const marks = texts.map((words, row) => ({ value: row, text: words }));
  const labels = marks.length ? ticksOf(marks) : { showticklabels: false };
  return { range: [rows - 0.5, -above], fixedrange: true, showgrid: false, zeroline: false, ...labels };
}
function rowLabel(words, row, above) {
  return { ...LABEL, x: 0, xref: "paper", xanchor: "left", y: row - above, yref: "y", yanchor: "bottom", text: words };
}
