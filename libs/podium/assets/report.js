// Draws the report's charts by uPlot: each `figure` holds its numbers as JSON in `data-chart`.
"use strict";
(() => {
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = (style) => () => css(`--c${style}`);
  const number = (value) => {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    return size && size < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(4)));
  };
  const look = { stroke: () => css("--soft"), grid: { stroke: () => css("--line"), width: 1 },
    ticks: { show: false }, font: "11px system-ui, sans-serif" };
  const axes = [
    { ...look, size: 26, space: 50, values: (_, at) => at.map((v) => (Number.isInteger(v) ? v : "")) },
    { ...look, size: 50, space: 34, values: (_, at) => at.map(number) },
  ];

  /** Where no cursor is, the legend tells the last values. */
  const rest = (u) => {
    if (u.cursor.idx === null || u.cursor.idx === undefined) u.setLegend({ idx: u.data[0].length - 1 }, false);
  };

  /** The intervals of points, beside each other where several have one at the same step. */
  function intervals(series) {
    return (u) => {
      const { ctx } = u;
      ctx.save();
      ctx.lineWidth = 1.5 * devicePixelRatio;
      series.forEach(({ style, bounds, shift }) => {
        ctx.strokeStyle = css(`--c${style}`);
        for (const [x, low, high] of bounds ?? []) {
          const at = u.valToPos(x, "x", true) + shift * devicePixelRatio;
          const [top, bottom, end] = [u.valToPos(high, "y", true), u.valToPos(low, "y", true), 4 * devicePixelRatio];
          ctx.beginPath();
          ctx.moveTo(at, top); ctx.lineTo(at, bottom);
          for (const y of [top, bottom]) { ctx.moveTo(at - end, y); ctx.lineTo(at + end, y); }
          ctx.stroke();
        }
      });
      ctx.restore();
    };
  }

  function lines({ x, series, range, height }) {
    return {
      data: [x, ...series.map(({ y }) => y)],
      options: {
        height, axes, legend: { live: true }, cursor: { drag: { x: true, y: false } },
        scales: { x: { time: false }, y: { range } },
        hooks: { setCursor: [rest], ready: [rest], draw: [intervals(series)] },
        series: [{ label: "step" }, ...series.map(({ name, style, line, dots }) => ({
          label: name, stroke: colour(style), width: line ? 2 : 0, spanGaps: true,
          paths: line ? undefined : () => null,
          points: { show: dots || undefined, size: dots ? 8 : 5, fill: colour(style), stroke: colour(style) },
          value: (_, value) => number(value),
        }))],
      },
    };
  }

  function stacked({ x, series, height }) {
    const sums = [];
    series.forEach(({ y }, at) => sums.push(y.map((value, i) => value + (at ? sums[at - 1][i] : 0))));
    const bars = uPlot.paths.bars({ size: [0.72, 60] });
    return {
      // The whole first: each part then covers what lies below it.
      data: [x, ...sums.toReversed()],
      options: {
        height, axes, legend: { live: true }, cursor: { drag: { x: true, y: false } },
        scales: { x: { time: false, range: (_, low, high) => [low - 0.5, high + 0.5] }, y: { range: (_, low, high) => [0, high * 1.05 || 1] } },
        hooks: { setCursor: [rest], ready: [rest] },
        series: [{ label: "step" }, ...series.map((_, at) => series.length - 1 - at).map((at) => ({
          label: series[at].name, stroke: colour(at + 1), fill: colour(at + 1), width: 0, paths: bars, points: { show: false },
          value: (_, value, __, i) => `${number(series[at].y[i])} s`,
        }))],
      },
    };
  }

  const drawn = [];
  for (const place of document.querySelectorAll("[data-chart]")) {
    const given = JSON.parse(place.dataset.chart);
    const { options, data } = (given.stacked ? stacked : lines)(given);
    const chart = new uPlot({ width: Math.max(200, place.clientWidth), ...options }, data, place);
    drawn.push(chart);
    new ResizeObserver(() => {
      if (place.clientWidth && place.clientWidth !== chart.width) chart.setSize({ width: place.clientWidth, height: chart.height });
    }).observe(place);
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach((chart) => chart.redraw()));
})();
