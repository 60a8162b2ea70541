// The page starts here.
import { unpack } from "./arrays.js";
import { startCell } from "./cell.js";
import { startControls } from "./controls.js";
import { startGrid } from "./grid.js";
import { startLinks } from "./links.js";
import { startMatrix } from "./matrix.js";
import { startSaving } from "./save.js";
import { arraysOf, change, chosenBy, state } from "./state.js";
import { startTyping } from "./type.js";
import { startWalk } from "./walk.js";
import { startWords } from "./words.js";
import { startWriting } from "./writing.js";

const starts = [startControls, startWords, startMatrix, startCell, startLinks, startGrid, startWalk, startTyping, startSaving, startWriting];

async function begin() {
  await unpack(arraysOf(state.layer));
  for (const start of starts) start();
  // The event has the link that was followed: the address bar may hold an older choice by now.
  addEventListener("hashchange", (event) => change(chosenBy(new URL(event.newURL).hash)));
  await change(chosenBy(location.hash));
  document.body.dataset.ready = "yes";
}
begin();
