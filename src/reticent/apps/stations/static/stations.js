// A provider's maps: streets, stations, and an example journey that is drawn again when a slider moves.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const { colour } = Maps;
  const SLIDERS = ["level", "k", "m"], LATER_MS = 150, BARS = 12;
  const maps = {};  // by the id of their element
  let example = null, coming = null, stations = [], asked = 0, waiting = 0;

  const dot = (at, ink, radius, words) => L.circleMarker(at, { radius, color: ink, weight: 2, fillColor: ink, fillOpacity: 0.75 }).bindTooltip(() => document.createTextNode(words));
  const site = (one) => L.circleMarker(one.at, { radius: 4, color: colour("--soft"), weight: 1.5, fillColor: colour(one.free ? "--good" : "--paper"), fillOpacity: 1 }).bindTooltip(() => document.createTextNode(`${one.name}: ${one.free} of ${one.connectors} free`));
  const line = (points, ink, more = {}) => L.polyline(points, { color: ink, weight: 3, opacity: 0.9, interactive: false, ...more });

  const show = (id, layers) => {
    const one = maps[id];
    one.streets.setStyle(Maps.street());
    one.layers.clearLayers();
    for (const layer of [...stations.map(site), ...layers]) one.layers.addLayer(layer);
  };

  const metres = (count) => (count >= 1000 ? `${(count / 1000).toFixed(2)} km` : `${Math.round(count)} m`);
  const percent = (share) => `${Math.round(100 * share)} %`;

  const draw = () => {
    const number = Number($("query").value), one = example.asked[number - 1], chosen = stations[one.chosen];
    $("query-shown").textContent = `${number} of ${example.asked.length}`;
    const more = one.drive_m - one.nearest_m;
    $("said").textContent = `Query ${number}: reported ${metres(one.moved_m)} away. ${one.told.length} station${one.told.length === 1 ? " is" : "s are"} named, and the car drives ${metres(one.drive_m)} to ${chosen.name}: ${more > 0.5 ? `${metres(more)} more than to the nearest` : "no detour"}. A reply to the true report alone costs nothing in ${percent(example.free)} of cases, ${metres(example.detour_m)} more on average.`;
    show("car", [
      line(example.way, colour("--accent"), { opacity: 0.5 }),
      line(one.route, colour("--good"), { dashArray: "6 5" }),
      dot(one.true, colour("--ink"), 6, "where the car is"),
      dot(one.report, colour("--bad"), 6, "what is reported"),
    ]);
    show("seen", one.seen.map((at) => dot(at, colour("--bad"), 5, "a point")));
    $("seen-said").textContent = `${one.seen.length} point${one.seen.length === 1 ? "" : "s"} of this vehicle, in a fresh order among those of the whole batch: nothing says that they belong together.`;
    $("edge").replaceChildren(...example.asked.map((_, i) => row(["this vehicle", `${i + 1}`, example.request_bytes.toLocaleString("en"), "none: sealed"])));
  };

  const curve = () => {
    const place = $("curve"), here = example.curve.find((one) => one.level >= example.level) || example.curve.at(-1);
    place.dataset.chart = "free";
    place.dataset.values = JSON.stringify({ k: example.k, points: example.curve, level: example.level });
    place.dispatchEvent(new Event("reticent:draw", { bubbles: true }));
    $("curve-said").textContent = `At ${here.level} per km: ${percent(here.more)} and ${percent(here.one)}.`;
  };

  const ask = async () => {
    const mine = ++asked, given = SLIDERS.map((name) => `${name}=${$(name).value}`).join("&");
    const reply = await fetch(`/stations/${$("stations").dataset.name}/example?${given}`);
    if (mine !== asked) return;
    if (!reply.ok) { $("said").textContent = "The journey could not be drawn. Try again."; return; }
    const found = await reply.json();
    if (mine !== asked) return;
    example = found;
    draw();
    curve();
  };

  const row = (texts) => {
    const found = document.createElement("tr");
    texts.forEach((text, i) => {
      const cell = found.insertCell();
      cell.textContent = text;
      if (i) cell.className = "right";
    });
    return found;
  };

  const forecast = () => {
    const most = [...coming.sites].sort((a, b) => b.arrivals - a.arrivals), largest = Math.max(most[0].arrivals, 1e-9);
    const interval = (one) => `${one.low} to ${one.high}`;
    $("forecast-said").textContent = `From ${coming.points.toLocaleString("en")} points of about ${coming.queries.toLocaleString("en")} queries in ${coming.minutes.toLocaleString("en")} minutes, made ${new Date(1000 * coming.made).toLocaleString("en")}: what to expect in as much time, if it is alike.${coming.missing.map((one) => ` A station at ${one.at.map((axis) => axis.toFixed(5)).join(", ")} would save ${metres(one.saved_m)} on average, for ${percent(one.share)} of those who ask.`).join("")}`;
    maps.coming.streets.setStyle(Maps.street());
    maps.coming.layers.clearLayers();
    for (const one of most) maps.coming.layers.addLayer(dot(one.at, colour("--bad"), 3 + 13 * Math.sqrt(one.arrivals / largest), `${one.name}: ${one.arrivals}, ${interval(one)}`).setStyle({ fillOpacity: 0.4 }));
    for (const one of coming.missing) maps.coming.layers.addLayer(dot(one.at, colour("--accent"), 7, "a new station").setStyle({ fillOpacity: 0 }));
    $("arrivals").replaceChildren(...most.map((one) => row([one.name, one.arrivals.toFixed(1), interval(one), String(one.connectors), `${percent(one.free[0])} (${percent(one.free[1])} to ${percent(one.free[2])})`])));
    $("bars").dataset.chart = "cells";
    $("bars").dataset.values = JSON.stringify({ x: "station", y: "cars", cells: most.slice(0, BARS).map((one) => ({ labels: [one.name], value: one.arrivals, low: one.low, high: one.high, shown: { value: one.arrivals, low: one.low, high: one.high } })) });
    $("bars").dispatchEvent(new Event("reticent:draw", { bubbles: true }));
  };

  const shown = () => { for (const name of SLIDERS) $(`${name}-shown`).textContent = $(name).value; };

  const load = async () => {
    const name = $("stations").dataset.name;
    const [map, sites] = await Promise.all([fetch(`/stations/${name}/map`), fetch(`/stations/${name}/sites`)]);
    if (!map.ok || !sites.ok) { $("said").textContent = "The map could not be loaded. Load the page again."; return; }
    const lines = Maps.lines(await map.json());
    stations = (await sites.json()).stations;
    const box = L.latLngBounds(lines.flat());
    for (const id of ["car", "seen", "coming"].filter($)) {
      const made = Maps.begun(id, box, true);
      maps[id] = { streets: Maps.streets(made, lines), layers: L.layerGroup().addTo(made) };
    }
    if ($("coming")) {
      const told = await fetch(`/stations/${name}/forecast`);
      if (told.ok) { coming = await told.json(); forecast(); }
    }
    await ask();
  };

  document.addEventListener("DOMContentLoaded", () => {
    if (!$("stations")) return;
    shown();
    load();
    for (const name of SLIDERS) {
      $(name).addEventListener("input", () => {
        shown();
        clearTimeout(waiting);
        waiting = setTimeout(() => example && ask(), LATER_MS);
      });
    }
    $("again").addEventListener("click", ask);
    $("query").addEventListener("input", () => example && draw());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      if (example) draw();
      if (coming) forecast();
    });
  });
})();
