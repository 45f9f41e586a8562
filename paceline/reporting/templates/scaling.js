// Figures over the swept key that x is: throughput, efficiency, cost, mean staleness, and the busiest link.

const SAME_IDEAL = 0.05,
  MOST_BANDS = 4,
  MOST_SIBLINGS = 8,
  LINE_PX = 14;

function pointLines(point) {
  return [`<b>${plotText(cut(nameOf(point), 60))}</b>`, plotText(pointSettings(point))];
}

function hoverText(point, ...more) {
  const lines = [...pointLines(point), plotText(value("placement", point)), ...more];
  return (data.hollow[point] ? [...lines, "beyond what was measured"] : lines).join("<br>");
}

function rateText(point) {
  return hoverText(
    point,
    `${shown(RATE, point)} ${data.unit}`,
    `90% interval ${interval(RATE_LOW, RATE_HIGH, point)}`,
    `speed-up ${shown("speedup", point)} (${interval("speedup_low", "speedup_high", point)})`,
    `efficiency ${shown("scaling_efficiency", point)} (${interval("scaling_efficiency_low", "scaling_efficiency_high", point)})`,
  );
}

// points by a column from its most on, or from its least
function sorted(points, column, sign = 1) {
  return ascending(points.filter((point) => value(column, point) !== null), (point) => -sign * value(column, point));
}

function extreme(points, column, sign = 1) {
  return sorted(points, column, sign)[0];
}

// what is met at the sliders and nobody chooses
function metText(view) {
  const words = keys.map((each, key) => (each.condition && swept(key) ? each.told[view.state.at[key]] : "")).filter((told) => told);
  return words.length ? `, given ${listed(words)}` : "";
}

// where the sliders stand, as far as figures run over it
function whereText(view) {
  return keys[view.state.x].told[view.state.at[view.state.x]];
}

// a curve's name at the end of a sentence, where there are several
function whose(view, point) {
  return view.lines.length > 1 ? ` – ${nameOf(point)}` : "";
}

// what is seen of a column at the sliders: its most
function mostTold(view, column, tell) {
  const point = extreme(chosenPoints(view), column);
  return point === undefined ? "" : `With ${whereText(view)}, ${tell(shown(column, point))}${whose(view, point)}`;
}

function cheapest(view, column, what) {
  const point = extreme(ranking(view, view.lines.flatMap((each) => each.points)), column, -1);
  return point === undefined ? "" : `Cheapest with ${pointSettings(point, (key) => !key.condition)}${metText(view)}: ${shown(column, point)} ${what}${whose(view, point)}`;
}

// what a figure over a key has beside its column: `ends` of the interval, `log` for whether its axis may be logarithmic, `ticks`
// of the axis, what it reaches `atLeast`, traces `under` and `above` its curves, `labels` at their ends, its `title`, and what it says where there is nothing to draw
function figureOverKey(id, column, { hover, title, ends = [], log = false, ticks = {}, atLeast = 0, under, above, labels, none, table = id }) {
  const mean = (point) => value(column, point),
    within = (lines, keeps) => lines.map((each) => ({ ...each, points: each.points.filter(keeps) })).filter((each) => each.points.length);
  return {
    id,
    title,
    points: (view) => within(view.lines, (point) => mean(point) !== null),
    none,
    draw(view, known, width) {
      const // a log axis has no place for zero, nor for an end that is next to nothing or without end
        logarithmic = log && view.state.ylog && known.some((each) => each.points.some((point) => mean(point) > 0)),
        drawn = logarithmic ? within(known, (point) => mean(point) > 0) : known,
        low = (point) => Math.max(value(ends[0], point), logarithmic ? mean(point) * SMALLEST_SHOWN : 0),
        high = (point) => Math.min(value(ends[1], point), mean(point) / SMALLEST_SHOWN);
      const [below, over] = [under, above].map((traces) => (traces ? traces(view) : []));
      // many intervals upon each other hide what they are of: then only that of the strategy in detail is drawn
      const banded = ({ curve }) => drawn.length <= MOST_BANDS || curve === view.focus;
      const values = (point) => (ends.length ? [low(point), high(point)] : [mean(point)]),
        seen = [...below, ...over].flatMap((trace) => trace.y).concat(drawn.flatMap((each) => each.points.flatMap(values)));
      const yaxis = logarithmic ? logAxis(seen, ticks.tickprefix) : linearAxis(Math.max(atLeast, ...seen), ticks),
        annotations = labels ? labels(view, yaxis, mean) : [],
        margin = keyMargin(view.key);
      return {
        data: [
          ...below,
          ...(ends.length ? drawn.filter(banded).map((each) => bandTrace(view, each, low, mean, high)) : []),
          ...drawn.map((each) => curveTrace(view, each, mean, hover)),
          ...over,
          ...ringTraces(view, drawn, mean),
        ],
        layout: layoutOf({
          margin: { ...margin, r: Math.max(margin.r, ...annotations.map(({ text }) => 12 + LETTER_PX * text.replace(/<.*?>/g, "").length)) },
          annotations,
          xaxis: keyAxis(view.key, view.state.xlog, width),
          yaxis,
          shapes: chosenLine(view),
        }),
      };
    },
    table: (view, known) => tableOf(table, known.flatMap((each) => each.points)),
  };
}

function overReplicas(view) {
  return view.state.x === 0 && swept(0);
}

// of a single curve the lines at the other values of the one key that is swept besides x
function siblings(view) {
  const others = axes.filter((key) => key !== view.state.x);
  if (view.lines.length !== 1 || view.lines[0].flat || others.length !== 1 || keys[others[0]].values.length > MOST_SIBLINGS) {
    return [];
  }
  const [key] = others,
    at = (index) => view.state.at.map((own, each) => (each === key ? index : own));
  return keys[key].texts
    .map((text, index) => ({ ...view.lines[0], name: text, points: line(view.focus, view.state.x, at(index)), here: index === view.state.at[key] }))
    .filter((each) => each.points.length);
}

// their names at their ends, pushed apart where these are close
function endLabels(view, { type, range: [low, high] }, read) {
  const px = (plotElement("throughput").clientHeight - 70) / (high - low),
    at = (point) => (type === "log" ? Math.log10(read(point)) : read(point)),
    drawn = siblings(view).map((each) => ({ ...each, y: at(each.points[each.points.length - 1]) }));
  let least = -Infinity;
  return ascending(drawn, ({ y }) => y).map(({ name, y, here }) => {
    const place = Math.max((y - low) * px, least);
    least = place + LINE_PX;
    const text = here ? `<b>${plotText(name)}</b>` : plotText(name);
    return { ...LABEL, x: 1, xref: "paper", xanchor: "left", xshift: 4, y, yshift: place - (y - low) * px, text };
  });
}

function siblingTraces(view) {
  const rate = (point) => value(RATE, point);
  return siblings(view).filter(({ here }) => !here).map((each) => ({ ...curveTrace(view, each, rate, rateText), mode: "lines", opacity: 0.6, showlegend: false }));
}

function idealTraces(view) {
  const singles = [],
    [low, high] = ends(view);
  // n times this is where the efficiency is 100%; curves of one workload differ a little in it, since the speed-up is a mean of ratios
  view.lines.forEach(({ points: [first] }) => {
    const single = value(RATE, first) / value("speedup", first);
    if (single > 0 && !singles.some((other) => Math.abs(other - single) <= SAME_IDEAL * Math.max(other, single))) {
      singles.push(single);
    }
  });
  const words = (single) => `Ideal: ${written(single, "throughput")} ${data.unit} from each ${view.key.counted}`;
  return overReplicas(view) ? singles.map((single) => referenceTrace([low, high], [single * low, single * high], words(single))) : [];
}

function measuredTraces(view) {
  const drawn = new Set(view.lines.filter((each) => !each.flat).flatMap((each) => each.points)),
    held = data.measured.filter(([point]) => drawn.has(point));
  const text = ([point, rate]) =>
    hoverText(
      point,
      `<b>measured ${written(rate, "throughput")} ${data.unit}</b>`,
      `predicted ${shown(RATE, point)}, ${written(value(RATE, point) / rate - 1, "change")}`,
    );
  const crosses = scatterTrace({
    name: "measured",
    legendgroup: "measured",
    x: held.map(([point]) => xOf(view, point)),
    y: held.map(([, rate]) => rate),
    hovertext: held.map(text),
    marker: { symbol: "x-thin", size: 10, color: INK, line: { color: INK, width: 2 } },
  });
  return held.length ? [crosses] : [];
}

const throughputFigure = figureOverKey("throughput", RATE, {
  title(view) {
    const best = extreme(ranking(view, chosenPoints(view)), RATE),
      who = view.chosen.length < 2 ? "the throughput is" : data.ranked.least ? `steps are fastest by ${nameOf(best)}:` : `${nameOf(best)} is fastest:`;
    const rate = best === undefined ? "" : `${shown(RATE, best)} ${data.unit}`;
    return rate && (siblings(view).length ? `With ${settingsText(view.state.at)}: ${rate}` : `With ${whereText(view)}, ${who} ${rate}`);
  },
  hover: rateText,
  ends: [RATE_LOW, RATE_HIGH],
  log: true,
  ticks: { tickformat: ",~s" },
  under: idealTraces,
  above: (view) => [...siblingTraces(view), ...measuredTraces(view)],
  labels: endLabels,
});

const efficiencyFigure = figureOverKey("efficiency", "scaling_efficiency", {
  title: (view) => mostTold(view, "scaling_efficiency", (most) => `scaling efficiency is ${most}`),
  hover: rateText,
  ends: ["scaling_efficiency_low", "scaling_efficiency_high"],
  ticks: { tickformat: ".0%" },
  under: (view) => [referenceTrace(ends(view), [1, 1], "Ideal: 100%")],
});

const costFigure = figureOverKey("cost", COST, {
  title: (view) => cheapest(view, COST, `for ${data.cost.many}`),
  hover: (point) =>
    hoverText(
      point,
      `${shown(COST, point)} for ${data.cost.many}`,
      `90% interval ${interval(COST_LOW, COST_HIGH, point)}`,
      `${shown("usd_per_hour", point)} an hour for ${shown("nodes", point)} nodes`,
    ),
  ends: [COST_LOW, COST_HIGH],
  log: true,
  ticks: { tickformat: ",~s", tickprefix: "$" },
  none: "Nothing that is chosen has a price.",
});

const staleMeanFigure = figureOverKey("staleness", "staleness_mean", {
  title: (view) => mostTold(view, "staleness_mean", (most) => `gradients are ${most} updates old on average`),
  hover: (point) =>
    hoverText(
      point,
      `mean staleness ${shown("staleness_mean", point)}`,
      `95% below ${shown("staleness_p95", point)}, at most ${shown("staleness_max", point)}`,
    ),
  log: true,
  under(view) {
    const counts = overReplicas(view) ? view.key.values.filter((each) => each > 1) : [];
    return counts.length ? [referenceTrace(counts, counts.map((each) => each - 1), "n − 1")] : [];
  },
  none: "Nothing that is chosen is asynchronous.",
});

const linkFigure = figureOverKey("links", "busiest_link_busy", {
  title: (view) => mostTold(view, "busiest_link_busy", (most) => `the busiest link is in use ${most} of the time`),
  hover(point) {
    const name = value("busiest_link", point);
    const busiest = `busiest link ${shown("busiest_link_busy", point)} busy${name ? ": " + plotText(cut(name, 60)) : ""}`;
    return hoverText(point, busiest, `all links ${shown("links_busy", point)}`);
  },
  ticks: { tickformat: ".0%" },
  atLeast: 1,
  table: "busy",
});
