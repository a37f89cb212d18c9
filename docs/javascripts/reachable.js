// What the theme leaves without a name or a way to it by keyboard: the search, and tables wider than the screen.
const reachable = () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  for (const place of document.querySelectorAll(".md-typeset__scrollwrap")) {
    const scrolls = place.scrollWidth > place.clientWidth;
    for (const [name, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", "Table, wider than the screen"]]) {
      if (scrolls) place.setAttribute(name, value);
      else place.removeAttribute(name);
    }
  }
};
new MutationObserver(reachable).observe(document.documentElement, { childList: true, subtree: true });
addEventListener("resize", reachable);
addEventListener("load", reachable);
