// On a phone the rows of a table stand one below another (styles/site.css): each cell knows the head of its column.
for (const table of document.querySelectorAll(".md-typeset table:not([class])")) {
  const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
  for (const row of table.querySelectorAll("tbody tr")) {
    [...row.cells].forEach((cell, place) => { cell.dataset.head = heads[place] || ""; });
  }
}
