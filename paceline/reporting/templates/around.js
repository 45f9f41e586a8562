// Sensitivity over the swept grid: what the next value of each key, to either side, does to the throughput.

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
          : {
              point,
              text: keyText(key, place(key, point)),
              gain: number("throughput", point) / number("throughput", here) - 1,
              low: number("low", point) / number("throughput", here) - 1,
              high: number("high", point) / number("throughput", here) - 1,
            },
      );
      return beside.some((each) => each) ? { key, here: keyText(key, place(key, here)), less: beside[0], more: beside[1] } : null;
    })
    .filter((row) => row);
  const size = (row) => Math.max(...[row.less, row.more].map((each) => (each ? Math.abs(each.gain) : 0)));
  return rows.sort((one, other) => size(other) - size(one));
}

function besideText(row, beside) {
  const lines = [`<b>${plotText(keys[row.key].name)} ${beside.text}</b> in place of ${row.here}`, `throughput ${change(beside.gain)}`];
  return [...lines, `90% interval ${change(beside.low)} to ${change(beside.high)}`].join("<br>");
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
    const reach = Math.max(0.01, ...rows.flatMap((row) => [row.less, row.more].map((each) => (each ? Math.abs(each.gain) : 0)))) * 1.32;
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
      text: rows.map((row) => (row[side] ? row[side].text : "")),
      textposition: "outside",
      cliponaxis: false,
      textfont: { color: INK },
      marker: { color: colour, line: { width: 0 } },
      hovertext: rows.map((row) => (row[side] ? besideText(row, row[side]) : "")),
    });
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
        annotations: names,
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
          .map((each) => `${each.text} ${change(each.gain)}`)
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
