//! How are the figures shown? A line for each fault, and what breaks a rule in full.

use crate::figures::Figures;
use crate::outcome::Outcome;
use crate::violation::Rule;
use std::time::Duration;

pub(crate) const HEAD: &str = "\
| fault | operations | granted | refused | failed | dropped | unknown | injected | violations | recovery, median | longest |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: | ---: |";

/// How many violations of a run are printed.
const SHOWN: usize = 5;

/// A line of the table, in Markdown, and the first violations below it.
pub(crate) fn line(figures: &Figures) -> String {
    let fault = match figures.bug {
        Some(bug) => format!("{}, bug {}", figures.fault.name(), bug.name()),
        None => figures.fault.name().to_owned(),
    };
    if let Some(why) = figures.left_out {
        return format!("| {fault} | left out: {why} |");
    }
    let cells = [
        fault,
        figures.operations.to_string(),
        figures.granted().to_string(),
        figures.count(Outcome::Refused).to_string(),
        figures.count(Outcome::Failed).to_string(),
        figures.count(Outcome::Dropped).to_string(),
        figures.unknown().to_string(),
        figures.injected.to_string(),
        violations(figures),
        shown(figures.median()),
        shown(figures.longest()),
    ];
    let mut lines = vec![format!("| {} |", cells.join(" | "))];
    for violation in figures.violations.iter().take(SHOWN) {
        lines.push(format!("  {}: {}", violation.rule.name(), violation.what));
    }
    if figures.violations.len() > SHOWN {
        lines.push(format!("  and {} more", figures.violations.len() - SHOWN));
    }
    lines.join("\n")
}

fn violations(figures: &Figures) -> String {
    let broken = Rule::ALL.into_iter().filter_map(|rule| {
        let count = figures.broken(rule);
        (count > 0).then(|| format!("{count} {}", rule.name()))
    });
    let broken: Vec<String> = broken.collect();
    if broken.is_empty() {
        "0".to_owned()
    } else {
        broken.join(", ")
    }
}

fn shown(time: Option<Duration>) -> String {
    time.map_or("-".to_owned(), |time| format!("{} ms", time.as_millis()))
}

/// The last line: all runs together.
pub(crate) fn total(all: &[Figures]) -> String {
    let sum = |count: fn(&Figures) -> usize| all.iter().map(count).sum::<usize>();
    let (runs, took) = (
        all.iter().filter(|one| one.left_out.is_none()).count(),
        all.iter().map(|one| one.took).sum::<Duration>(),
    );
    format!(
        "{runs} runs, {} operations ({} granted, {} of them leases), {} faults injected, {} violations, {} s",
        sum(|one| one.operations),
        sum(Figures::granted),
        sum(|one| one.leases),
        sum(|one| one.injected),
        sum(|one| one.violations.len()),
        took.as_secs()
    )
}
