//! The two charts of the page: operations a second by connections, and the times of the calls.
//!
//! The background is transparent, and each colour has enough contrast on white and on black.

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use serde_json::Value;
use std::error::Error;
use std::fs;
use std::path::Path;

type Outcome<T> = Result<T, Box<dyn Error>>;

const SIZE: (u32, u32) = (860, 420);
/// For the labels of the lines.
const RIGHT: u32 = 250;
const GREY: RGBColor = RGBColor(128, 136, 147);
/// Distinguishable without red and green; the first is ours.
const COLOURS: [RGBColor; 5] = [
    RGBColor(47, 129, 247),
    RGBColor(217, 119, 6),
    RGBColor(20, 150, 130),
    RGBColor(192, 85, 160),
    RGBColor(150, 128, 60),
];

struct Line<'c> {
    name: &'c str,
    /// One for each position.
    values: Vec<f64>,
}

struct Chart<'c> {
    title: &'c str,
    across: &'c str,
    up: &'c str,
    places: Vec<String>,
    lines: Vec<Line<'c>>,
}

pub(crate) fn draw(curves: &Value, folder: &Path) -> Outcome<()> {
    fs::create_dir_all(folder)?;
    let (throughput, latency) = (&curves["throughput"], &curves["latency"]);
    let chart = Chart {
        title: "Lock, one query, commit: operations a second",
        across: "connections, each with its own key",
        up: "thousands a second",
        places: numbers(&throughput["connections"])
            .map(|count| count.to_string())
            .collect(),
        lines: lines(throughput, "ops", 1_000.0),
    };
    let highest = chart.highest();
    chart.draw(
        &folder.join("throughput.svg"),
        0.0..highest * 1.05,
        |value| format!("{value}"),
    )?;
    let chart = Chart {
        title: "Lock, one query, commit: time of a call, 16 connections",
        across: "this share of the calls took no longer",
        up: "milliseconds",
        places: numbers(&latency["per_mille"])
            .map(|share| format!("{} %", share / 10.0))
            .collect(),
        lines: lines(latency, "ms", 1.0),
    };
    let (lowest, highest) = (chart.lowest(), chart.highest());
    let range = (lowest / 1.3..highest * 1.3).log_scale().base(2.0);
    chart.draw(&folder.join("latency.svg"), range, |value| {
        format!("{value}")
    })
}

fn numbers(values: &Value) -> impl Iterator<Item = f64> {
    values
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_f64)
}

fn lines<'c>(of: &'c Value, values: &str, unit: f64) -> Vec<Line<'c>> {
    let sides = of["sides"].as_array().into_iter().flatten();
    let line = |side: &'c Value| Line {
        name: side["name"].as_str().unwrap_or_default(),
        values: numbers(&side[values]).map(|value| value / unit).collect(),
    };
    sides.map(line).collect()
}

impl Chart<'_> {
    fn values(&self) -> impl Iterator<Item = f64> {
        self.lines.iter().flat_map(|line| &line.values).copied()
    }

    fn lowest(&self) -> f64 {
        self.values().fold(f64::MAX, f64::min)
    }

    fn highest(&self) -> f64 {
        self.values().fold(0.0, f64::max)
    }

    fn draw<Y>(
        &self,
        file: &Path,
        up: impl AsRangedCoord<Value = f64, CoordDescType = Y>,
        label: fn(&f64) -> String,
    ) -> Outcome<()>
    where
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let area = SVGBackend::new(file, SIZE).into_drawing_area();
        let text = |size: u32| ("sans-serif", size).into_font().color(&GREY);
        let (plot, names) = area.split_horizontally(SIZE.0 - RIGHT);
        let mut chart = ChartBuilder::on(&plot)
            .caption(self.title, text(16))
            .margin(12)
            .x_label_area_size(48)
            .y_label_area_size(58)
            .build_cartesian_2d((0..self.places.len() - 1).into_segmented(), up)?;
        let place = |at: &SegmentValue<usize>| match at {
            SegmentValue::CenterOf(at) => self.places.get(*at).cloned().unwrap_or_default(),
            _ => String::new(),
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(GREY.mix(0.35))
            .light_line_style(TRANSPARENT)
            .axis_style(GREY)
            .label_style(text(14))
            .x_labels(self.places.len())
            .y_labels(8)
            .x_label_formatter(&place)
            .y_label_formatter(&label)
            .x_desc(self.across)
            .y_desc(self.up)
            .axis_desc_style(text(14))
            .draw()?;
        for (index, line) in self.lines.iter().enumerate() {
            let style = COLOURS[index % COLOURS.len()].stroke_width(if index == 0 { 4 } else { 2 });
            let points = line.values.iter().enumerate();
            let points: Vec<_> = points
                .map(|(at, value)| (SegmentValue::CenterOf(at), *value))
                .collect();
            let dots = points
                .iter()
                .map(|point| Circle::new(point.clone(), 3, style.filled()));
            chart.draw_series(dots)?;
            chart.draw_series(LineSeries::new(points, style))?;
        }
        // From top to bottom, in the order of the lines' ends.
        let mut order: Vec<usize> = (0..self.lines.len()).collect();
        let last = |index: &usize| self.lines[*index].values.last().copied().unwrap_or(0.0);
        order.sort_by(|one, other| last(other).total_cmp(&last(one)));
        let mut row = 60;
        for index in order {
            let style = COLOURS[index % COLOURS.len()].stroke_width(if index == 0 { 4 } else { 2 });
            names.draw(&PathElement::new(vec![(4, row), (28, row)], style))?;
            names.draw(&Text::new(self.lines[index].name, (36, row - 7), text(14)))?;
            row += 26;
        }
        area.present()?;
        Ok(())
    }
}
