//! Findings as workflow commands of GitHub Actions: annotations at the lines of a pull request.
//!
//! The syntax:
//! <https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands>.

use std::fmt::Write;

use super::{ADVICE, Finding, count};
use crate::source_root::SourceRoot;
use crate::text::one_line;

/// GitHub shows at most this many errors, and notices, of one step at the lines.
const SHOWN: usize = 10;

pub(crate) fn write(findings: &[Finding], summary: &str, root: &SourceRoot) -> String {
    let mut text = String::new();
    for finding in findings {
        let command = if finding.kind == ADVICE {
            "notice"
        } else {
            "error"
        };
        let (located, _) = finding.first_line(root);
        let _ = writeln!(
            text,
            "::{command} file={},line={},title={}::{}",
            property(&located.path),
            located.line,
            property(&format!("cargo advisory: {}", finding.kind)),
            data(&finding.in_lines()),
        );
    }
    let count = count(findings);
    let _ = writeln!(text, "{count}; {}", one_line(summary));
    let advice = findings.iter().filter(|found| found.kind == ADVICE).count();
    if advice.max(findings.len() - advice) > SHOWN {
        let _ = writeln!(
            text,
            "GitHub shows {SHOWN} errors and {SHOWN} notices of a step at their lines; this log has all of them."
        );
    }
    text
}

/// The text of a command. A line break would end it, and the next line could be another command.
fn data(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{SHOWN, write};
    use crate::finding::{ADVICE, Finding, Place};
    use crate::source_root::SourceRoot;

    #[test]
    fn more_than_are_shown_is_said_of_errors_and_of_notices() {
        let finding = |kind| Finding {
            kind,
            places: vec![Place::line(Path::new("locks.md"), 1)],
            ..Finding::default()
        };
        let root = SourceRoot::find(None);
        for (errors, notices, is_said) in [
            (SHOWN, 0, false),
            (SHOWN, SHOWN, false),
            (SHOWN + 1, 0, true),
            (0, SHOWN + 1, true),
        ] {
            let kinds = std::iter::repeat_n("drift", errors);
            let kinds = kinds.chain(std::iter::repeat_n(ADVICE, notices));
            let findings: Vec<Finding> = kinds.map(finding).collect();
            let text = write(&findings, "all", &root);
            assert_eq!(text.contains("GitHub shows"), is_said, "{text}");
            assert_eq!(text.matches("::notice ").count(), notices);
        }
    }
}
