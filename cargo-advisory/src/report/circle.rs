//! A cycle of locks as a circle (SVG): each lock asks for the next one.

use std::f64::consts::PI;
use std::fmt::Write;

use advisory_pattern::order::End;

use super::html::escaped;
use crate::display_width::cut;
use crate::graph::{Arrow, Graph};
use crate::text::joined;

pub(super) const BOX: (usize, usize) = (220, 34);
/// The maximum number of letters of a name in its box.
const LETTERS: usize = 30;

/// The space around the drawing for the lines of its boxes.
const MARGIN: f64 = 12.0;
/// The distance of an arrow's ends from the boxes.
const GAP: f64 = 4.0;

/// Draws the arrows of a cycle, given by their numbers, clockwise from the top.
pub(super) fn draw(text: &mut String, graph: &Graph<'_>, cycle: &[usize]) {
    let arrows = cycle.iter().filter_map(|at| graph.arrows.get(*at));
    let arrows: Vec<&Arrow> = arrows.collect();
    let names = arrows.iter().map(|arrow| graph.end(arrow.from));
    let Some(names) = names.collect::<Option<Vec<_>>>() else {
        return;
    };
    let count = size(arrows.len());
    let (half_width, half_height) = (size(BOX.0) / 2.0, size(BOX.1) / 2.0);
    // Neighbouring boxes must not touch.
    let radius = (count * 60.0).max(110.0);
    let center = (radius + half_width + MARGIN, radius + half_height + MARGIN);
    let angle = |nth: f64| 2.0 * PI * nth / count - PI / 2.0;
    let at = |angle: f64| {
        (
            center.0 + radius * angle.cos(),
            center.1 + radius * angle.sin(),
        )
    };
    let (width, height) = (2.0 * center.0, 2.0 * center.1);
    let words = joined(names.iter().map(|end| &end.lock), ", then ");
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
    for (nth, end) in names.iter().enumerate() {
        let (x, y) = at(angle(size(nth)));
        let place = [x - half_width, y - half_height, x, y + 4.0];
        draw_box(text, end, place.map(|number| format!("{number:.1}")));
    }
    text.push_str("</svg></div>\n");
}

/// Draws the box of a lock: its left and upper edge, and the place of its name.
pub(super) fn draw_box(text: &mut String, end: &End, [x, y, name_x, name_y]: [String; 4]) {
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
