// Maps of a campaign: cells by their corners, without tiles, chosen by a click or with the arrow keys.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const { colour } = Maps;
  const percent = (share) => `${Number((100 * share).toPrecision(3))} %`;
  const opacity = (share, most) => (share > 0 ? 0.06 + 0.9 * Math.sqrt(share / most) : 0);
  const SHADES = [0, 1 / 9, 4 / 9, 1];  // of the most, as style.css has them: opacity rises with the root
  const drawn = {};  // by the id of their element
  let maps = null, streets = null, chosen = null, stamp = null, asked = 0;

  const ring = (cell) => {
    const row = Math.floor(cell / maps.columns), column = cell % maps.columns;
    const [low, high] = [maps.corners[row], maps.corners[row + 1]];
    return [low[column], low[column + 1], high[column + 1], high[column]];
  };
  const named = (cell) => `row ${Math.floor(cell / maps.columns)}, column ${cell % maps.columns}`;

  const made = (id, choosable) => {
    const map = Maps.begun(id, L.latLngBounds(maps.corners.flat()), choosable);
    const under = streets && Maps.streets(map, streets);
    const closed = new Set(maps.closed), cells = [], shares = [];
    for (let cell = 0; cell < maps.rows * maps.columns; cell++) {
      const one = L.polygon(ring(cell), { weight: 0.5 });
      one.bindTooltip(() => document.createTextNode(`${named(cell)}: ${closed.has(cell) ? "closed" : percent(drawn[id].shares[cell])}`), { sticky: true });
      if (choosable) one.on("click", () => choose(cell));
      cells.push(one.addTo(map));
    }
    const mark = L.polygon(ring(0), { fill: false, weight: 3, interactive: false, opacity: 0 }).addTo(map);
    if (choosable) {
      $(id).addEventListener("keydown", (event) => {
        const step = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key];
        if (!step) return;
        event.preventDefault();
        const at = chosen === null ? [Math.floor(maps.rows / 2), Math.floor(maps.columns / 2)] : [Math.floor(chosen / maps.columns) + step[0], (chosen % maps.columns) + step[1]];
        const row = Math.min(Math.max(at[0], 0), maps.rows - 1), column = Math.min(Math.max(at[1], 0), maps.columns - 1);
        choose(row * maps.columns + column);
      });
    }
    return { map, cells, closed, shares, mark, under };
  };

  const show = (id, shares, choosable) => {
    if (!$(id)) return;
    drawn[id] ??= made(id, choosable);
    const one = drawn[id];
    one.shares = shares;
    const most = Math.max(...shares, 1e-12), ink = colour("--accent"), line = colour("--line");
    one.cells.forEach((cell, i) => cell.setStyle(
      one.closed.has(i) ? { color: line, fillColor: colour("--soft"), fillOpacity: 0.3 } : { color: line, fillColor: ink, fillOpacity: opacity(shares[i], most) }));
    $(`${id}-scale`).querySelectorAll("[data-shade]").forEach((place, i) => { place.textContent = percent(SHADES[i] * most); });
    one.under?.setStyle(Maps.street());
    one.mark.setStyle({ color: colour("--bad"), opacity: chosen === null ? 0 : 1 });
    if (chosen !== null) one.mark.setLatLngs(ring(chosen));
    one.mark.bringToFront();
  };

  const round = () => maps.rounds[Number($("round").value)];
  const draw = () => {
    const one = round();
    $("round-shown").textContent = one.number + 1;
    const jumped = maps.alarms.includes(one.number) ? " The estimate jumped: somebody may be lying." : "";
    $("round-said").textContent = `${one.reports.toLocaleString("en")} reports in this round.${jumped}`;
    show("estimate", one.estimate, true);
    show("reported", one.reported, true);
    if (maps.truth) show("truth", maps.truth, true);
    if (chosen !== null) choose(chosen);
  };

  const choose = async (cell) => {
    if (maps.closed.includes(cell)) { $("cell-said").textContent = `${named(cell)} is closed: nobody can be there.`; return; }
    chosen = cell;
    for (const id of ["estimate", "reported", "truth"]) {
      if (!drawn[id]) continue;
      drawn[id].mark.setLatLngs(ring(cell)).setStyle({ color: colour("--bad"), opacity: 1 });
      drawn[id].mark.bringToFront();
    }
    const mine = ++asked;
    const reply = await fetch(`/places/${$("places").dataset.name}/law?number=${round().number}&cell=${cell}`);
    if (!reply.ok || mine !== asked) return;
    const { laws } = await reply.json();
    if (mine !== asked) return;
    $("laws").hidden = false;
    $("laplace-part").hidden = !laws.laplace;
    for (const [id, law] of Object.entries(laws)) {
      show(id, law.shares, false);
      $(`${id}-said`).textContent = `Reported as it is ${percent(law.stays)} of the time; ${Number(law.km.toPrecision(3))} km away on average.`;
    }
    $("cell-said").textContent = `Somebody in ${named(cell)}, in round ${round().number + 1}: estimated ${percent(round().estimate[cell])} of people, reported ${percent(round().reported[cell])}.`;
  };

  const curve = () => {
    const place = $("curve"), here = maps.curve.find((one) => one.level >= maps.curve[3].level);
    place.dataset.chart = "levels";
    place.dataset.values = JSON.stringify(maps.curve);
    place.dispatchEvent(new Event("reticent:draw", { bubbles: true }));
    $("curve-said").textContent = `At ${here.level} per km: ${here.privic} km, ${here.exponential} km${here.laplace === undefined ? "" : ` and ${here.laplace} km`}.`;
  };

  const load = async () => {
    const seen = $("live").dataset.stamp;
    if (seen === stamp) return;
    stamp = seen;
    const reply = await fetch(`/places/${$("places").dataset.name}/maps`);
    if (!reply.ok) return;
    if ($("places").dataset.streets && !streets) {
      const found = await fetch(`/places/${$("places").dataset.name}/streets`);
      if (found.ok) streets = Maps.lines(await found.json());
    }
    const slider = $("round"), wasLast = slider.value === slider.max;
    maps = await reply.json();
    slider.max = maps.rounds.length - 1;
    if (wasLast) slider.value = slider.max;
    draw();
    curve();
  };

  document.addEventListener("DOMContentLoaded", () => {
    if (!$("places")) return;
    load();
    $("round").addEventListener("input", () => maps && draw());
    document.addEventListener("htmx:load", load);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => maps && draw());
  });
})();
