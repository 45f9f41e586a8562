// Sensitivity over the swept grid: what the next value of each key, to either side, does to the throughput, run by run.

const LETTER_PX = 6.6;

function neighbours(view) {
  const here = view.focus >= 0 ? pointAt(view.focus, view.state.at) : -1;
  if (here < 0) {
    return [];
  }
  const rows = keys
    .map((_, key) => {
      if (place(key, here) < 0) {
        return null;
      }
      const points = line(view.focus, key, view.state.at),
        index = points.indexOf(here);
      const beside = [points[index - 1], points[index + 1]].map((point) =>
        point === undefined
          ? null
          : { point, text: keyText(key, place(key, point)), ...compared(point, here) },
      );
      return beside.some((each) => each) ? { key, here: keyText(key, place(key, here)), less: beside[0], more: beside[1] } : null;
    })
    .filter((row) => row);
  const size = (row) => Math.max(...[row.less, row.more].map((each) => (each ? Math.abs(each.gain) : 0)));
  return rows.sort((one, other) => size(other) - size(one));
}

function besideText(row, beside) {
  const title = `<b>${plotText(keys[row.key].name)} ${beside.text}</b> in place of ${row.here}`;
  return [title, plotText(text("placement", beside.point)), ...comparedText(beside)].join("<br>");
}

const tornadoFigure = {
  id: "around",
  height(view) {
    return 60 + 56 * Math.max(1, neighbours(view).length);
  },
  draw(view, width) {
    const rows = neighbours(view);
    if (!rows.length) {
      return emptyFigure("No neighbour on the grid at these settings.");
    }
    const half = (width - 20) / 2,
      all = rows.flatMap((row, index) => [row.less, row.more].filter((each) => each).map((each) => ({ ...each, index })));
    const labelled = all.map((each) => {
      const words = hasEffect(each) ? `${each.text} ${change(each.gain)}` : `${each.text}: effect not certain`;
      const shown = LETTER_PX * words.length < 0.55 * half ? words : each.text;
      const end = each.gain >= 0 ? Math.max(each.high, 0) : Math.max(-each.low, 0);
      return { ...each, shown, end, room: Math.min(0.75, (LETTER_PX * shown.length + 12) / half) };
    });
    const reach = Math.max(0.01, ...labelled.map((each) => each.end / (1 - each.room)), ...all.flatMap((each) => [-each.low, each.high]));
    const trace = (side, colour, name) => ({
      type: "bar",
      orientation: "h",
      name,
      legendgroup: side,
      hoverinfo: "text",
      y: rows.map((_, row) => row),
      x: rows.map((row) => (row[side] ? row[side].gain : null)),
      width: 0.4,
      offset: -0.16,
      cliponaxis: false,
      marker: { color: colour, line: { width: 0 } },
      error_x: whiskers(rows.map((row) => row[side])),
      hovertext: rows.map((row) => (row[side] ? besideText(row, row[side]) : "")),
    });
    const values = labelled.map((each) => ({
      x: each.gain >= 0 ? each.end : -each.end,
      y: each.index + 0.04,
      xanchor: each.gain >= 0 ? "left" : "right",
      xshift: each.gain >= 0 ? 6 : -6,
      showarrow: false,
      font: { color: INK },
      text: plotText(each.shown),
    }));
    const names = rows.map((row, index) => ({
      x: 0,
      xref: "paper",
      xanchor: "left",
      y: index - 0.2,
      yref: "y",
      yanchor: "bottom",
      showarrow: false,
      font: { color: INK },
      text: plotText(cut(`${keys[row.key].name}, now ${row.here}`, Math.floor(width / 6.8))),
    }));
    return {
      data: [trace("less", "var(--series-6)", "less"), trace("more", "var(--series-1)", "more")],
      layout: layoutOf({
        barmode: "overlay",
        margin: { l: 8, r: 12, t: 14, b: 32 },
        annotations: [...names, ...values],
        xaxis: axisOf("", {
          range: [-reach, reach],
          tickformat: "+.0%",
          nticks: 6,
          zeroline: true,
          zerolinecolor: MUTED,
          fixedrange: true,
        }),
        yaxis: { range: [rows.length - 0.5, -0.65], fixedrange: true, showgrid: false, zeroline: false, showticklabels: false },
      }),
    };
  },
  describe(view) {
    const told = neighbours(view).map(
      (row) =>
        `${keys[row.key].name} in place of ${row.here}: ` +
        [row.less, row.more]
          .filter((each) => each)
          .map((each) => `${each.text} ${change(each.gain)}${hasEffect(each) ? "" : ", effect not certain"}`)
          .join(", "),
    );
    const name = view.focus >= 0 ? curves[view.focus].name : "";
    const title = `Change of throughput to the next value on the grid, ${name} at ${settingsText(view.state.at)}`;
    return `${title}. ${told.join("; ") || "No neighbour"}.`;
  },
  table(view) {
    const rows = neighbours(view).flatMap((row) =>
      [row.less, row.more]
        .filter((each) => each)
        .map((each) => [
          keys[row.key].name,
          scaling(view.focus),
          row.here,
          each.text,
          each.gain,
          each.low,
          each.high,
          number("throughput", each.point),
        ]),
    );
    return {
      columns: [
        ["What is changed", "text"],
        ["Scaling", "text"],
        ["From", "text"],
        ["To", "text"],
        ["Throughput changes by", "change"],
        ["Low", "change"],
        ["High", "change"],
        ["Throughput (samples/s)", "number"],
      ].map(([name, kind]) => ({ name, kind })),
      rows,
    };
  },
};
