// Copying: every number in full, with its labels.

const spoken = document.querySelector(".spoken");

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    button.focus();
  }
  spoken.textContent = "Copied.";
  const before = button.textContent;
  button.textContent = "copied ✓";
  setTimeout(() => { button.textContent = before; }, 1500);
}

function quoted(text) {
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function asCsv(sheet) {
  const lines = [["", ...sheet.columns.map((cell) => quoted(cell.textContent))]];
  sheet.rows.forEach((row, line) => {
    lines.push([quoted(row.cells[0].textContent), ...sheet.columns.map((_, column) => String(sheet.at(line, column)).replace("Infinity", "inf").replace("NaN", "nan"))]);
  });
  return lines.map((line) => line.join(",") + "\n").join("");
}

function escaped(text) {
  const names = JSON.parse(document.body.dataset.latex);
  return Array.from(text, (sign) => names[sign] || sign).join("");
}

function asLatex(sheet) {
  const title = sheet.figure.querySelector(".title").textContent;
  const lines = [`% ${title}`, `\\begin{tabular}{l${"r".repeat(sheet.columns.length)}}`];
  lines.push(["", ...sheet.columns.map((cell) => escaped(cell.textContent))].join(" & ") + " \\\\ \\hline");
  for (const row of sheet.rows) {
    lines.push([...row.cells].slice(0, sheet.columns.length + 1).map((cell) => escaped(cell.textContent)).join(" & ") + " \\\\");
  }
  return [...lines, "\\end{tabular}", ""].join("\n");
}

for (const button of document.querySelectorAll("[data-copies], [data-text]")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    const written = { csv: asCsv, latex: asLatex }[button.dataset.copies];
    copy(written ? written(sheetOf(button)) : button.dataset.text, button);
  });
}
