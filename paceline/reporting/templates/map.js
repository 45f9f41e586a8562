// Throughput by two settings at once, and all settings with as many devices in the order of their throughput.

const MOST_RANKED = 14,
  MAP_ROW_PX = 46,
  LEAST_CELL_PX = 46;

// whether all that the map's own settings leave open stands at the sliders
function elsewhereAt(view, places) {
  const own = [data.map.rows.key, data.map.columns.key];
  return keys.every((_, key) => own.includes(key) || places[key] < 0 || places[key] === view.state.at[key]);
}

// every cell: of those shown there the fastest, or why there is none
function cellsOf(view) {
  const { rows, columns, of, failures } = data.map,
    drawn = view.shown.flatMap(({ curve }) => pointsOf[curve]).filter((point) => of[point] && elsewhereAt(view, keys.map((_, key) => place(key, point))));
  const in_ = (its, x, y) => its !== null && its[0] === y && its[1] === x;
  return rows.texts.flatMap((_, y) =>
    columns.texts.map((_, x) => {
      const failed = failures.find((each) => in_(each.of, x, y) && elsewhereAt(view, each.at));
      return { x, y, point: extreme(drawn.filter((point) => in_(of[point], x, y)), "throughput_samples_per_s"), why: failed ? failed.text : "" };
    }),
  );
}

function cellName({ x, y }) {
  return `${data.map.rows.told[y]}, ${data.map.columns.told[x]}`;
}

const mapFigure = {
  id: "map",
  title(view) {
    const known = cellsOf(view).filter(({ point }) => point !== undefined),
      [best] = known.sort((one, other) => value("throughput_samples_per_s", other.point) - value("throughput_samples_per_s", one.point));
    const name = best ? cellName(best) : "";
    return best ? `${name.charAt(0).toUpperCase()}${name.slice(1)} is fastest: ${shown("throughput_samples_per_s", best.point)} samples/s` : "";
  },
  height: () => 74 + MAP_ROW_PX * Math.max(3, Math.min(10, data.map.rows.texts.length)),
  draw(view, width) {
    const { rows, columns } = data.map,
      cells = cellsOf(view),
      known = cells.filter(({ point }) => point !== undefined),
      none = cells.filter(({ point }) => point === undefined),
      rate = (point) => value("throughput_samples_per_s", point);
    if (!known.length) {
      return emptyFigure();
    }
    const [low, high] = [Math.min, Math.max].map((end) => end(...known.map(({ point }) => rate(point)))),
      wide = (width - 90) / columns.texts.length >= LEAST_CELL_PX;
    // darker is faster; text is dark on the lighter half
    const shade = (point) => (high > low ? 0.08 + 0.92 * ((Math.log(rate(point)) - Math.log(low)) / (Math.log(high) - Math.log(low))) : 0.5);
    const grid = rows.texts.map((_, y) => columns.texts.map((_, x) => cells.find((each) => each.x === x && each.y === y).point));
    const hover = (point) => (point === undefined ? "" : rateText(point));
    const hatched = {
      ...barTrace({ orientation: "v", name: "no result", x: none.map(({ x }) => x), y: none.map(() => 1), base: none.map(({ y }) => y - 0.5), width: 1 }),
      hovertext: none.map(({ x, y, why }) => `<b>${cellName({ x, y })}</b><br>${plotText(cut(why || "not simulated", 160))}`),
      marker: { color: PAPER, line: { width: 1, color: "var(--grid)" }, pattern: { shape: none.map(({ why }) => (why ? "/" : "")), fgcolor: MUTED, size: 7, solidity: 0.12 } },
    };
    const heat = {
      type: "heatmap",
      z: grid.map((points) => points.map((point) => (point === undefined ? null : shade(point)))),
      zmin: 0,
      zmax: 1,
      xgap: 1.5,
      ygap: 1.5,
      showscale: false,
      colorscale: [[0, "var(--map-low)"], [1, "var(--map-high)"]],
      hoverinfo: "text",
      hovertext: grid.map((points) => points.map(hover)),
    };
    const edges = known
      .filter(({ point }) => point === view.here)
      .map(({ x, y }) => ({ type: "rect", x0: x - 0.49, x1: x + 0.49, y0: y - 0.48, y1: y + 0.48, line: { color: INK, width: 2 } }));
    const label = ({ x, y, point }) => ({
      x,
      y,
      text: `${written(rate(point), "compact")}${data.hollow[point] ? " ○" : ""}${data.one_batch ? "" : `<br><sub>${shown("global_batch", point)} a step</sub>`}`,
      showarrow: false,
      font: { color: shade(point) > 0.55 ? "var(--on-map)" : INK },
    });
    return {
      data: none.length ? [heat, hatched] : [heat],
      layout: layoutOf({
        margin: { l: 76, r: 12, t: 10, b: 48 },
        annotations: wide ? known.map(label) : [],
        shapes: edges,
        xaxis: axisOf(columns.name, { ...ticksOf(columns.texts.map((text, at) => ({ value: at, text }))), range: [-0.5, columns.texts.length - 0.5], fixedrange: true, showgrid: false }),
        yaxis: axisOf(rows.name, { ...ticksOf(rows.texts.map((text, at) => ({ value: at, text }))), range: [rows.texts.length - 0.5, -0.5], fixedrange: true, showgrid: false }),
      }),
    };
  },
  // the sliders, or what is in detail, go to the cell
  click(view, { x, y }) {
    const cell = cellsOf(view).find((each) => each.x === Math.round(x) && each.y === Math.round(y));
    if (cell && cell.point !== undefined) {
      view.state.focus = data.curve[cell.point];
      view.state.at = view.state.at.map((index, key) => (place(key, cell.point) < 0 ? index : place(key, cell.point)));
    }
  },
  describe(view) {
    const told = cellsOf(view).slice(0, MOST_TOLD).map((each) => `${cellName(each)}: ${each.point === undefined ? "none" : shown("throughput_samples_per_s", each.point)}`);
    return `Throughput by ${data.map.rows.name.toLowerCase()} and ${data.map.columns.name.toLowerCase()}. ${told.join("; ")}.`;
  },
  table: (view) => tableOf("throughput", cellsOf(view).map(({ point }) => point).filter((point) => point !== undefined)),
};

// every shown point with as many devices as at the sliders, the fastest first
function rankedPoints(view) {
  const same = view.shown.flatMap(({ curve }) => pointsOf[curve]).filter((point) => place(0, point) === view.state.at[0]);
  return same.sort((one, other) => value("throughput_samples_per_s", other) - value("throughput_samples_per_s", one));
}

function settingsName(point) {
  const others = keys.map((_, key) => (key && swept(key) && place(key, point) >= 0 ? keys[key].told[place(key, point)] : "")).filter((words) => words);
  return [...(curves.length > 1 ? [nameOf(point)] : []), ...others].join(", ") || nameOf(point);
}

const rankedFigure = {
  id: "ranked",
  title(view) {
    const points = rankedPoints(view);
    return points.length ? `With ${keys[0].told[view.state.at[0]]}, fastest of ${written(points.length, "count")}: ${settingsName(points[0])}` : "";
  },
  height: (view) => 52 + 40 * Math.max(2, Math.min(MOST_RANKED, rankedPoints(view).length)),
  draw(view, width) {
    const points = rankedPoints(view).slice(0, MOST_RANKED);
    if (!points.length) {
      return emptyFigure();
    }
    const [middle, low, high] = ["throughput_samples_per_s", "throughput_low", "throughput_high"].map((name) => points.map((point) => value(name, point)));
    const batch = (point) => `, ${shown("global_batch", point)} samples a step`,
      words = (point) => `${settingsName(point)}: ${shown("throughput_samples_per_s", point)}${data.one_batch ? "" : batch(point)}`;
    const bars = barTrace({
      x: middle,
      y: points.map((_, row) => row),
      width: 0.34,
      offset: 0.02,
      hovertext: points.map((point) => rateText(point) + (data.one_batch ? "" : `<br>${batch(point).slice(2)}`)),
      error_x: whiskers(middle, low, high, WHISKER),
      marker: {
        color: points.map((point) => (data.hollow[point] ? PAPER : curves[data.curve[point]].colour)),
        line: { color: points.map((point) => curves[data.curve[point]].colour), width: 1.5 },
      },
    });
    return {
      data: [bars],
      layout: layoutOf({
        margin: { l: 8, r: 16, t: 8, b: 44 },
        annotations: points.map((point, row) => rowLabel(plotText(cut(words(point), Math.floor(width / 6.8))), row, 0.02)),
        xaxis: linearAxis(Math.max(...middle) * 1.6, { title: { text: "Throughput (samples/s)", standoff: 8 }, range: [0, Math.max(...middle) * 1.6], fixedrange: true, tickformat: ",~s" }),
        yaxis: rowsAxis(points.length, 0.6),
      }),
    };
  },
  describe(view) {
    const told = rankedPoints(view).slice(0, MOST_TOLD).map((point) => `${settingsName(point)}: ${shown("throughput_samples_per_s", point)}`);
    return `The fastest with ${keys[0].told[view.state.at[0]]}. ${told.join("; ")}.`;
  },
  table: (view) => tableOf("throughput", rankedPoints(view)),
};
