"use strict";
// Sorts and filters the table of all verdicts. Without scripts the table is complete, in the order of the papers.
(() => {
  const table = document.querySelector("table.verdicts");
  const controls = document.querySelector(".filters");
  if (!table || !controls) return;
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const headers = Array.from(table.tHead.rows[0].cells);
  const text = controls.querySelector("input");
  const choices = Array.from(controls.querySelectorAll("select"));
  const shown = controls.querySelector("output");
  const texts = new Map(rows.map((row) => [row, row.textContent.replace(/\s+/g, " ").toLowerCase()]));

  function filter() {
    const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      const chosen = choices.every((choice) => !choice.value || row.dataset[choice.name] === choice.value);
      row.hidden = !(chosen && words.every((word) => texts.get(row).includes(word)));
      count += row.hidden ? 0 : 1;
    }
    shown.textContent = `${count} of ${rows.length} shown`;
  }

  function compare(first, second) {
    if (first === "" || second === "") return null;
    const [a, b] = [Number(first), Number(second)];
    return Number.isNaN(a) || Number.isNaN(b) ? first.localeCompare(second) : a - b;
  }

  function sort(place) {
    const downwards = headers[place].getAttribute("aria-sort") === "ascending";
    headers.forEach((header, at) => {
      if (at === place) header.setAttribute("aria-sort", downwards ? "descending" : "ascending");
      else header.removeAttribute("aria-sort");
    });
    const key = (row) => row.cells[place]?.dataset.key ?? "";
    const sorted = rows.map((row, at) => [key(row), at, row]).sort(([a, i], [b, j]) => {
      const order = compare(a, b);
      if (order === null) return (a === "") - (b === "") || i - j; // rows without a value come last in both directions
      return (downwards ? -order : order) || i - j;
    });
    body.append(...sorted.map(([, , row]) => row));
  }

  headers.forEach((header, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = header.textContent;
    button.addEventListener("click", () => sort(place));
    header.replaceChildren(button);
  });
  text.addEventListener("input", filter);
  choices.forEach((choice) => choice.addEventListener("change", filter));
  controls.querySelector("button").addEventListener("click", () => {
    [text, ...choices].forEach((field) => (field.value = ""));
    filter();
    text.focus();
  });
  table.classList.add("sortable");
  controls.hidden = false;
  filter();
})();
