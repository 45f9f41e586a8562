// Two points compared run by run: the rules of paceline/comparing.py, paceline/gain_bounds.py and simulator/results/intervals.py.

// quantile whose rank is share x (n + 1), between its neighbours where that is no whole number
function ranked(sorted, share) {
  const rank = Math.min(Math.max(share * (sorted.length + 1) - 1, 0), sorted.length - 1),
    below = Math.floor(rank + 1e-9);
  return sorted[below] + Math.max(0, rank - below) * (sorted[Math.min(below + 1, sorted.length - 1)] - sorted[below]);
}

// mean and 90% prediction interval
function predicted(values) {
  const mean = values.reduce((sum, each) => sum + each, 0) / values.length,
    narrow = data.half_widths[values.length];
  let low, high;
  if (narrow === undefined) {
    const sorted = values.slice().sort((one, other) => one - other);
    [low, high] = [ranked(sorted, 0.05), ranked(sorted, 0.95)];
  } else {
    const half = narrow * Math.sqrt(values.reduce((sum, each) => sum + (each - mean) ** 2, 0) / (values.length - 1));
    [low, high] = [Math.max(mean - half, 0), mean + half];
  }
  return { mean, low: Math.min(low, mean), high: Math.max(high, mean) };
}

// standard deviations of the logarithm of one point's throughput over another's, down and up: equal causes cancel
function between(one, other) {
  const changes = new Map(data.doubts[one].map(([cause, slower, faster]) => [cause, [-slower, faster]]));
  data.doubts[other].forEach(([cause, slower, faster]) => {
    const [more, less] = changes.get(cause) || [0, 0];
    changes.set(cause, [more + slower, less - faster]);
  });
  const each = [...changes.values()];
  return [Math.hypot(...each.map((pair) => Math.max(0, -pair[0], -pair[1]))), Math.hypot(...each.map((pair) => Math.max(0, ...pair)))];
}

// an interval of chance with what the model is off by
function widened({ mean, low, high }, [down, up]) {
  if ((!down && !up) || mean <= 0) {
    return { mean, low, high };
  }
  const away = (end, sd) => Math.hypot(Math.log(end / mean), data.z_90 * sd);
  return {
    mean,
    low: low > 0 ? Math.min(mean * Math.exp(-away(low, down)), mean) : low,
    high: Math.max(mean * Math.exp(away(high, up)), mean),
  };
}

// within what the throughput of one point over another's lies, where they differ in speeds alone (paceline/gain_bounds.py)
function gainBounds(one, other) {
  const [rest, speeds] = data.speeds[one],
    [rests, others] = data.speeds[other];
  const gains = speeds.map((speed, place) => speed - others[place]);
  if (rest < 0 || rest !== rests || gains.every((gain) => gain === 0)) {
    return [0, Infinity];
  }
  return [Math.exp(Math.min(0, ...gains)), Math.exp(Math.max(0, ...gains))];
}

// an interval of ratios without what cannot be
function bounded({ mean, low, high }, [least, most]) {
  return { mean, low: Math.min(Math.max(low, least), mean), high: Math.max(Math.min(high, most), mean) };
}

function shareDraws(one, other) {
  const apart = data.moves[one] >= 0 && data.moves[other] >= 0 && data.moves[one] !== data.moves[other];
  const [runs, others] = [data.runs[one].length, data.runs[other].length];
  return !apart && data.draws[one] === data.draws[other] && runs > 1 && runs === others;
}

// throughput of one point over that of another, or samples over the time of their whole jobs, less 1; of how many pairs of runs, in how many of which it is the faster
function compared(one, other) {
  if (!shareDraws(one, other)) {
    const { columns, least } = data.ranked,
      held = (point) => columns.map((name) => value(name, point)),
      rates = (point) => (least ? [0, 2, 1].map((end) => 1 / held(point)[end]) : held(point));
    const [mean, low, high] = rates(one),
      [middle, lowest, highest] = rates(other);
    const ends = { low: low / Math.max(highest, middle) - 1, high: high / Math.max(lowest, data.nothing * middle) - 1 };
    return { gain: mean / middle - 1, ...ends, runs: 0, wins: 0 };
  }
  const ratios = data.runs[one].map((rate, run) => rate / data.runs[other][run]),
    { mean, low, high } = bounded(widened(predicted(ratios), between(one, other)), gainBounds(one, other));
  return { gain: mean - 1, low: low - 1, high: high - 1, runs: ratios.length, wins: ratios.filter((ratio) => ratio > 1).length };
}

function hasEffect(each) {
  return !(each.low < 0 && each.high > 0) && Math.abs(each.gain) >= data.nothing;
}

function gainText(each) {
  return written(each.gain, "change") + (hasEffect(each) ? "" : `, ${data.words.uncertain}`);
}

function comparedText(each) {
  const runs = each.runs ? `faster in ${each.wins} of ${each.runs} runs` : "from both intervals: the runs share no draws";
  return [`${data.ranked.what} ${gainText(each)}`, `90% interval ${written(each.low, "change")} to ${written(each.high, "change")}, ${runs}`];
}
