//! The order of locks as a drawing (SVG) and as a list, with a circle above it for each cycle.
//!
//! A lock is in a column after those that are held when it is asked for, so arrows point to the
//! right. Those of a cycle are red.

use std::fmt::Write;

use advisory_pattern::order::Edge;

use super::circle::{self, BOX, draw_box};
use super::html::{code, escaped, with_code};
use crate::graph::{Graph, LEGEND, messages};

const COLUMN: usize = 300;
const ROW: usize = 56;

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
        circle::draw(&mut text, &graph, cycle);
        text.push_str("</article>\n");
    }
    draw(&mut text, &graph);
    text.push_str("<ul>\n");
    let name = |number: usize| {
        graph
            .end(number)
            .map_or_else(String::new, |end| code(&end.lock))
    };
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
