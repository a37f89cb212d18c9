// What one's privacy is worth: of each offer at most one level, within the epsilon that is for sale. Nothing is sent.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const STEP = 1 / 200;  // of epsilon; costs are rounded up to it
  const money = (cents) => (cents / 100).toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
  const short = (number) => String(Number(number.toPrecision(3)));

  // The best sum of pay - price * epsilon over all ways to spend, by dynamic programming over the offers.
  const best = (offers, price, budget) => {
    const most = Math.floor(budget / STEP + 1e-9);
    let gain = new Float64Array(most + 1);
    const picks = [];
    for (const offer of offers) {
      const next = gain.slice(), pick = new Int16Array(most + 1).fill(-1);
      offer.levels.forEach((level, place) => {
        const cost = Math.ceil(level.epsilon / STEP - 1e-9), worth = level.cents - price * level.epsilon;
        for (let spent = cost; spent <= most; spent++) {
          if (gain[spent - cost] + worth > next[spent]) [next[spent], pick[spent]] = [gain[spent - cost] + worth, place];
        }
      });
      picks.push(pick);
      gain = next;
    }
    const chosen = new Array(offers.length).fill(-1);
    for (let at = offers.length - 1, spent = most; at >= 0; at--) {
      chosen[at] = picks[at][spent];
      if (chosen[at] >= 0) spent -= Math.ceil(offers[at].levels[chosen[at]].epsilon / STEP - 1e-9);
    }
    return chosen;
  };

  const shown = (offers) => {
    const price = Number($("price").value), budget = Number($("budget").value);
    $("price-shown").textContent = String(price);
    $("budget-shown").textContent = short(budget);
    const chosen = best(offers, price, budget);
    let pay = 0, spent = 0;
    $("chosen").replaceChildren(...offers.map((offer, at) => {
      const row = document.createElement("tr"), level = offer.levels[chosen[at]];
      const texts = level ? [offer.name, short(level.epsilon), money(level.cents)] : [offer.name, "none", ""];
      texts.forEach((text, place) => {
        const cell = document.createElement("td");
        if (place) cell.className = "right";
        cell.textContent = text;
        row.append(cell);
      });
      if (level) [pay, spent] = [pay + level.cents, spent + level.epsilon];
      return row;
    }));
    $("worth-said").textContent = `You would earn ${money(pay)} for an epsilon of ${short(spent)}; ${short(Math.max(0, budget - spent))} is left to sell.`;
  };

  addEventListener("DOMContentLoaded", () => {
    const place = $("worth");
    if (!place) return;
    const offers = JSON.parse(place.dataset.offers);
    for (const id of ["price", "budget"]) $(id).addEventListener("input", () => shown(offers));
    shown(offers);
  });
})();
