//! The page of `report` in a browser: nothing overlaps or overflows, and all of it can be read, in
//! both colour schemes and printed.
//!
//! Skipped without Chromium, which `ADVISORY_TEST_CHROMIUM` names, or the path has.

use std::process::Command;

use advisory_tests::left_out;

use crate::programs::{advisory, booking_service, file, inventory, scratch};
use crate::records::edge;

/// Measures the page, and writes what is wrong into its title.
const MEASURE: &str = r#"<script>
const problems = [];
const color = (text) => (text.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
const light = (rgb) => {
  const [r, g, b] = rgb.slice(0, 3).map((part) => {
    const one = part / 255;
    return one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (one, other) => {
  const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
};
const background = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const found = color(getComputedStyle(at).backgroundColor);
    if (found.length < 4 || found[3] > 0) return found;
  }
  return [255, 255, 255];
};
for (const element of document.querySelectorAll("h1,h2,h3,p,a,small,dt,dd,li,code,footer")) {
  const found = contrast(color(getComputedStyle(element).color), background(element));
  if (found < 4.5) problems.push(`${element.tagName} ${element.className}: contrast ${found.toFixed(1)}`);
}
for (const text of document.querySelectorAll("svg text")) {
  const found = contrast(color(getComputedStyle(text).fill), color(getComputedStyle(text.previousElementSibling).fill));
  if (found < 4.5) problems.push(`box: contrast ${found.toFixed(1)}`);
}
for (const path of document.querySelectorAll("svg path.red, svg path.arrow")) {
  const found = contrast(color(getComputedStyle(path).stroke), background(path.closest("div")));
  if (found < 3) problems.push(`${path.className.baseVal}: contrast ${found.toFixed(1)}`);
}
for (const drawing of document.querySelectorAll("svg")) {
  const boxes = [...drawing.querySelectorAll("rect")].map((box) => box.getBoundingClientRect());
  const whole = drawing.getBoundingClientRect();
  boxes.forEach((one, at) => {
    if (one.left < whole.left || one.right > whole.right || one.top < whole.top || one.bottom > whole.bottom)
      problems.push("a box is outside of its drawing");
    for (const other of boxes.slice(at + 1))
      if (one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom)
        problems.push("two boxes overlap");
  });
}
if (document.documentElement.scrollWidth > window.innerWidth) problems.push("the page is wider than the window");
for (const scrolls of document.querySelectorAll(".graph"))
  if (scrolls.tabIndex !== 0) problems.push("a drawing cannot be scrolled by keyboard");
document.title = `circles ${document.querySelectorAll("article .graph svg").length}; ${problems.join("; ") || "fine"}`;
</script></body>"#;

fn browser() -> Option<String> {
    let given = std::env::var("ADVISORY_TEST_CHROMIUM").ok();
    let names = given
        .into_iter()
        .chain(["chromium", "chromium-browser"].map(str::to_owned));
    let works = |name: &String| {
        let version = Command::new(name).arg("--version").output();
        version.is_ok_and(|version| version.status.success())
    };
    names.into_iter().find(works)
}

/// The title that the page gives itself in the browser.
fn measured(browser: &str, name: &str, page: &str, size: &str) -> String {
    let page = file(
        &format!("report-browser-{name}.html"),
        page.replace("</body>", MEASURE),
    );
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
        ])
        .arg(format!(
            "--user-data-dir={}",
            scratch(&format!("chromium-{name}"))
        ))
        .arg(format!("--window-size={size}"))
        .args(["--dump-dom", &format!("file://{page}")])
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let title = dom
        .split_once("<title>")
        .and_then(|(_, rest)| rest.split_once("</title>"));
    title.map_or_else(
        || panic!("{name}: {output:?}"),
        |(title, _)| title.to_owned(),
    )
}

#[test]
fn the_page_can_be_read_in_a_browser() {
    let Some(browser) = browser() else {
        return left_out("the page in a browser", "there is no Chromium");
    };
    let names = [
        "account:<id>",
        "voucher:<code>",
        "payout:<month>",
        "a-lock-with-quite-a-long-name:<id>",
    ];
    let mut order = edge("room:<id>", "room:<id>")
        + &edge("day:<day>", "room:<id>")
        + &edge("day:<day>", "night:<day>")
        + &edge("night:<day>", "day:<day>");
    for (nth, name) in names.iter().enumerate() {
        order += &edge(name, names[(nth + 1) % names.len()]);
    }
    let order = file("report-browser-order", order);
    let old = file(
        "report-browser-old.json",
        inventory().replace(":balance:", ":payment:"),
    );
    let page = scratch("report-browser.html");
    let words = [
        "report",
        "--artifact",
        &booking_service(),
        "--from",
        &order,
        "--against",
        &old,
        "-o",
        &page,
    ];
    advisory(&words).exits(0);
    let page = std::fs::read_to_string(&page).unwrap();
    let dark = page.replace("(prefers-color-scheme: dark)", "all");
    let printed = dark.replace("@media print", "@media all");
    for (name, page, size) in [
        ("light", &page, "1200,900"),
        ("narrow", &page, "500,900"),
        ("dark", &dark, "1200,900"),
        ("printed", &printed, "800,1100"),
    ] {
        assert_eq!(
            measured(&browser, name, page, size),
            "circles 3; fine",
            "{name}"
        );
    }
}
