// Where a step's time goes: over the swept key for one curve, and at the chosen settings for each.

const MOST_BARS = 16,
  ROW_PX = 27,
  LEAST_LABELLED = 0.08,
  MOST_LIMITS = 3;

function shareOf(part, point) {
  const total = data.parts.reduce((sum, [each]) => sum + value(each, point), 0);
  return total > 0 ? value(part, point) / total : 0;
}

function evenly(items, most) {
  const at = (index) => Math.round((index * (items.length - 1)) / (most - 1));
  return items.length <= most ? items : Array.from({ length: most }, (_, index) => items[at(index)]);
}

function partTraces(points, changes) {
  const text = (part, point) =>
    `<b>${data.columns[part].heading}</b>: ${shown(part, point)}, ${written(shareOf(part, point), "share")} of a step`;
  return data.parts
    .filter(([part]) => points.some((point) => value(part, point) > 0))
    .map(([part, colour, onIt]) =>
      barTrace({
        name: data.columns[part].heading,
        legendgroup: part,
        x: points.map((point) => shareOf(part, point)),
        y: points.map((_, row) => row),
        hovertext: points.map((point) => [...pointLines(point), text(part, point)].join("<br>")),
        marker: { color: colour, line: { color: PAPER, width: 1 } },
        text: points.map((point) => (shareOf(part, point) >= LEAST_LABELLED ? written(shareOf(part, point), "share") : "")),
        textposition: "inside",
        insidetextanchor: "middle",
        insidetextfont: { color: onIt },
        textangle: 0,
        constraintext: "inside",
        ...changes,
      }),
    );
}

function headText(x, words, changes) {
  return { text: words, x, xref: "paper", y: 1, yref: "paper", yshift: 13, showarrow: false, font: { size: 11 }, ...changes };
}

// bars beside the mean step that each is the whole of
function barsLayout(points, left, annotations, yaxis) {
  const beside = { xanchor: "left", xshift: 8 };
  const steps = points.map((point, row) => {
    return { x: 1, xref: "paper", y: row, yref: "y", text: shown("step_mean_s", point), showarrow: false, ...beside };
  });
  return layoutOf({
    barmode: "stack",
    uniformtext: { minsize: 10, mode: "hide" },
    bargap: 0.22,
    margin: { l: left, r: 72, t: 26, b: 28 },
    annotations: [...annotations, ...steps, headText(1, "mean step", beside)],
    xaxis: shareAxis(1),
    yaxis,
  });
}

// what a step consists of, not what limits it: that is said of each result
function largestParts(point) {
  const [first, second] = ascending(data.parts.map(([name]) => name), (part) => -shareOf(part, point));
  const told = (part) => `${written(shareOf(part, point), "share")} ${data.columns[part].heading.toLowerCase()}`;
  return `A step is ${listed([first, second].filter((part) => shareOf(part, point) > 0).map(told))}`;
}

function focusLine(view) {
  return view.focus >= 0 ? line(view.focus, view.state.x, view.state.at) : [];
}

const stepsOverFigure = {
  id: "steps",
  points: focusLine,
  title(view, points) {
    const [first, last] = [points[0], points[points.length - 1]];
    const change = (part) => shareOf(part, last) - shareOf(part, first),
      [most] = ascending(data.parts.map(([part]) => part), (part) => -Math.abs(change(part))),
      name = data.columns[most].heading,
      [from, to] = [first, last].map((point) => written(shareOf(most, point), "share"));
    const ends = `from ${keyText(view.state.x, first)} to ${keyText(view.state.x, last)} ${view.key.name.toLowerCase()}`;
    return from === to ? largestParts(first) : `${name} ${change(most) > 0 ? "grows" : "falls"} from ${from} to ${to} of a step, ${ends}`;
  },
  height: (view, every) => 60 + ROW_PX * Math.max(3, Math.min(every.length, MOST_BARS)),
  draw(view, every) {
    const points = evenly(every, MOST_BARS),
      texts = points.map((point) => keyText(view.state.x, point));
    const left = Math.max(48, 14 + LETTER_PX * Math.max(...texts.map((words) => words.length)), 8 + 5.8 * view.key.name.length);
    const head = headText(0, view.key.name.toLowerCase(), { xanchor: "right", xshift: -4 });
    return { data: partTraces(points), layout: barsLayout(points, left, [head], rowsAxis(points.length, 0.5, texts)) };
  },
  table: (view, points) => tableOf("steps", points),
};

const stepsHereFigure = {
  id: "steps-here",
  title: (view) => (view.here < 0 ? "" : largestParts(view.here) + whose(view, view.here)),
  points: chosenPoints,
  height: (view, points) => 56 + 50 * Math.max(2, points.length),
  draw(view, points, width) {
    const names = view.chosen.map((each, row) => rowLabel(plotText(cut(each.name, Math.floor(width / 6.8))), row, 0.26));
    const thin = { width: 0.44, offset: -0.2 };
    return { data: partTraces(points, thin), layout: barsLayout(points, 8, names, rowsAxis(points.length, 0.62)) };
  },
  table: (view, points) => tableOf("steps", points),
};

// what limits a curve: one line for each stretch of x with the same limit
function limitStretches(view, points) {
  const stretches = [];
  points.forEach((point) => {
    const last = stretches[stretches.length - 1];
    if (last && value("bottleneck_label", last.to) === value("bottleneck_label", point)) {
      last.to = point;
    } else {
      stretches.push({ from: point, to: point });
    }
  });
  return stretches.map(({ from, to }) => {
    const [first, last] = [from, to].map((point) => keyText(view.state.x, point));
    return { where: first === last ? first : `${first} to ${last}`, text: value("bottleneck_text", to), at: first === last ? "" : last };
  });
}

function limitItem({ where, text, at }) {
  const faint = (words) => element("span", { className: "where", textContent: words });
  const words = element("span", {}, element("bdi", { textContent: text }), ...(at ? [faint(` (figures at ${at})`)] : []));
  return element("li", {}, faint(where), words);
}

function fillLimits(view) {
  const panel = ({ name, points }) => {
    const items = limitStretches(view, points).map(limitItem);
    const heading = element("h3", {}, element("bdi", { textContent: name }));
    return element("div", { className: "panel" }, heading, element("ul", { className: "limits" }, ...items));
  };
  document.getElementById("limits-over").textContent = `, by ${view.key.name.toLowerCase()}`;
  // of many the one in detail; the others for who asks
  const few = view.lines.length <= MOST_LIMITS,
    [first, others] = [view.lines.filter((each) => few || each.curve === view.focus), view.lines.filter((each) => each.curve !== view.focus)];
  document.getElementById("limits").replaceChildren(...first.map(panel));
  document.getElementById("limits-of-others").hidden = few;
  document.getElementById("limits-more").replaceChildren(...(few ? [] : others.map(panel)));
}
