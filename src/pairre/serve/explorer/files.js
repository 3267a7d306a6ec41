// Files that are saved from the page.
import { make } from "./charts.js";

export function download(fileName, text, type) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  make("a", { href: address, download: fileName }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
const cell = (value) => {
  const text = value === null || value === undefined ? "" : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};
export const csv = (columns, rows) => [columns, ...rows].map((row) => row.map(cell).join(",") + "\r\n").join("");
