// Two points compared run by run: the rules of paceline/comparing.py and simulator/intervals.py.

const NOTHING = 0.0005;

function meanOf(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

// quantile whose rank is share x (n + 1), between its neighbours where that is no whole number
function ranked(sorted, share) {
  const rank = Math.min(Math.max(share * (sorted.length + 1) - 1, 0), sorted.length - 1),
    below = Math.floor(rank + 1e-9);
  return sorted[below] + Math.max(0, rank - below) * (sorted[Math.min(below + 1, sorted.length - 1)] - sorted[below]);
}

// mean and 90% prediction interval
function predicted(values) {
  const mean = meanOf(values),
    narrow = data.half_widths[values.length];
  let low, high;
  if (narrow === undefined) {
    const sorted = values.slice().sort((one, other) => one - other);
    [low, high] = [ranked(sorted, 0.05), ranked(sorted, 0.95)];
  } else {
    const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0),
      half = narrow * Math.sqrt(squares / (values.length - 1));
    [low, high] = [Math.max(mean - half, 0), mean + half];
  }
  return { mean, low: Math.min(low, mean), high: Math.max(high, mean) };
}

// standard deviations of the logarithm of one point's throughput over another's, down and up: equal causes cancel
function between(one, other) {
  const changes = new Map();
  for (const [cause, slower, faster] of data.doubts[one]) changes.set(cause, [-slower, faster]);
  for (const [cause, slower, faster] of data.doubts[other]) {
    const [more, less] = changes.get(cause) || [0, 0];
    changes.set(cause, [more + slower, less - faster]);
  }
  const ends = [...changes.values()];
  return [
    Math.hypot(...ends.map((pair) => Math.max(0, -pair[0], -pair[1]))),
    Math.hypot(...ends.map((pair) => Math.max(0, ...pair))),
  ];
}

// an interval of chance with what the model is off by
function widened({ mean, low, high }, [down, up]) {
  if ((!down && !up) || mean <= 0) return { mean, low, high };
  const away = (end, sd) => Math.hypot(Math.log(end / mean), data.z_90 * sd);
  return {
    mean,
    low: low > 0 ? Math.min(mean * Math.exp(-away(low, down)), mean) : low,
    high: Math.max(mean * Math.exp(away(high, up)), mean),
  };
}

function shareDraws(one, other) {
  const apart = data.moves[one] >= 0 && data.moves[other] >= 0 && data.moves[one] !== data.moves[other];
  const alike = ["seed", "replications"].every((name) => number(name, one) === number(name, other));
  return alike && !apart && data.runs[one].length > 1 && data.runs[one].length === data.runs[other].length;
}

// throughput of one point over that of another, less 1; of how many pairs of runs, in how many of which it is the faster
function compared(one, other) {
  if (!shareDraws(one, other)) {
    const mean = number("throughput", other);
    return {
      gain: number("throughput", one) / mean - 1,
      low: number("low", one) / Math.max(number("high", other), mean) - 1,
      high: number("high", one) / Math.max(number("low", other), NOTHING * mean) - 1,
      runs: 0,
      wins: 0,
    };
  }
  const ratios = data.runs[one].map((rate, run) => rate / data.runs[other][run]),
    { mean, low, high } = widened(predicted(ratios), between(one, other));
  return { gain: mean - 1, low: low - 1, high: high - 1, runs: ratios.length, wins: ratios.filter((ratio) => ratio > 1).length };
}

function hasEffect(each) {
  return !(each.low <= 0 && each.high >= 0) && Math.abs(each.gain) >= NOTHING;
}

function comparedText(each) {
  const spread = `90% interval ${change(each.low)} to ${change(each.high)}`;
  const runs = each.runs ? `faster in ${each.wins} of ${each.runs} runs` : "from both intervals: the runs share no draws";
  return [`throughput ${change(each.gain)}${hasEffect(each) ? "" : ", effect not certain"}`, `${spread}, ${runs}`];
}

function whiskers(each, axis = (gain) => gain) {
  return {
    type: "data",
    symmetric: false,
    array: each.map((its) => (its ? Math.max(0, axis(its.high) - axis(its.gain)) : 0)),
    arrayminus: each.map((its) => (its ? Math.max(0, axis(its.gain) - axis(its.low)) : 0)),
    color: INK,
    thickness: 1,
    width: 3,
  };
}
