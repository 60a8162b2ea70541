// The page starts here.
import { $, visible } from "./dom.js";
import { startCell } from "./cell.js";
import { startControls } from "./controls.js";
import { startGrid } from "./grid.js";
import { startLinks } from "./links.js";
import { startMatrix } from "./matrix.js";
import { startSaving } from "./save.js";
import { change, chosenBy, listen } from "./state.js";
import { startTyping } from "./type.js";
import { queries } from "./view.js";
import { startWalk } from "./walk.js";

const starts = [startControls, startMatrix, startCell, startLinks, startGrid, startWalk, startTyping, startSaving];
for (const start of starts) start();
listen(() => { $("text").textContent = queries().slice(0, 60).map(visible).join(" "); }, () => {});
// The event has the link that was followed: the address bar may hold an older choice by now.
addEventListener("hashchange", (event) => change(chosenBy(new URL(event.newURL).hash)));
change(chosenBy(location.hash));
document.body.dataset.ready = "yes";
