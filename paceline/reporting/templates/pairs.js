// Two points compared run by run, as the data have it (paceline/comparing.py).

// throughput of one point over that of another, or samples over the time of their whole jobs, less 1; of how many pairs of runs, in how many of which it is the faster
function compared(point, other) {
  const [, gain, low, high, wins, runs] = pairOf(point, other);
  return { gain, low, high, wins, runs };
}

// of very many the data hold those with the best
function pairOf(point, other) {
  return data.pairs[point].find(([each]) => each === other);
}

function hasEffect(each) {
  return !(each.low < 0 && each.high > 0) && Math.abs(each.gain) >= data.nothing;
}

function gainText(each) {
  return (each.gain >= 2 ? `${written(1 + each.gain, "number")} times` : written(each.gain, "change")) + (hasEffect(each) ? "" : `, ${data.words.uncertain}`);
}

function comparedText(each) {
  const runs = each.runs ? `faster in ${each.wins} of ${each.runs} runs` : "from both intervals: the runs share no draws";
  return [`${data.ranked.what} ${gainText(each)}`, `90% interval ${written(each.low, "change")} to ${written(each.high, "change")}, ${runs}`];
}
