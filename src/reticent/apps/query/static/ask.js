// The builder: rows of conditions that come and go, and the values that a column may have.
"use strict";
(() => {
  const changed = (place) => place.dispatchEvent(new Event("change", { bubbles: true }));

  // The lists of categories are found by the column's name: it may hold anything, so it is compared, not selected.
  const offer = (row) => {
    const column = row.querySelector("select").value, value = row.querySelector("input");
    const list = [...document.querySelectorAll("datalist")].find((one) => one.dataset.column === column);
    if (list) value.setAttribute("list", list.id); else value.removeAttribute("list");
  };

  const prepare = (set) => {
    set.addEventListener("click", (event) => {
      if (event.target.closest("[data-add]")) {
        set.querySelector(".under").before(set.querySelector("template").content.cloneNode(true));
        [...set.querySelectorAll(".condition")].at(-1).querySelector("select").focus();
        changed(set);
      } else if (event.target.closest("[data-remove]")) {
        const row = event.target.closest(".condition"), rows = set.querySelectorAll(".condition");
        if (rows.length > 1) row.remove();
        else for (const place of row.querySelectorAll("select, input")) { if (place.matches("select")) place.selectedIndex = 0; else place.value = ""; }
        set.querySelector(rows.length > 1 ? "[data-add]" : "select").focus();
        changed(set);
      }
    });
    set.addEventListener("change", (event) => {
      const row = event.target.closest(".condition");
      if (row) offer(row);
    });
  };

  document.addEventListener("DOMContentLoaded", () => {
    for (const set of document.querySelectorAll("[data-conditions]")) prepare(set);
  });
  // On a phone the answer is below the form: bring it into sight.
  document.addEventListener("htmx:afterSwap", (event) => {
    const answer = document.getElementById("answer");
    if (event.target === answer && answer.getBoundingClientRect().top > window.innerHeight * 0.7) answer.scrollIntoView();
  });
})();
