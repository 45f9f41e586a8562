// The strategy in detail against each other that is chosen, at the sliders' settings.

const ONE_LINE_PX = 620;
// no difference first, so that it always has its label
const RATIOS = [1, 0.001, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10, 30, 100, 1000];

function opponents(view) {
  const others = view.chosen.filter((each) => view.here >= 0 && each.curve !== view.focus && pairOf(view.here, each.chosen));
  return ascending(others.map(({ chosen, name, curve }) => ({ ...compared(view.here, chosen), name, curve })), (each) => each.gain);
}

function winsText(each) {
  const counted = each.runs ? `, faster in ${each.wins} of ${each.runs} runs` : ", runs share no draws";
  return gainText(each) + counted;
}

const againstFigure = {
  id: "against",
  points: opponents,
  title(view, others) {
    const beaten = others.filter((each) => hasEffect(each) && each.gain > 0).length,
      rivals = others.length > 1 ? `${beaten || "any"} of ${others.length} others` : "the other";
    return `With ${whereText(view)}, ${view.name} is ${beaten ? "" : "not certainly "}faster than ${rivals}${beaten && others.length === 1 ? `: ${winsText(others[0])}` : ""}`;
  },
  none: "Nothing else is chosen that has a result at these settings.",
  height: (view, others, width) => 64 + (width < ONE_LINE_PX ? 66 : 50) * Math.max(1, Math.min(others.length, MOST_BARS)),
  draw(view, others, width) {
    const rows = evenly(others, MOST_BARS);
    // on a scale of ratios twice as fast and half as fast are equally far from no difference
    const reached = rows.flatMap((each) => [1 + each.low, 1 + each.high]).map((ratio) => Math.max(ratio, SMALLEST_SHOWN)),
      low = Math.log10(Math.min(0.98, ...reached)),
      high = Math.log10(Math.max(1.02, ...reached)),
      room = 0.06 * (high - low);
    const at = (ratio) => (Math.log10(ratio) - low + room) / (high - low + 2 * room);
    const ticks = RATIOS.map((ratio) => ({ value: ratio, at: at(ratio), text: written(ratio - 1, "whole_change") }));
    const winners = rows.map((each) => curves[each.gain > 0 ? view.focus : each.curve]);
    const labels = rows.map((each, row) => {
      const words = winsText(each),
        letters = Math.floor((width - 20) / LETTER_PX);
      const lines = `${plotText(cut(each.name, letters))}<br>${words}`,
        line = plotText(`${cut(each.name, letters - words.length - 2)}: ${words}`);
      return { ...rowLabel(width < ONE_LINE_PX ? lines : line, row, 0.14), align: "left" };
    });
    const [gains, lows, highs] = ["gain", "low", "high"].map((name) => rows.map((each) => 1 + each[name]));
    const hover = (each) =>
      [`<b>${plotText(cut(view.name, 60))}</b>`, `against ${plotText(cut(each.name, 60))}`, ...comparedText(each)].join("<br>");
    return {
      data: [
        scatterTrace({
          x: gains,
          y: rows.map((_, row) => row + 0.1),
          marker: {
            color: winners.map(({ colour }, row) => (hasEffect(rows[row]) ? colour : MUTED)),
            size: 10,
            symbol: winners.map(({ symbol }) => symbol),
          },
          error_x: whiskers(gains, lows, highs, WHISKER),
          hovertext: rows.map(hover),
        }),
      ],
      layout: layoutOf({
        margin: { l: 10, r: 22, t: 12, b: 32 },
        annotations: labels,
        shapes: [upright(1)],
        xaxis: axisOf("", {
          type: "log",
          range: [low - room, high + room],
          ...ticksOf(thinned(ticks.filter((tick) => tick.at >= 0 && tick.at <= 1), width - 40)),
          tickangle: 0,
          fixedrange: true,
        }),
        yaxis: rowsAxis(rows.length, 0.75),
      }),
    };
  },
  table(view, others) {
    const rows = others.map((each) => {
      const names = [view.name, scaling(view.focus), each.name, scaling(each.curve)];
      return [...names, each.gain, each.low, each.high, each.runs ? each.wins : null, each.runs];
    });
    return computedTable("against", rows);
  },
};
