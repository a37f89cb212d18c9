// Copies the text of a block. Where a browser does not allow that (plain http to another machine) it selects it.
"use strict";
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const block = document.getElementById(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(block.textContent);
    button.firstChild.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(block);
    button.firstChild.textContent = "Selected";
  }
  setTimeout(() => { button.firstChild.textContent = "Copy"; }, 2000);
});
