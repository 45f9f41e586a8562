// What all figures share: colours, symbols, fonts, margins, and axes with round ticks.

const INK = "var(--ink)",
  MUTED = "var(--muted)",
  PAPER = "var(--paper)",
  RULE = "var(--grid)";
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif";
const COLOURS = 7,
  MOST_TICKS = 9;
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "hexagon"];

function seriesColour(index) {
  return `var(--series-${(index % COLOURS) + 1})`;
}
function bandColour(index) {
  return `var(--band-${(index % COLOURS) + 1})`;
}
function markerSymbol(index) {
  return SYMBOLS[(index + Math.floor(index / COLOURS)) % SYMBOLS.length];
}

function layoutOf(changes) {
  return {
    template: {},
    autosize: true,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: FONT, size: 12, color: MUTED },
    margin: { l: 46, r: 14, t: 12, b: 44 },
    showlegend: false,
    hovermode: "closest",
    hoverlabel: { bgcolor: PAPER, bordercolor: RULE, align: "left", font: { family: FONT, color: INK, size: 13 } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: MUTED, activecolor: INK },
    ...changes,
  };
}

function axisOf(title, changes) {
  return {
    title: { text: title, standoff: 8 },
    gridcolor: RULE,
    linecolor: RULE,
    zeroline: false,
    showline: false,
    automargin: false,
    ticks: "",
    ...changes,
  };
}

function compact(value) {
  const [scale, prefix] = [
    [1e12, "T"],
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ].find(([size]) => value >= size) || [1, ""];
  return String(Number((value / scale).toPrecision(6))) + prefix;
}

// of ticks in ascending order those whose labels do not touch, the ends of the list first
function thinned(ticks, width) {
  const kept = [];
  const room = (one, other) => Math.abs(one.at - other.at) * width >= (one.text.length + other.text.length) * 3.6 + 10;
  [ticks[0], ticks[ticks.length - 1], ...ticks.slice(1, -1)].forEach((tick) => {
    if (kept.every((other) => other === tick || room(tick, other))) {
      kept.push(tick);
    }
  });
  return kept.sort((one, other) => one.at - other.at);
}

function isLog(key, wanted) {
  return wanted && keys[key].values[0] > 0;
}

// room for the last label of a swept key's axis, half of which stands beyond the last point
function keyMargin(key) {
  const last = keys[key].values.length - 1;
  return { l: 46, r: Math.max(14, 4 * keyText(key, last).length - 4), t: 12, b: 50 };
}

// the axis of a swept key: ticks at its values, or at powers of two where they are many
function keyAxis(key, wanted, width, title = keys[key].name) {
  const values = keys[key].values,
    log = isLog(key, wanted),
    to = log ? Math.log10 : (value) => value;
  const low = to(values[0]),
    high = to(values[values.length - 1]),
    span = high - low || 1;
  const room = high === low ? (log ? 0.15 : Math.max(1, Math.abs(high) * 0.2)) : 0.045 * span;
  let ticks = values;
  if (values.length > MOST_TICKS && keys[key].kind === "number" && log) {
    const powers = [];
    for (let power = Math.ceil(Math.log2(values[0])); 2 ** power <= values[values.length - 1]; power += 1) {
      powers.push(2 ** power);
    }
    if (powers.length > 1) {
      ticks = powers;
    }
  }
  const marks = thinned(
    ticks.map((value) => ({
      value,
      at: (to(value) - low + room) / (span + 2 * room),
      text: keys[key].kind === "number" && value >= 10000 ? compact(value) : ofKind(value, keys[key].kind),
    })),
    width - 60,
  );
  return axisOf(title, {
    type: log ? "log" : "linear",
    tickmode: "array",
    tickvals: marks.map((mark) => mark.value),
    ticktext: marks.map((mark) => mark.text),
    tickangle: 0,
    ticklabelstandoff: 5,
    range: [low - room, high + room],
    showgrid: false,
  });
}

// ticks at round numbers of each decade: the fewer, the more decades there are
const ROUND = [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 5, 7], [1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9]];

function logAxis(values, title = "", prefix = "") {
  const positive = values.filter((value) => value > 0),
    held = positive.length ? positive : [1];
  const low = Math.log10(Math.min(...held)),
    high = Math.log10(Math.max(...held)),
    room = Math.max(0.05, 0.05 * (high - low), (0.25 - (high - low)) / 2);
  const stride = Math.max(1, Math.round((high - low) / 5));
  const ticksAt = (steps) => {
    const ticks = [];
    for (let power = Math.floor(low) - 1; power <= Math.ceil(high) + 1; power += stride) {
      steps.forEach((step) => ticks.push(Number((step * 10 ** power).toPrecision(6))));
    }
    return ticks.filter((tick) => Math.log10(tick) >= low - room && Math.log10(tick) <= high + room);
  };
  const ticks = ROUND.map(ticksAt).find((found) => found.length >= 4) || ticksAt(ROUND[ROUND.length - 1]);
  return axisOf(title, {
    type: "log",
    tickmode: "array",
    tickvals: ticks,
    ticktext: ticks.map((tick) => prefix + compact(tick)),
    automargin: low < -1 || prefix !== "",
    range: [low - room, high + room],
  });
}

function linearAxis(high, title = "", changes = {}) {
  return axisOf(title, { range: [0, high > 0 ? high * 1.08 : 1], nticks: 7, ...changes });
}
