//! The figures as Markdown: a table of the faults, one of the kinds of operation, and one of the
//! bugs.

use crate::figures::Figures;
use crate::operation_kind::OperationKind;
use crate::outcome::Outcome;
use crate::violation::Rule;
use std::time::Duration;

pub(crate) const FAULTS: &str = "\
| fault | operations | granted | refused | failed | dropped | unknown | faults | violations | recovery, median | longest |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |";

pub(crate) const BUGS: &str = "\
| bug | what it is | fault | episodes | operations | found |
| --- | --- | --- | ---: | ---: | --- |";

/// How many violations of a run are printed.
const SHOWN: usize = 5;

/// A line of the table of faults or of bugs, and the violations that were not expected.
pub(crate) fn line(figures: &Figures) -> String {
    let fault = figures.fault.name();
    if let Some(why) = figures.left_out {
        return format!("| `{fault}` | left out: {why} |");
    }
    let Some(bug) = figures.bug else {
        let mut lines = vec![fault_line(figures)];
        for violation in figures.violations.iter().take(SHOWN) {
            lines.push(format!("  {}: {}", violation.rule.name(), violation.what));
        }
        if figures.violations.len() > SHOWN {
            lines.push(format!("  and {} more", figures.violations.len() - SHOWN));
        }
        return lines.join("\n");
    };
    let cells = [
        format!("`{}`", bug.name()),
        bug.description().to_owned(),
        format!("`{fault}`"),
        figures.episodes.to_string(),
        figures.operations.to_string(),
        violations(figures),
    ];
    format!("| {} |", cells.join(" | "))
}

fn fault_line(figures: &Figures) -> String {
    let cells = [
        format!("`{}`", figures.fault.name()),
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
    format!("| {} |", cells.join(" | "))
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

/// The table of the kinds of operation, over all runs without a bug.
pub(crate) fn kinds(all: &[Figures]) -> String {
    let mut lines = vec!["| kind | operations | granted |".to_owned()];
    lines.push("| --- | ---: | ---: |".to_owned());
    for kind in OperationKind::ALL {
        let counts = all.iter().map(|figures| figures.kinds[kind.index()]);
        let (operations, granted) = counts.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        lines.push(format!("| `{}` | {operations} | {granted} |", kind.name()));
    }
    lines.join("\n")
}

/// The last line: the sum of all runs without a bug.
pub(crate) fn total(all: &[Figures]) -> String {
    let sum = |count: fn(&Figures) -> usize| all.iter().map(count).sum::<usize>();
    let (runs, took) = (
        all.iter().filter(|one| one.left_out.is_none()).count(),
        all.iter().map(|one| one.took).sum::<Duration>(),
    );
    format!(
        "{runs} runs, {} operations ({} granted), {} faults injected, {} violations, {} s",
        sum(|one| one.operations),
        sum(Figures::granted),
        sum(|one| one.injected),
        sum(|one| one.violations.len()),
        took.as_secs()
    )
}
