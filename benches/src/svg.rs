//! Lines over named places, as an SVG that needs no other file.

use std::fmt::Write;

pub(crate) struct Chart {
    pub(crate) title: &'static str,
    /// What stands below.
    pub(crate) across: &'static str,
    pub(crate) places: Vec<String>,
    pub(crate) lines: Vec<Line>,
    pub(crate) scale: Scale,
}

/// What the way up stands for.
#[derive(Clone, Copy)]
pub(crate) enum Scale {
    /// As much for each unit, from zero.
    Even,
    /// As much for each doubling: what is a hundred times as long still fits, and what is short is still seen.
    Doublings,
}

pub(crate) struct Line {
    pub(crate) name: &'static str,
    /// One for each place.
    pub(crate) values: Vec<f64>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 210.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 60.0;
/// Told apart without red and green too (<https://jfly.uni-koeln.de/color/>).
const COLOURS: [&str; 6] = [
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00",
];

impl Chart {
    pub(crate) fn svg(&self) -> String {
        let values = self.lines.iter().flat_map(|line| &line.values);
        let ticks = self.scale.ticks(values.copied());
        let y = |value: f64| {
            HEIGHT - BOTTOM - self.scale.share(value, &ticks) * (HEIGHT - TOP - BOTTOM)
        };
        let mut svg = String::new();
        let mut put = |text: std::fmt::Arguments<'_>| {
            // Writing to a `String` cannot fail.
            let _: std::fmt::Result = svg.write_fmt(text);
            svg.push('\n');
        };
        put(format_args!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13" fill="#333">"##
        ));
        put(format_args!(
            r##"<rect width="100%" height="100%" fill="#fff"/>"##
        ));
        let title = self.title;
        put(format_args!(
            r#"<text x="{LEFT}" y="26" font-size="15">{title}</text>"#
        ));
        let right = WIDTH - RIGHT;
        for &value in &ticks {
            let (line, text) = (y(value), y(value) + 4.0);
            put(format_args!(
                r##"<path d="M{LEFT} {line:.1}H{right}" stroke="#ddd"/><text x="{:.1}" y="{text:.1}" text-anchor="end">{}</text>"##,
                LEFT - 8.0,
                number(value),
            ));
        }
        for (x, place) in self.across().zip(&self.places) {
            let below = HEIGHT - BOTTOM + 20.0;
            put(format_args!(
                r#"<text x="{x:.1}" y="{below}" text-anchor="middle">{place}</text>"#
            ));
        }
        put(format_args!(
            r#"<text x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
            f64::midpoint(LEFT, right),
            HEIGHT - 16.0,
            self.across,
        ));
        for (index, line) in self.lines.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let points = self.across().zip(&line.values);
            let points = points.map(|(x, value)| format!("{x:.1},{:.1}", y(*value)));
            let points = points.collect::<Vec<_>>().join(" ");
            put(format_args!(
                r#"<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.5"/>"#
            ));
            #[expect(clippy::cast_precision_loss, reason = "a handful of lines")]
            let row = TOP + 10.0 + 24.0 * index as f64;
            let (from, to) = (right + 16.0, right + 36.0);
            put(format_args!(
                r#"<path d="M{from} {row}H{to}" stroke="{colour}" stroke-width="2.5"/><text x="{}" y="{}">{}</text>"#,
                to + 6.0,
                row + 4.0,
                line.name,
            ));
        }
        put(format_args!("</svg>"));
        svg
    }

    /// Where the places are.
    #[expect(clippy::cast_precision_loss, reason = "a handful of places")]
    fn across(&self) -> impl Iterator<Item = f64> {
        let step = (WIDTH - LEFT - RIGHT) / self.places.len() as f64;
        (0..self.places.len()).map(move |index| LEFT + step * (index as f64 + 0.5))
    }
}

impl Scale {
    /// The values that lines are drawn at, the lowest and the highest among them.
    fn ticks(self, values: impl Iterator<Item = f64> + Clone) -> Vec<f64> {
        let highest = values.clone().fold(0.0, f64::max);
        match self {
            Self::Even => {
                let top = round_up(highest);
                (0..=5).map(|step| top * f64::from(step) / 5.0).collect()
            }
            Self::Doublings => {
                let lowest = values.fold(highest, f64::min);
                let tens = (-6..6).map(|ten| 10_f64.powi(ten));
                let steps = tens.flat_map(|ten| [ten, 2.0 * ten, 5.0 * ten]);
                let above = steps.skip_while(|step| step * 2.5 <= lowest);
                let mut ticks: Vec<f64> = above.take_while(|step| *step < highest).collect();
                ticks.push(round_up(highest));
                ticks
            }
        }
    }

    /// How far up a value is, the lowest tick being 0 and the highest 1.
    fn share(self, value: f64, ticks: &[f64]) -> f64 {
        let (low, high) = (ticks[0], ticks[ticks.len() - 1]);
        match self {
            Self::Even => (value - low) / (high - low),
            Self::Doublings => (value / low).log2() / (high / low).log2(),
        }
    }
}

/// The next number above that five steps lead up to, each easily read.
fn round_up(value: f64) -> f64 {
    let ten = 10_f64.powf(value.max(1e-9).log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    let fits = steps
        .into_iter()
        .map(|step| step * ten)
        .find(|top| *top >= value);
    fits.unwrap_or(value)
}

fn number(value: f64) -> String {
    if value >= 1_000.0 {
        format!("{}k", value / 1_000.0)
    } else {
        // Without the tail that a sum of fractions has.
        let text = format!("{value:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}
