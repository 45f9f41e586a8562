// Where a step's time goes: over the swept key for one curve, and at the chosen settings for each.

const MOST_BARS = 16,
  ROW_PX = 27;

function stepTotal(point) {
  return parts.reduce((sum, [part]) => sum + number(part, point), 0);
}
function shareOf(part, point) {
  const total = stepTotal(point);
  return total > 0 ? number(part, point) / total : 0;
}

function evenly(items, most) {
  if (items.length <= most) {
    return items;
  }
  return Array.from({ length: most }, (_, index) => items[Math.round((index * (items.length - 1)) / (most - 1))]);
}

function partTraces(points) {
  return parts
    .filter(([part]) => points.some((point) => number(part, point) > 0))
    .map(([part, name]) => ({
      type: "bar",
      orientation: "h",
      name,
      legendgroup: part,
      hoverinfo: "text",
      x: points.map((point) => shareOf(part, point)),
      y: points.map((_, row) => row),
      hovertext: points.map((point) =>
        [...pointLines(point), `<b>${name}</b>: ${duration(number(part, point))}, ${percent(shareOf(part, point))} of a step`].join("<br>"),
      ),
      marker: { color: `var(--part-${part.replace(/_/g, "-")})`, line: { color: PAPER, width: 1 } },
    }));
}

function stepTexts(points) {
  return points.map((point, row) => ({
    x: 1,
    xref: "paper",
    y: row,
    yref: "y",
    text: duration(number("step_mean", point)),
    xanchor: "left",
    xshift: 8,
    showarrow: false,
  }));
}

function barsLayout(rows, changes) {
  return layoutOf({
    barmode: "stack",
    bargap: 0.22,
    xaxis: { range: [0, 1], tickformat: ".0%", tickvals: [0, 0.25, 0.5, 0.75, 1], gridcolor: RULE, zeroline: false, fixedrange: true },
    yaxis: { range: [rows - 0.5, -0.5], fixedrange: true, showgrid: false, zeroline: false, showticklabels: false },
    ...changes,
  });
}

const HEAD = { yref: "paper", y: 1, yshift: 13, showarrow: false, font: { size: 11 }, xref: "paper" };

function stepsTable(points) {
  const columns = [
    ...parts.map(([part, name]) => numberColumn(name, "seconds", part)),
    numberColumn("Mean step", "seconds", "step_mean"),
    numberColumn("Hidden communication", "seconds", "hidden_communication"),
  ];
  return tableOf([...pointColumns(), ...columns], points);
}

function stepsTold(points, title) {
  if (!points.length) {
    return title + ". No result at these settings.";
  }
  const told = (point) =>
    parts
      .filter(([part]) => shareOf(part, point) > 0)
      .map(([part, name]) => `${name.toLowerCase()} ${percent(shareOf(part, point))}`)
      .join(", ");
  return (
    `${title}. ` +
    points.map((point) => `${pointSettings(point)}: ${told(point)}, of ${duration(number("step_mean", point))}`).join("; ") +
    "."
  );
}

const stepsOverFigure = {
  id: "steps",
  points(view) {
    return evenly(view.focus >= 0 ? line(view.focus, view.state.x, view.state.at) : [], MOST_BARS);
  },
  height(view) {
    return 60 + ROW_PX * Math.max(3, this.points(view).length);
  },
  draw(view) {
    const points = this.points(view);
    if (!points.length) {
      return emptyFigure();
    }
    const texts = points.map((point) => (place(view.state.x, point) < 0 ? "any" : keyText(view.state.x, place(view.state.x, point))));
    const left = Math.max(48, 14 + 6.6 * Math.max(...texts.map((words) => words.length)), 8 + 5.8 * xName(view).length);
    return {
      data: partTraces(points),
      layout: barsLayout(points.length, {
        margin: { l: left, r: 72, t: 26, b: 28 },
        annotations: [
          ...stepTexts(points),
          { ...HEAD, x: 1, text: "mean step", xanchor: "left", xshift: 8 },
          { ...HEAD, x: 0, text: xName(view).toLowerCase(), xanchor: "right", xshift: -4 },
        ],
        yaxis: {
          range: [points.length - 0.5, -0.5],
          fixedrange: true,
          showgrid: false,
          zeroline: false,
          tickmode: "array",
          tickvals: points.map((_, row) => row),
          ticktext: texts,
        },
      }),
    };
  },
  describe(view) {
    return stepsTold(this.points(view), `Where a step’s time goes: ${view.focus >= 0 ? curves[view.focus].name : ""}`);
  },
  table(view) {
    return stepsTable(view.focus >= 0 ? line(view.focus, view.state.x, view.state.at) : []);
  },
};

const stepsHereFigure = {
  id: "steps-here",
  height(view) {
    return 56 + 50 * Math.max(2, view.chosen.length);
  },
  draw(view, width) {
    const points = view.chosen.map((each) => each.chosen);
    if (!points.length) {
      return emptyFigure();
    }
    const names = view.chosen.map((each, row) => ({
      x: 0,
      xref: "paper",
      xanchor: "left",
      y: row - 0.26,
      yref: "y",
      yanchor: "bottom",
      text: plotText(cut(each.name, Math.floor(width / 6.8))),
      showarrow: false,
      font: { color: INK },
    }));
    return {
      data: partTraces(points).map((trace) => ({ ...trace, width: 0.44, offset: -0.2 })),
      layout: barsLayout(points.length, {
        margin: { l: 8, r: 72, t: 26, b: 28 },
        annotations: [...names, ...stepTexts(points), { ...HEAD, x: 1, text: "mean step", xanchor: "left", xshift: 8 }],
        yaxis: { range: [points.length - 0.5, -0.62], fixedrange: true, showgrid: false, zeroline: false, showticklabels: false },
      }),
    };
  },
  describe(view) {
    const told = view.chosen.slice(0, 7).map(
      (each) =>
        `${each.name}: ` +
        parts
          .filter(([part]) => shareOf(part, each.chosen) > 0)
          .map(([part, name]) => `${name.toLowerCase()} ${percent(shareOf(part, each.chosen))}`)
          .join(", "),
    );
    return `Where a step’s time goes at ${settingsText(view.state.at)}. ${told.join("; ") || "No result"}.`;
  },
  table(view) {
    return stepsTable(view.chosen.map((each) => each.chosen));
  },
};

// what limits each curve: one line for each stretch of x with the same limit
function limitStretches(view, each) {
  const stretches = [];
  each.points.forEach((point) => {
    const last = stretches[stretches.length - 1];
    if (last && text("limit", last.to) === text("limit", point)) {
      last.to = point;
    } else {
      stretches.push({ from: point, to: point });
    }
  });
  return stretches.map(({ from, to }) => {
    const [first, last] = [from, to].map((point) =>
      place(view.state.x, point) < 0 ? "any" : keyText(view.state.x, place(view.state.x, point)),
    );
    return { where: first === last ? first : `${first} to ${last}`, text: text("limit_text", to), at: first === last ? "" : last };
  });
}

function limitItem(stretch) {
  const words = element("span", {}, element("bdi", { textContent: stretch.text }));
  if (stretch.at) {
    words.append(element("span", { className: "where", textContent: ` (figures at ${stretch.at})` }));
  }
  return element("li", {}, element("span", { className: "where", textContent: stretch.where }), words);
}

function fillLimits(view) {
  const panels = view.lines.map((each) => {
    const items = limitStretches(view, each).map((stretch) => limitItem(stretch));
    return element(
      "div",
      { className: "panel" },
      element("h3", {}, element("bdi", { textContent: each.name })),
      element("ul", { className: "limits" }, ...items),
    );
  });
  document.getElementById("limits-over").textContent = `, by ${xName(view).toLowerCase()}`;
  document.getElementById("limits").replaceChildren(...panels);
}
