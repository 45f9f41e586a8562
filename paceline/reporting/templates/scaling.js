// Figures over the swept key that x is: throughput, efficiency and cost.

const SMALLEST_SHOWN = 1e-3,
  SAME_IDEAL = 0.05;

function yAxis(view, values, prefix = "") {
  return view.state.ylog ? logAxis(values, "", prefix) : linearAxis(Math.max(...values), "", { tickformat: ",~s", tickprefix: prefix });
}

function pointSettings(point) {
  return keys
    .map((_, key) => key)
    .filter((key) => place(key, point) >= 0 && (swept(key) || key === 0))
    .map((key) => keyCounted(key, place(key, point)))
    .join(", ");
}

function pointLines(point) {
  return [`<b>${plotText(cut(curves[data.curve[point]].name, 60))}</b>`, plotText(pointSettings(point))];
}

function hoverText(point, ...more) {
  const lines = [...pointLines(point), plotText(text("placement", point)), ...more];
  return (number("beyond", point) ? [...lines, "beyond what was measured"] : lines).join("<br>");
}

function efficiencyEnds(point) {
  return `${percent(number("efficiency_low", point))} to ${percent(number("efficiency_high", point))}`;
}

function rateText(point) {
  const spread = `90% interval ${amount(number("low", point))} to ${amount(number("high", point))}`;
  return hoverText(
    point,
    `${amount(number("throughput", point))} samples/s`,
    spread,
    `speed-up ${amount(number("speedup", point))} (${amount(number("speedup_low", point))} to ${amount(number("speedup_high", point))})`,
    `efficiency ${percent(number("efficiency", point))} (${efficiencyEnds(point)})`,
  );
}

// what is seen, for those who do not see it: each curve's ends, and where it stands at the sliders
function described(view, what, y, write) {
  if (!view.lines.length) {
    return what + ". No result at these settings.";
  }
  const told = view.lines.slice(0, 7).map((each) => {
    const first = each.points[0],
      last = each.points[each.points.length - 1],
      held = [`${write(y(first))}${each.flat ? "" : " at " + keyText(view.state.x, place(view.state.x, first))}`];
    if (last !== first) {
      held.push(`${write(y(last))} at ${keyText(view.state.x, place(view.state.x, last))}`);
    }
    const here =
      each.chosen >= 0 && each.chosen !== first && each.chosen !== last
        ? `, ${write(y(each.chosen))} at the chosen ${keyText(view.state.x, view.state.at[view.state.x])}`
        : "";
    return `${each.name}: ${held.join(" to ")}${here}`;
  });
  if (view.lines.length > 7) {
    told.push(`${view.lines.length - 7} more`);
  }
  return `${what} against ${xName(view).toLowerCase()}. ${told.join("; ")}.`;
}

function overX(view, columns) {
  return tableOf(
    [...pointColumns(), ...columns],
    view.lines.flatMap((each) => each.points),
  );
}

function idealTraces(view) {
  if (xKey(view).path !== "replicas" || !swept(view.state.x)) {
    return [];
  }
  const singles = [],
    [low, high] = ends(view);
  // n times this is where the efficiency is 100%; curves of one workload differ a little in it, since the speed-up is a mean of ratios
  view.lines.forEach((each) => {
    const first = each.points[0],
      single = number("throughput", first) / number("speedup", first);
    if (single > 0 && !singles.some((other) => Math.abs(other - single) <= SAME_IDEAL * Math.max(other, single))) {
      singles.push(single);
    }
  });
  return singles.map((single) =>
    referenceTrace([low, high], [single * low, single * high], `Ideal: ${amount(single)} samples/s from each replica`),
  );
}

function measuredTrace(view) {
  const at = new Map();
  view.lines.filter((each) => !each.flat).forEach((each) => each.points.forEach((point) => at.set(point, each.curve)));
  const held = data.measured.filter(([point]) => at.has(point));
  if (!held.length) {
    return [];
  }
  return [
    {
      type: "scatter",
      mode: "markers",
      name: "measured",
      legendgroup: "measured",
      hoverinfo: "text",
      x: held.map(([point]) => xOf(view, point)),
      y: held.map(([, value]) => value),
      hovertext: held.map(([point, value]) =>
        hoverText(
          point,
          `<b>measured ${amount(value)} samples/s</b>`,
          `predicted ${amount(number("throughput", point))}, ${change(number("throughput", point) / value - 1)}`,
        ),
      ),
      marker: { symbol: "x-thin", size: 10, color: INK, line: { color: INK, width: 2 } },
    },
  ];
}

const throughputFigure = {
  id: "throughput",
  draw(view, width) {
    const mean = (point) => number("throughput", point),
      high = (point) => number("high", point);
    // a log axis has no place for zero
    const low = (point) => (view.state.ylog ? Math.max(number("low", point), mean(point) * SMALLEST_SHOWN) : number("low", point));
    const ideals = idealTraces(view),
      measured = measuredTrace(view);
    const seen = view.lines
      .flatMap((each) => each.points.flatMap((point) => [low(point), high(point)]))
      .concat(...ideals.map((trace) => trace.y), ...measured.map((trace) => trace.y));
    return {
      data: [
        ...ideals,
        ...view.lines.map((each) => bandTrace(view, each, low, mean, high)),
        ...view.lines.map((each) => curveTrace(view, each, mean, rateText)),
        ...measured,
        ...ringTraces(view, view.lines, mean),
      ],
      layout: layoutOf({
        margin: keyMargin(view.state.x),
        xaxis: keyAxis(view.state.x, view.state.xlog, width),
        yaxis: yAxis(view, seen),
        shapes: chosenLine(view),
      }),
    };
  },
  describe(view) {
    return described(
      view,
      "Throughput in samples/s",
      (point) => number("throughput", point),
      (value) => amount(value),
    );
  },
  table(view) {
    return overX(
      view,
      [
        ["Throughput (samples/s)", "number", "throughput"],
        ["Low", "number", "low"],
        ["High", "number", "high"],
        ["Speed-up", "number", "speedup"],
        ["Low speed-up", "number", "speedup_low"],
        ["High speed-up", "number", "speedup_high"],
      ].map((column) => numberColumn(...column)),
    );
  },
};

const efficiencyFigure = {
  id: "efficiency",
  draw(view, width) {
    const mean = (point) => number("efficiency", point),
      low = (point) => number("efficiency_low", point),
      high = (point) => number("efficiency_high", point);
    const top = Math.max(1, ...view.lines.flatMap((each) => each.points.map(high)));
    return {
      data: [
        referenceTrace(ends(view), [1, 1], "Ideal: 100%"),
        ...view.lines.map((each) => bandTrace(view, each, low, mean, high)),
        ...view.lines.map((each) => curveTrace(view, each, mean, rateText)),
        ...ringTraces(view, view.lines, mean),
      ],
      layout: layoutOf({
        margin: keyMargin(view.state.x),
        xaxis: keyAxis(view.state.x, view.state.xlog, width),
        yaxis: linearAxis(top, "", { tickformat: ".0%" }),
        shapes: chosenLine(view),
      }),
    };
  },
  describe(view) {
    return described(view, "Scaling efficiency", (point) => number("efficiency", point), percent);
  },
  table(view) {
    return overX(view, [
      numberColumn("Efficiency", "share", "efficiency"),
      numberColumn("Low", "share", "efficiency_low"),
      numberColumn("High", "share", "efficiency_high"),
    ]);
  },
};

const costFigure = {
  id: "cost",
  draw(view, width) {
    const priced = view.lines
      .map((each) => ({ ...each, points: each.points.filter((point) => cost("mean", point) !== null) }))
      .filter((each) => each.points.length);
    if (!priced.length) {
      return emptyFigure("Nothing that is chosen has a price.");
    }
    const mean = (point) => cost("mean", point),
      low = (point) => cost("low", point);
    // where the low end of the throughput is next to nothing, the cost has no end worth drawing
    const high = (point) => Math.min(cost("high", point), mean(point) / SMALLEST_SHOWN);
    const texts = (point) =>
      hoverText(
        point,
        `${dollars(mean(point))} for a million samples`,
        `90% interval ${dollars(low(point))} to ${dollars(cost("high", point))}`,
        `${dollars(number("hourly", point))} an hour for ${count(number("nodes", point))} nodes`,
      );
    const seen = priced.flatMap((each) => each.points.flatMap((point) => [low(point), high(point)]));
    return {
      data: [
        ...priced.map((each) => bandTrace(view, each, low, mean, high)),
        ...priced.map((each) => curveTrace(view, each, mean, texts)),
        ...ringTraces(view, priced, mean),
      ],
      layout: layoutOf({
        margin: keyMargin(view.state.x),
        xaxis: keyAxis(view.state.x, view.state.xlog, width),
        yaxis: yAxis(view, seen, "$"),
        shapes: chosenLine(view),
      }),
    };
  },
  describe(view) {
    return described(
      view,
      "US dollars for a million samples",
      (point) => cost("mean", point),
      (value) => (value === null ? "no price" : dollars(value)),
    );
  },
  table(view) {
    const parts = [
      ["Cost of a million samples", "mean"],
      ["Low", "low"],
      ["High", "high"],
    ].map(([name, part]) => ({ name, kind: "usd", of: (point) => cost(part, point) }));
    return overX(view, [...parts, numberColumn("Cost of an hour", "usd", "hourly")]);
  },
};
