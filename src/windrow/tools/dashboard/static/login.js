"use strict";
document.getElementById("wrong").hidden = !new URLSearchParams(location.search).has("wrong");
document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
