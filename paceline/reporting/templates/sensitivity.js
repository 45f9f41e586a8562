// Sensitivity over the swept grid: what the next value of each key, to either side, does to the throughput, run by run.

// for each key the points beside the one at the sliders, those that change most first
function neighbours(view) {
  const beside = (key, point) => (point === undefined ? [] : [{ point, text: keyText(key, point), ...compared(point, view.here) }]);
  const rows = keys.map((each, key) => {
    const points = view.here >= 0 && place(key, view.here) >= 0 ? line(view.focus, key, view.state.at) : [],
      index = points.indexOf(view.here);
    const [[less], [more]] = [points[index - 1], points[index + 1]].map((point) => beside(key, point));
    return { name: each.name, here: points.length ? keyText(key, view.here) : "", less, more, each: [less, more].filter((each) => each) };
  });
  const size = (row) => Math.max(...row.each.map(({ gain }) => Math.abs(gain)));
  return ascending(rows.filter((row) => row.each.length), (row) => -size(row));
}

const sensitivityFigure = {
  id: "around",
  points: neighbours,
  title(view, [row]) {
    const [best] = ascending(row.each.filter(hasEffect), (each) => -Math.abs(each.gain));
    return best ? `${row.name} matters most: ${best.text} in place of ${row.here} changes ${data.ranked.what} by ${written(best.gain, "change")}` : "";
  },
  none: "No neighbour on the grid at these settings.",
  height: (view, rows) => 60 + 56 * Math.max(1, rows.length),
  draw(view, rows, width) {
    const half = (width - 20) / 2;
    const labelled = rows.flatMap((row, index) =>
      row.each.map((each) => {
        const words = hasEffect(each) ? `${each.text} ${written(each.gain, "change")}` : `${each.text}: ${data.words.uncertain}`,
          kept = LETTER_PX * words.length < 0.55 * half ? words : each.text,
          end = Math.max(each.gain >= 0 ? each.high : -each.low, 0);
        return { ...each, index, side: each === row.less ? "less" : "more", words: kept, end, room: Math.min(0.75, (LETTER_PX * kept.length + 12) / half) };
      }),
    );
    const reach = Math.max(0.01, ...labelled.flatMap((each) => [each.end / (1 - each.room), -each.low, each.high]));
    const hover = (row, each) => {
      const title = `<b>${plotText(row.name)} ${each.text}</b> in place of ${row.here}`;
      return [title, plotText(value("placement", each.point)), ...comparedText(each)].join("<br>");
    };
    // two bars to one side, each in its half of the row
    const beside = ({ less, more }) => less && more && less.gain < 0 === more.gain < 0,
      middle = (row, side) => (beside(row) ? (side === "less" ? -0.06 : 0.14) : 0.04);
    const trace = (side, colour) => {
      const [gains, lows, highs] = ["gain", "low", "high"].map((name) => rows.map((row) => (row[side] ? row[side][name] : null)));
      return barTrace({
        name: side,
        legendgroup: side,
        y: rows.map((_, row) => row),
        x: gains,
        width: rows.map((row) => (beside(row) ? 0.18 : 0.4)),
        offset: rows.map((row) => middle(row, side) - (beside(row) ? 0.09 : 0.2)),
        cliponaxis: false,
        marker: { color: colour, line: { width: 0 } },
        error_x: whiskers(gains, lows, highs, WHISKER),
        hovertext: rows.map((row) => (row[side] ? hover(row, row[side]) : "")),
      });
    };
    const values = labelled.map(({ gain, end, index, side, words }) => {
      const [sign, xanchor] = gain >= 0 ? [1, "left"] : [-1, "right"];
      return { ...LABEL, x: sign * end, y: index + middle(rows[index], side), xanchor, xshift: 6 * sign, text: plotText(words) };
    });
    const names = rows.map((row, index) => rowLabel(plotText(cut(`${row.name}, now ${row.here}`, Math.floor(width / 6.8))), index, 0.2));
    const range = { range: [-reach, reach], tickformat: "+.0%", nticks: 6, zeroline: true, zerolinecolor: MUTED, fixedrange: true };
    return {
      data: [trace("less", "var(--series-6)"), trace("more", "var(--series-1)")],
      layout: layoutOf({
        barmode: "overlay",
        margin: { l: 8, r: 12, t: 14, b: 32 },
        annotations: [...names, ...values],
        xaxis: axisOf("", range),
        yaxis: rowsAxis(rows.length, 0.65),
      }),
    };
  },
  table(view, rows) {
    const cells = (row, each) => {
      const names = [row.name, scaling(view.focus), row.here, each.text];
      return [...names, each.gain, each.low, each.high, value(RANK, each.point)];
    };
    return computedTable("around", rows.flatMap((row) => row.each.map((each) => cells(row, each))));
  },
};
