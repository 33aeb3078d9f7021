//! Two panels of bars over time, in the reader's colours, light or dark.

use svg::Document;
use svg::node::element::{Circle, Group, Line, Rectangle, Style, Text};

/// One call, in milliseconds since the first of its race.
pub(crate) struct Call {
    pub(crate) asked: f64,
    /// The body begins: the transaction is open, and the lock is held if there is one.
    pub(crate) began: f64,
    pub(crate) ended: f64,
    pub(crate) booked: bool,
}

const WIDTH: f64 = 760.0;
const LEFT: f64 = 24.0;
/// Room for the words after the bars.
const RIGHT: f64 = 190.0;
const ROW: f64 = 22.0;
const HEAD: f64 = 34.0;
const GAP: f64 = 22.0;

/// Colours that people with any colour vision can distinguish (<https://jfly.uni-koeln.de/color/>).
const STYLE: &str = "
text { font: 13px sans-serif; fill: #24292f }
.head { font-weight: bold }
.axis { stroke: #8c959f }
.tick { fill: #57606a; font-size: 11px }
.waits { fill: #afb8c1 }
.works { fill: #56B4E9 }
.books { fill: #009E73 }
.doubles { fill: #D55E00 }
text.doubles { font-weight: bold }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .tick { fill: #9198a1 }
  .waits { fill: #656c76 }
  text.doubles { fill: #ff9a5c }
}";

pub(crate) fn drawing(without: &[Call], with: &[Call]) -> Document {
    let longest = without.iter().chain(with).map(|call| call.ended);
    let scale = (WIDTH - LEFT - RIGHT) / longest.fold(1.0, f64::max);
    let panel_height = |calls: &[Call]| HEAD + ROW * to_f64(calls.len());
    let below = panel_height(without) + GAP;
    let end = below + panel_height(with);
    let height = end + 40.0;
    Document::new()
        .set("viewBox", (0, 0, WIDTH, height))
        .set("role", "img")
        .set(
            "aria-label",
            "Five calls book one slot: without the lock each of them does, with the lock one",
        )
        .add(Style::new(STYLE))
        .add(panel("Without the lock", without, scale, 0.0))
        .add(panel("With the lock", with, scale, below))
        .add(axis(scale, end))
}

fn panel(title: &str, calls: &[Call], scale: f64, top: f64) -> Group {
    let bookings = calls.iter().filter(|call| call.booked).count();
    let verb = if bookings == 1 { "books" } else { "book" };
    let title = format!(
        "{title}: {bookings} of {} calls {verb} the slot",
        calls.len()
    );
    let mut panel = Group::new().add(text(title, LEFT, top + 20.0, "head"));
    let mut is_taken = false;
    for (row, call) in calls.iter().enumerate() {
        let y = top + HEAD + ROW * to_f64(row);
        let (class, words) = match (call.booked, is_taken) {
            (true, false) => ("books", "books"),
            (true, true) => ("doubles", "books it again"),
            (false, _) => ("", "finds it taken"),
        };
        is_taken |= call.booked;
        let end = LEFT + call.ended * scale;
        panel = panel
            .add(bar(call.asked, call.began, scale, y, "waits"))
            .add(bar(call.began, call.ended, scale, y, "works"))
            .add(text(words, end + 14.0, y + 12.0, class));
        if call.booked {
            let dot = Circle::new().set("cx", round(end)).set("cy", y + 7.5);
            panel = panel.add(dot.set("r", 6).set("class", class));
        }
    }
    panel
}

fn bar(from: f64, to: f64, scale: f64, y: f64, class: &str) -> Rectangle {
    Rectangle::new()
        .set("x", round(LEFT + from * scale))
        .set("y", y)
        .set("width", round((to - from) * scale))
        .set("height", 15)
        .set("class", class)
}

fn axis(scale: f64, y: f64) -> Group {
    let mut axis = Group::new();
    let right = WIDTH - RIGHT;
    let line = Line::new().set("x1", LEFT).set("x2", right);
    axis = axis.add(
        line.set("y1", y + 6.0)
            .set("y2", y + 6.0)
            .set("class", "axis"),
    );
    let mut ms = 0.0;
    while LEFT + ms * scale <= right {
        axis = axis.add(text(
            format!("{ms} ms"),
            LEFT + ms * scale,
            y + 21.0,
            "tick",
        ));
        ms += 10.0;
    }
    let legend = right + 14.0;
    for (row, (class, words)) in [
        ("waits", "begins, or waits for the lock"),
        ("works", "in the transaction"),
    ]
    .into_iter()
    .enumerate()
    {
        let y = y + 4.0 + 16.0 * to_f64(row);
        let key = Rectangle::new()
            .set("x", legend)
            .set("y", y)
            .set("width", 10);
        axis = axis
            .add(key.set("height", 10).set("class", class))
            .add(text(words, legend + 15.0, y + 9.0, "tick"));
    }
    axis
}

fn text(words: impl Into<String>, x: f64, y: f64, class: &str) -> Text {
    Text::new(words)
        .set("x", round(x))
        .set("y", round(y))
        .set("class", class)
}

/// To a tenth of a unit, which is exact enough.
fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn to_f64(count: usize) -> f64 {
    u32::try_from(count).map_or(0.0, f64::from)
}
