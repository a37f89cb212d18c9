// Maps without tiles: a canvas that fits its place, with streets as lines; what a page adds lies on top of them.
"use strict";
const Maps = (() => {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const PER_DEGREE = 1e5;

  // A map in the element of an id that shows a box, also after the element changes its size.
  const begun = (id, box, movable) => {
    const map = L.map(id, { maxZoom: 18, zoomControl: movable, dragging: movable, trackResize: false, attributionControl: false, zoomSnap: 0, scrollWheelZoom: false, keyboard: false, renderer: L.canvas(), zoomAnimation: false, fadeAnimation: false });
    L.control.scale({ imperial: false }).addTo(map);
    map.fitBounds(box, { padding: [4, 4] });
    new ResizeObserver(() => {  // at once, too: a map that is not laid out yet has no size to fit
      map.invalidateSize();
      map.fitBounds(box, { padding: [4, 4] });
    }).observe(document.getElementById(id));
    return map;
  };

  // Lines of latitudes and longitudes, of what `streets.py` wrote.
  const lines = ({ origin, lines: packed }) => packed.map((line) => {
    const found = [];
    let north = 0, east = 0;
    for (let i = 0; i < line.length; i += 2) {
      north += line[i];
      east += line[i + 1];
      found.push([origin[0] + north / PER_DEGREE, origin[1] + east / PER_DEGREE]);
    }
    return found;
  });

  const street = () => ({ color: colour("--soft"), weight: 1, opacity: 0.45 });
  const streets = (map, drawn) => L.polyline(drawn, { ...street(), interactive: false }).addTo(map);

  return { begun, colour, lines, street, streets };
})();
