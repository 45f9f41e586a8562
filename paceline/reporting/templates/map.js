// Results by two settings at once, and all settings with as many devices from the best on.

const MOST_RANKED = 10,
  MAP_ROW_PX = 46,
  LEAST_CELL_PX = 46,
  LEAST_WORDED_PX = 92,
  [RANK] = data.ranked.columns;

// of points under the conditions at the sliders the best first, by what results are ranked by
function ranking(view, points) {
  const met = (point) => view.here < 0 || data.conditions[point] === data.conditions[view.here],
    there = (point) => keys.every((each, key) => !each.condition || place(key, point) < 0 || place(key, point) === view.state.at[key]);
  return sorted(points.filter((point) => met(point) && there(point)), RANK, data.ranked.least ? -1 : 1);
}

function rankText(point) {
  return data.ranked.least ? shown(RANK, point) : `${shown(RANK, point)} ${data.unit}`;
}

function rankHover(point) {
  const [mean, low, high] = data.ranked.columns;
  return data.ranked.least ? hoverText(point, `the job takes ${shown(mean, point)}`, `90% interval ${interval(low, high, point)}`) : rateText(point);
}

// every cell: the best that is shown there, at the sliders or, of a layout, at all settings with as many devices; or why there is none
function cellsOf(view) {
  const { rows, columns, of, failures } = data.map,
    own = [rows.key, columns.key],
    layouts = rows.key < 0,
    open = (places, key) => (layouts ? key === 0 : !own.includes(key)),
    here = (places) => keys.every((_, key) => !open(places, key) || places[key] < 0 || places[key] === view.state.at[key]),
    inside = (cell, x, y) => cell !== null && cell[0] === y && cell[1] === x,
    drawn = ranking(view, view.shown.flatMap(({ curve }) => pointsOf[curve])).filter((point) => here(keys.map((_, key) => place(key, point))));
  return rows.texts.flatMap((_, y) =>
    columns.texts.map((_, x) => {
      const failed = failures.find((each) => inside(each.of, x, y) && here(each.at));
      return { x, y, point: drawn.find((point) => inside(of[point], x, y)), why: failed ? failed.text : "" };
    }),
  );
}

function cellName({ x, y }) {
  return `${data.map.rows.told[y]}, ${data.map.columns.told[x]}`;
}

const mapFigure = {
  id: "map",
  points: (view) => cellsOf(view).flatMap(({ point }) => (point === undefined ? [] : [point])),
  title(view, points) {
    const [best] = ranking(view, points),
      name = best === undefined ? "" : cellName(cellsOf(view).find(({ point }) => point === best));
    return name && `${name.charAt(0).toUpperCase()}${name.slice(1)} is ${data.ranked.least ? "shortest" : "fastest"}${metText(view)}: ${rankText(best)}`;
  },
  height: () => 74 + MAP_ROW_PX * Math.max(3, Math.min(10, data.map.rows.texts.length)),
  draw(view, points, width) {
    const { rows, columns } = data.map,
      cells = cellsOf(view),
      known = cells.filter(({ point }) => point !== undefined),
      none = cells.filter(({ point }) => point === undefined),
      size = (point) => Math.log(value(RANK, point)),
      [low, high] = [Math.min, Math.max].map((end) => end(...points.map(size))),
      [worst, best] = data.ranked.least ? [high, low] : [low, high],
      room = (width - 90) / columns.texts.length;
    // darker is better; text is dark on the lighter half
    const shade = (point) => (high > low ? 0.08 + (0.92 * (size(point) - worst)) / (best - worst) : 0.5);
    const grid = rows.texts.map((_, y) => columns.texts.map((_, x) => cells.find((each) => each.x === x && each.y === y).point));
    const hatched = {
      ...barTrace({ orientation: "v", name: "no result", x: none.map(({ x }) => x), y: none.map(() => 1), base: none.map(({ y }) => y - 0.5), width: 1 }),
      hovertext: none.map((cell) => `<b>${cellName(cell)}</b><br>${plotText(cut(cell.why || "not simulated", 160))}`),
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
      hovertext: grid.map((points) => points.map((point) => (point === undefined ? "" : rankHover(point)))),
    };
    const edges = known
      .filter(({ point }) => point === view.here)
      .map(({ x, y }) => ({ type: "rect", x0: x - 0.49, x1: x + 0.49, y0: y - 0.48, y1: y + 0.48, line: { color: INK, width: 2 } }));
    const batch = (point) => (data.one_batch ? "" : `<br><sub>${shown("global_batch", point)} a step</sub>`);
    const label = ({ x, y, point, why }) => ({
      x,
      y,
      text: point === undefined ? (why ? "refused" : "not simulated") : `${shown(RANK, point)}${data.hollow[point] ? " ○" : ""}${batch(point)}`,
      showarrow: false,
      font: point === undefined ? { color: MUTED, size: 11 } : { color: shade(point) > 0.55 ? "var(--on-map)" : INK },
    });
    return {
      data: none.length ? [heat, hatched] : [heat],
      layout: layoutOf({
        margin: { l: 76, r: 12, t: 10, b: 48 },
        annotations: (room >= LEAST_WORDED_PX ? cells : room >= LEAST_CELL_PX ? known : []).map(label),
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
  table: (view, points) => tableOf(data.ranked.least ? "job" : "throughput", points),
};

function settingsName(point) {
  const others = keys.map((each, key) => (key && swept(key) && !each.condition && place(key, point) >= 0 ? each.told[place(key, point)] : "")).filter((words) => words);
  return [...(curves.length > 1 ? [nameOf(point)] : []), ...others].join(", ") || nameOf(point);
}

// the same without what all of some points share
function tellingNames(points) {
  const parts = points.map((point) => settingsName(point).split(" · ").flatMap((part) => part.split(", "))),
    shared = (part) => parts.length > 1 && parts.every((each) => each.includes(part));
  return parts.map((each, row) => each.filter((part) => !shared(part)).join(", ") || settingsName(points[row]));
}

const rankedFigure = {
  id: "ranked",
  // every shown point with as many devices as at the sliders, under their conditions, the best first
  points: (view) => ranking(view, view.shown.flatMap(({ curve }) => pointsOf[curve]).filter((point) => place(0, point) === view.state.at[0])),
  title(view, points) {
    const best = data.ranked.least ? "shortest" : "fastest";
    return `With ${keys[0].told[view.state.at[0]]}${metText(view)}, ${best} of ${written(points.length, "count")}: ${tellingNames(points)[0]}`;
  },
  // what stands above a bar, in as many lines as it takes
  labels(points, width) {
    const batch = (point) => (data.one_batch ? "" : `, ${shown("global_batch", point)} samples a step`);
    const names = tellingNames(points);
    return points.slice(0, MOST_RANKED).map((point, row) => inLines(`${names[row]}: ${shown(RANK, point)}${batch(point)}`, Math.floor((width - 30) / LETTER_PX)));
  },
  height(view, points, width) {
    const labels = this.labels(points, width);
    return 52 + (26 + 15 * Math.max(1, ...labels.map((lines) => lines.length))) * Math.max(2, labels.length);
  },
  draw(view, every, width) {
    const points = every.slice(0, MOST_RANKED),
      { scale, unit } = data.ranked.least ? timeUnit(points.map(jobLength)) : { scale: 1, unit: data.unit },
      [middle, low, high] = data.ranked.columns.map((name) => points.map((point) => value(name, point) / scale)),
      axis = `${data.ranked.least ? data.columns[RANK].heading : "Throughput"} (${unit})`,
      labels = this.labels(points, width),
      most = Math.max(...labels.map((lines) => lines.length)),
      // of a row's height the part that is the bar's, below its label
      bar = 14 / (26 + 15 * most);
    const bars = barTrace({
      x: middle,
      y: points.map((_, row) => row),
      width: bar,
      offset: 0.4 - bar,
      hovertext: points.map((point) => rankHover(point) + (data.one_batch ? "" : `<br>${shown("global_batch", point)} samples a step`)),
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
        annotations: labels.map((lines, row) => ({ ...rowLabel(lines.map(plotText).join("<br>"), row, bar - 0.4), align: "left" })),
        xaxis: axisOf("", { title: { text: axis, standoff: 8 }, range: [0, Math.max(...middle) * Math.min(2.5, 1.05 * Math.max(1.5, ...high.map((end, row) => end / middle[row])))], fixedrange: true, tickformat: ",~s" }),
        yaxis: rowsAxis(points.length, 0.6),
      }),
    };
  },
  table: (view, points) => tableOf(data.ranked.least ? "job" : "throughput", points),
};
