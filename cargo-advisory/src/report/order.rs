//! The order of locks as a drawing (SVG) and as a list, with a circle above it for each cycle.
//!
//! A lock is in a column after those that are held when it is asked for, so arrows point to the
//! right. Those of a cycle are red.

use std::f64::consts::PI;
use std::fmt::Write;

use advisory_pattern::order::{Edge, End};

use super::html::{code, escaped, with_code};
use crate::display_width::cut;
use crate::graph::{Arrow, Graph, LEGEND, messages};
use crate::text::joined;

const COLUMN: usize = 300;
const ROW: usize = 56;
const BOX: (usize, usize) = (220, 34);
/// The maximum number of letters of a name in its box.
const LETTERS: usize = 30;

/// The space around the drawing for the lines of its boxes.
const MARGIN: f64 = 12.0;
/// The distance of an arrow's ends from the boxes.
const GAP: f64 = 4.0;

/// The tips of arrows. There is one for each colour, because not every browser gives the tip the
/// colour of its line.
const TIPS: &str = "\
<svg width=\"0\" height=\"0\" aria-hidden=\"true\" class=\"tips\"><defs>
<marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\"/></marker>
<marker id=\"red-tip\" class=\"red\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"5\" markerHeight=\"5\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\"/></marker>
</defs></svg>
";

pub(super) fn section(edges: &[Edge], cycles: &[Vec<usize>]) -> String {
    if edges.is_empty() {
        return "<p>Not recorded. <code>ADVISORY_LOCK_ORDER=\"$PWD/target/lock-order\" cargo test</code> records it, and \
                <code>--from target/lock-order</code> shows it here.</p>\n"
            .to_owned();
    }
    let graph = Graph::new(edges, cycles);
    let mut text = format!("<p>{}</p>\n", escaped(LEGEND));
    text.push_str(TIPS);
    for (cycle, message) in cycles.iter().zip(messages(edges, cycles)) {
        let message = with_code(&message);
        let _ = writeln!(
            text,
            "<article class=\"problem\">\n<p class=\"bad\">{message}</p>"
        );
        draw_circle(&mut text, &graph, cycle);
        text.push_str("</article>\n");
    }
    draw(&mut text, &graph);
    text.push_str("<ul>\n");
    let name = |number: usize| code(&graph.locks[number].lock);
    for arrow in &graph.arrows {
        let (class, part) = if arrow.is_red {
            (" class=\"bad\"", ", part of a circle")
        } else {
            ("", "")
        };
        let (from, to, label) = (name(arrow.from), name(arrow.to), escaped(&arrow.label));
        let _ = writeln!(
            text,
            "<li{class}>{from} → {to}{part} <small>{label}</small></li>"
        );
    }
    text.push_str("</ul>\n");
    text
}

/// The column of each lock, which is the length of the longest path to it.
fn columns(graph: &Graph<'_>) -> Vec<usize> {
    let mut columns = vec![0; graph.boxes.len()];
    for _ in 0..graph.boxes.len() {
        let mut is_changed = false;
        for arrow in graph.arrows.iter().filter(|arrow| !arrow.is_red) {
            let least = columns[arrow.from] + 1;
            if columns[arrow.to] < least {
                columns[arrow.to] = least;
                is_changed = true;
            }
        }
        if !is_changed {
            break;
        }
    }
    columns
}

fn draw(text: &mut String, graph: &Graph<'_>) {
    let columns = columns(graph);
    let mut used = vec![0; columns.iter().max().map_or(0, |most| most + 1)];
    // By the number of the lock.
    let mut places = vec![(0, 0); columns.len()];
    for (number, column) in columns.iter().enumerate() {
        places[number] = (20 + column * COLUMN, 20 + used[*column] * ROW);
        used[*column] += 1;
    }
    let width = 40 + used.len().saturating_sub(1) * COLUMN + BOX.0;
    let height = 60 + used.iter().max().map_or(0, |most| most.saturating_sub(1)) * ROW + BOX.1;
    let _ = writeln!(
        text,
        "<div class=\"graph\" tabindex=\"0\" role=\"region\" aria-label=\"The order of locks, drawn\"><svg viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"The order of locks\">"
    );
    for arrow in &graph.arrows {
        let ((from_x, from_y), (to_x, to_y)) = (places[arrow.from], places[arrow.to]);
        let (class, tip) = if arrow.is_red {
            ("red", "red-tip")
        } else {
            ("arrow", "tip")
        };
        let path = if to_x > from_x {
            let (y, to_y) = (from_y + BOX.1 / 2, to_y + BOX.1 / 2);
            let (x, middle) = (from_x + BOX.0, (from_x + BOX.0 + to_x) / 2);
            format!("M{x} {y}C{middle} {y} {middle} {to_y} {to_x} {to_y}")
        } else {
            // Back, or within the column: below the boxes.
            let (x, to_x) = (from_x + BOX.0 / 2 + 12, to_x + BOX.0 / 2 - 12);
            let (y, to_y) = (from_y + BOX.1, to_y + BOX.1);
            let low = y.max(to_y) + ROW - BOX.1 + 6;
            format!("M{x} {y}C{x} {low} {to_x} {low} {to_x} {to_y}")
        };
        let label = escaped(&arrow.label);
        let _ = writeln!(
            text,
            "<path class=\"{class}\" d=\"{path}\" marker-end=\"url(#{tip})\"><title>{label}</title></path>"
        );
    }
    for (number, end) in &graph.boxes {
        let (x, y) = places[*number];
        let place = [x, y, x + BOX.0 / 2, y + BOX.1 / 2 + 4];
        draw_box(text, end, place.map(|number| number.to_string()));
    }
    text.push_str("</svg></div>\n");
}

/// Draws the arrows of a cycle, given by their numbers, as a circle, clockwise from the top.
fn draw_circle(text: &mut String, graph: &Graph<'_>, cycle: &[usize]) {
    let arrows: Vec<&Arrow> = cycle.iter().map(|at| &graph.arrows[*at]).collect();
    let locks = arrows.iter().map(|arrow| graph.locks[arrow.from]);
    let locks: Vec<&End> = locks.collect();
    let count = size(arrows.len());
    let (half_width, half_height) = (size(BOX.0) / 2.0, size(BOX.1) / 2.0);
    // Neighbouring boxes must not touch.
    let radius = (count * 60.0).max(110.0);
    let center = (radius + half_width + MARGIN, radius + half_height + MARGIN);
    let angle = |nth: f64| 2.0 * PI * nth / count - PI / 2.0;
    let at = |angle: f64| {
        let (x, y) = (radius * angle.cos(), radius * angle.sin());
        (center.0 + x, center.1 + y)
    };
    let (width, height) = (2.0 * center.0, 2.0 * center.1);
    let words = joined(locks.iter().map(|end| &end.lock), ", then ");
    let _ = writeln!(
        text,
        "<div class=\"graph\" tabindex=\"0\" role=\"region\" aria-label=\"A circle of locks\">\
         <svg viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\" \
         aria-label=\"{}, and the first again\">",
        escaped(&words)
    );
    for (nth, arrow) in arrows.iter().enumerate() {
        let (from, to) = (angle(size(nth)), angle(size(nth) + 1.0));
        // The points at which the circle leaves one box and reaches the other.
        let is_outside = |of: f64, angle: f64| {
            let ((box_x, box_y), (x, y)) = (at(of), at(angle));
            (x - box_x).abs() > half_width + GAP || (y - box_y).abs() > half_height + GAP
        };
        let steps = |start: f64, end: f64| {
            (0..=360).map(move |step| start + (end - start) * f64::from(step) / 360.0)
        };
        let (Some(begin), Some(end)) = (
            steps(from, to).find(|angle| is_outside(from, *angle)),
            steps(to, from).find(|angle| is_outside(to, *angle)),
        ) else {
            continue;
        };
        let ((x, y), (to_x, to_y)) = (at(begin), at(end));
        let is_long = u8::from(end - begin > PI);
        let _ = writeln!(
            text,
            "<path class=\"red\" d=\"M{x:.1} {y:.1}A{radius:.1} {radius:.1} 0 {is_long} 1 {to_x:.1} {to_y:.1}\" \
             marker-end=\"url(#red-tip)\"><title>{}</title></path>",
            escaped(&arrow.label)
        );
    }
    for (nth, end) in locks.iter().enumerate() {
        let (x, y) = at(angle(size(nth)));
        let place = [x - half_width, y - half_height, x, y + 4.0];
        draw_box(text, end, place.map(|number| format!("{number:.1}")));
    }
    text.push_str("</svg></div>\n");
}

/// Draws the box of a lock: its left and upper edge, and the place of its name.
fn draw_box(text: &mut String, end: &End, [x, y, name_x, name_y]: [String; 4]) {
    let round = if end.is_lease { 17 } else { 4 };
    let (width, height) = BOX;
    let (title, name) = (escaped(&end.lock), escaped(&cut(&end.lock, LETTERS)));
    let _ = writeln!(
        text,
        "<g><title>{title}</title><rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"{round}\"/>\
         <text x=\"{name_x}\" y=\"{name_y}\">{name}</text></g>"
    );
}

fn size(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}
