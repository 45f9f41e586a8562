// The strategy in detail against each other that is chosen, at the sliders' settings.

const ONE_LINE_PX = 620;
// no difference first, so that it always has its label
const RATIOS = [1, 0.001, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10, 30, 100, 1000];

function opponents(view) {
  const here = view.focus >= 0 ? pointAt(view.focus, view.state.at) : -1;
  if (here < 0) {
    return [];
  }
  return view.chosen
    .filter((each) => each.curve !== view.focus)
    .map((each) => ({ ...compared(here, each.chosen), name: each.name, curve: each.curve, point: each.chosen }))
    .sort((one, other) => one.gain - other.gain);
}

function winsText(each) {
  const counted = each.runs ? `, faster in ${each.wins} of ${each.runs} runs` : ", runs share no draws";
  return `${hasEffect(each) ? change(each.gain) : "no difference seen"}${counted}`;
}

const againstFigure = {
  id: "against",
  rows(view) {
    return evenly(opponents(view), MOST_BARS);
  },
  height(view, width) {
    return 64 + (width < ONE_LINE_PX ? 66 : 50) * Math.max(1, this.rows(view).length);
  },
  draw(view, width) {
    const rows = this.rows(view);
    if (!rows.length) {
      return emptyFigure("Nothing else is chosen that has a result at these settings.");
    }
    // on a scale of ratios twice as fast and half as fast are equally far from no difference
    const ends = rows.flatMap((each) => [1 + each.low, 1 + each.high]).map((ratio) => Math.max(ratio, SMALLEST_SHOWN)),
      low = Math.log10(Math.min(0.98, ...ends)),
      high = Math.log10(Math.max(1.02, ...ends)),
      room = 0.06 * (high - low);
    const ticks = thinned(
      RATIOS.map((ratio) => ({ value: ratio, at: (Math.log10(ratio) - low + room) / (high - low + 2 * room), text: wholeChange(ratio - 1) })).filter(
        (tick) => tick.at >= 0 && tick.at <= 1,
      ),
      width - 40,
    );
    const colours = rows.map((each) => (hasEffect(each) ? seriesColour(each.gain > 0 ? view.focus : each.curve) : MUTED));
    const labels = rows.map((each, row) => {
      const words = winsText(each),
        letters = Math.floor((width - 20) / LETTER_PX);
      const base = { xref: "paper", yref: "y", yanchor: "bottom", showarrow: false, font: { color: INK }, y: row - 0.14 };
      const told =
        width < ONE_LINE_PX
          ? `${plotText(cut(each.name, letters))}<br>${words}`
          : plotText(`${cut(each.name, letters - words.length - 2)}: ${words}`);
      return { ...base, x: 0, xanchor: "left", align: "left", text: told };
    });
    return {
      data: [
        {
          type: "scatter",
          mode: "markers",
          hoverinfo: "text",
          x: rows.map((each) => 1 + each.gain),
          y: rows.map((_, row) => row + 0.1),
          marker: { color: colours, size: 10, symbol: rows.map((each) => markerSymbol(each.gain > 0 ? view.focus : each.curve)) },
          error_x: whiskers(rows, (gain) => 1 + gain),
          hovertext: rows.map((each) =>
            [`<b>${plotText(cut(curves[view.focus].name, 60))}</b>`, `against ${plotText(cut(each.name, 60))}`, ...comparedText(each)].join(
              "<br>",
            ),
          ),
        },
      ],
      layout: layoutOf({
        margin: { l: 10, r: 22, t: 12, b: 32 },
        annotations: labels,
        shapes: [{ type: "line", xref: "x", yref: "paper", x0: 1, x1: 1, y0: 0, y1: 1, line: { color: MUTED, width: 1 }, layer: "below" }],
        xaxis: axisOf("", {
          type: "log",
          range: [low - room, high + room],
          tickmode: "array",
          tickvals: ticks.map((tick) => tick.value),
          ticktext: ticks.map((tick) => tick.text),
          tickangle: 0,
          fixedrange: true,
        }),
        yaxis: { range: [rows.length - 0.5, -0.75], fixedrange: true, showgrid: false, zeroline: false, showticklabels: false },
      }),
    };
  },
  describe(view) {
    const name = view.focus >= 0 ? curves[view.focus].name : "";
    const told = this.rows(view).map((each) => `against ${each.name}: ${comparedText(each).join(", ")}`);
    return `${name} at ${settingsText(view.state.at)}. ${told.join("; ") || "Nothing to compare it with"}.`;
  },
  table(view) {
    const name = view.focus >= 0 ? curves[view.focus].name : "";
    return {
      columns: [
        ["Strategy", "text"],
        ["Scaling", "text"],
        ["Against", "text"],
        ["Scaling of that", "text"],
        ["Faster by", "change"],
        ["Low", "change"],
        ["High", "change"],
        ["Faster in runs", "count"],
        ["Of runs", "count"],
      ].map(([title, kind]) => ({ name: title, kind })),
      rows: opponents(view).map((each) => [
        name,
        scaling(view.focus),
        each.name,
        scaling(each.curve),
        each.gain,
        each.low,
        each.high,
        each.runs ? each.wins : null,
        each.runs,
      ]),
    };
  },
};
