// Charts from data attributes, drawn again when htmx swaps a part in. No inline styles, no evaluated text.
"use strict";
(() => {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const tooltip = () => ({
    trigger: "axis", renderMode: "richText", confine: true, backgroundColor: colour("--paper"), borderColor: colour("--line"),
    textStyle: { color: colour("--ink"), fontFamily: "system-ui, sans-serif" },
  });
  const base = () => ({
    animation: false,
    grid: room(true),
    tooltip: tooltip(),
    textStyle: { fontFamily: "system-ui, sans-serif" },
  });
  const axis = (more = {}) => ({
    axisLabel: { color: colour("--soft"), ...more },
    splitLine: { lineStyle: { color: colour("--line") } }, axisLine: { lineStyle: { color: colour("--line") } },
  });
  // Every axis has a name: that of x below its middle, that of y above its end.
  const room = (y) => ({ left: 4, right: 14, top: y ? 32 : 14, bottom: 24, containLabel: true });
  const below = (name) => ({ name, nameLocation: "middle", nameGap: 26, nameTextStyle: { color: colour("--soft") } });
  const above = (name) => ({ name, nameLocation: "end", nameTextStyle: { color: colour("--soft"), align: "left" } });
  const percent = (value) => `${Number(value.toPrecision(3))} %`;
  const told = (name, unit) => (found) => [name(found[0].axisValue), ...found.map((one) => `${one.seriesName}: ${unit(one.value)}`)].join("\n");
  const held = (data) => [...data, data.at(-1)];  // until now
  const line = (name, data, ink, more = {}) => ({
    name, type: "line", step: "end", symbol: "none", data, itemStyle: { color: colour(ink) }, ...more,
    lineStyle: { color: colour(ink), ...(more.lineStyle || {}) },
  });
  const kinds = {
    burn: (left) => ({
      ...base(),
      tooltip: { ...tooltip(), formatter: told((at) => (at === "" ? "now" : at === "0" ? "at the beginning" : `after ${at}`), percent) },
      xAxis: { type: "category", boundaryGap: false, data: [...left.map((_, i) => String(i)), ""], ...below("questions so far"), ...axis({ hideOverlap: true }) },
      yAxis: { type: "value", min: 0, max: 100, interval: 50, ...above("left of the budget"), ...axis({ formatter: "{value} %" }) },
      series: [line("left", held(left), "--accent", { areaStyle: { opacity: 0.15 } })],
    }),
    reuse: (lines) => ({
      ...base(),
      tooltip: { ...tooltip(), formatter: told((at) => (at === "" ? "now" : `after ${at}`), percent) },
      xAxis: { type: "category", boundaryGap: false, data: ["0", ...lines.map((_, i) => String(i + 1)), ""], ...below("questions so far"), ...axis({ hideOverlap: true }) },
      yAxis: { type: "value", min: 0, ...above("spent of the budget"), ...axis({ formatter: "{value} %" }) },
      series: [
        line("with reuse", held([0, ...lines.map((one) => one[0])]), "--accent", { lineStyle: { width: 3 } }),
        line("without", held([0, ...lines.map((one) => one[1])]), "--bad", { lineStyle: { type: "dashed" } }),
      ],
    }),
    curve: ({ title, points, stepped }) => ({
      ...base(),
      tooltip: { ...tooltip(), formatter: ([{ value }]) => `round ${value[0]}\n${value[1] === null ? "unknown" : Number(value[1].toPrecision(4))}` },
      xAxis: { type: "value", min: "dataMin", max: "dataMax", minInterval: 1, ...below("round"), ...axis({ hideOverlap: true }), splitLine: { show: false } },
      yAxis: { type: "value", scale: !stepped, ...above(title), ...axis({ hideOverlap: true }) },
      series: [line(title, points, "--accent", { step: stepped && "end", showSymbol: points.length === 1, symbol: points.length === 1 ? "circle" : "none" })],
    }),
    crowd: (rounds) => ({
      ...base(),
      grid: { left: 4, right: 4, top: 34, bottom: 22, containLabel: true },
      tooltip: { ...tooltip(), formatter: (found) => [`round ${found[0].axisValue}`, ...found.map((one) => `${one.seriesName}: ${one.value ?? "not known"}`)].join("\n") },
      xAxis: { type: "category", data: rounds.map((one) => String(one.round)), name: "round", nameLocation: "middle", nameGap: 24, nameTextStyle: { color: colour("--soft") }, ...axis({ hideOverlap: true }) },
      yAxis: [
        { type: "value", minInterval: 1, name: "updates", nameTextStyle: { color: colour("--soft"), align: "left" }, ...axis() },
        { type: "value", min: 0, max: 100, name: "right answers", nameTextStyle: { color: colour("--soft"), align: "right" }, ...axis({ formatter: "{value} %" }), splitLine: { show: false } },
      ],
      series: [
        ...[["accepted", "accepted", "--good", 1], ["kept", "rejected", "--soft", 0.6], ["low", "low", "--bad", 1], ["uncounted", "not counted", "--line", 1]]
          .map(([key, name, ink, opacity]) => ({ name, type: "bar", stack: "updates", barMaxWidth: 48, itemStyle: { color: colour(ink), opacity, borderColor: colour("--paper"), borderWidth: 1 }, data: rounds.map((one) => one[key]) })),
        line("right answers, %", rounds.map((one) => one.accuracy), "--accent", { step: false, yAxisIndex: 1, symbol: "circle", symbolSize: 11, itemStyle: { color: colour("--accent"), borderColor: colour("--paper"), borderWidth: 2 }, lineStyle: { width: 3 } }),
      ],
    }),
    levels: (points) => ({
      ...base(),
      tooltip: { ...tooltip(), formatter: (found) => [`level ${found[0].value[0]} per km`, ...found.map((one) => `${one.seriesName}: ${one.value[1]} km`)].join("\n") },
      xAxis: { type: "value", min: 0, ...below("level per km"), ...axis({ hideOverlap: true }), splitLine: { show: false } },
      yAxis: { type: "value", min: 0, ...above("mean distance, km"), ...axis({ hideOverlap: true }) },
      series: [["privic", "this method", "--accent", "solid"], ["exponential", "exponential", "--soft", "dotted"], ["laplace", "planar Laplace", "--bad", "dashed"]]
        .filter(([key]) => key in points[0])
        .map(([key, name, ink, type]) => line(name, points.map((one) => [one.level, one[key]]), ink, { step: false, lineStyle: { type, width: 2.5 } })),
    }),
    free: ({ k, points, level }) => ({
      ...base(),
      tooltip: { ...tooltip(), formatter: (found) => [`level ${found[0].value[0]} per km`, ...found.map((one) => `${one.seriesName}: ${percent(one.value[1])}`)].join("\n") },
      xAxis: { type: "value", min: 0, ...below("level per km"), ...axis({ hideOverlap: true }), splitLine: { show: false } },
      yAxis: { type: "value", min: 0, max: 100, ...above("without detour"), ...axis({ formatter: "{value} %" }) },
      series: [["more", `${k} told`, "--accent", "solid"], ["one", "1 told", "--bad", "dashed"]].slice(0, k > 1 ? 2 : 1)
        .map(([key, name, ink, type]) => line(name, points.map((one) => [one.level, 100 * one[key]]), ink, { step: false, lineStyle: { type, width: 2.5 } }))
        .concat(line("now", [[level, 0], [level, 100]], "--soft", { step: false, silent: true, tooltip: { show: false }, lineStyle: { type: "dotted" } })),
    }),
    cells: ({ cells, x, y }) => ({
      ...base(),
      tooltip: {
        ...tooltip(),
        formatter: (found) => {
          const one = cells[found[0].dataIndex];
          return `${one.labels.join(", ")}\n${one.shown.value}\nfrom ${one.shown.low} to ${one.shown.high}`;
        },
      },
      xAxis: { type: "category", data: cells.map((one) => one.labels.join(", ")), ...below(x), ...axis({ hideOverlap: true, width: 90, overflow: "truncate" }) },
      yAxis: { type: "value", ...above(y), ...axis() },
      series: [
        { name: "estimate", type: "bar", barMaxWidth: 48, itemStyle: { color: colour("--accent"), opacity: 0.55 }, data: cells.map((one) => one.value) },
        { // a vertical stroke for each interval: two points, then a gap
          name: "interval", type: "line", symbol: "rect", symbolSize: [12, 2], lineStyle: { color: colour("--ink"), width: 2 },
          itemStyle: { color: colour("--ink") }, tooltip: { show: false }, silent: true, z: 3,
          data: cells.flatMap((one, i) => [[i, one.low], [i, one.high], [i, null]]),
        },
      ],
    }),
  };
  const draw = (root) => {
    const places = [...root.querySelectorAll("[data-chart]")];
    if (root.matches?.("[data-chart]")) places.push(root);
    for (const place of places) {
      const chart = echarts.getInstanceByDom(place) || echarts.init(place);
      chart.setOption(kinds[place.dataset.chart](JSON.parse(place.dataset.values)), true);
    }
  };
  const resize = () => {
    for (const place of document.querySelectorAll("[data-chart]")) echarts.getInstanceByDom(place)?.resize();
  };
  document.addEventListener("reticent:draw", (event) => draw(event.target));
  document.addEventListener("DOMContentLoaded", () => draw(document));
  document.addEventListener("htmx:load", (event) => draw(event.detail.elt));
  document.addEventListener("htmx:beforeCleanupElement", (event) => {
    if (event.target.dataset?.chart) echarts.getInstanceByDom(event.target)?.dispose();
  });
  window.addEventListener("resize", resize);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(document));
})();
