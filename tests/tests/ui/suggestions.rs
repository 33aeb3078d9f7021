//! A program compiles once the help of its message is followed.
//!
//! For each `ui/collision_*.rs` the help is read from its `.stderr`, and each suggestion is applied
//! to the source. `advisory-pattern` tests random locks in the same way, without a compiler.

use std::path::{Path, PathBuf};

/// A position in the source, where something is written.
type At = usize;

struct Case {
    name: String,
    source: String,
    help: String,
    /// The literal that the message points to, and that of the other lock.
    here: At,
    there: At,
}

impl Case {
    fn read(file: &Path) -> Option<Self> {
        let source = std::fs::read_to_string(file).expect("a test");
        let message = std::fs::read_to_string(file.with_extension("stderr")).expect("beside it");
        let after = |text: &str| Some(message.split_once(text)?.1);
        let at = |place: &str| {
            let mut numbers = place.split([':', ' ', '\n']).skip(1).map(str::parse);
            let (line, column) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
            let lines: Vec<&str> = source.split_inclusive('\n').take(line).collect();
            let (last, before) = lines.split_last()?;
            let before: usize = before.iter().map(|line| line.len()).sum();
            let columns = last.char_indices().nth(column - 1_usize)?;
            Some(before + columns.0)
        };
        let mut places = message
            .match_indices(" --> ")
            .map(|(start, _)| &message[start + 5..]);
        let (there, here) = (at(places.next()?)?, at(places.next()?)?);
        let help = after("= help: ")?.lines().next()?.to_owned();
        let name = file.file_stem()?.to_str()?.to_owned();
        Some(Self {
            name,
            source,
            help,
            here,
            there,
        })
    }

    /// The source with each of the suggestions.
    fn followed(&self) -> Vec<String> {
        let mut ways = Vec::new();
        for advice in self.help.split("; ") {
            if advice.contains("write `name = ") {
                let argument = quoted(advice, "write `");
                ways.push(
                    self.with(&[(self.here, None, &argument), (self.there, None, &argument)]),
                );
            } else if advice.contains("write its shape, ") {
                let at = self.side(advice);
                // Of several, the one that fits the value: an `i64`, or a newtype of it.
                let mut offered = advice
                    .split('`')
                    .filter(|offered| offered.ends_with(": int>"));
                let shaped = offered.next().expect("a shape").to_owned();
                let key = self.key(at);
                let (name, _) = shaped.split_once(':').expect("a shape");
                let key = key.replace(&format!("{name}>"), &shaped);
                ways.push(self.with(&[(at, Some(&key), "")]));
            } else if advice.contains("must be the same: write `") {
                let key = quoted(advice, "must be the same: write `");
                ways.push(self.with(&[(self.side(advice), Some(&key), "")]));
            } else if let Some((_, key)) = advice.split_once("own word") {
                let key = key.rsplit('`').nth(1).expect("a key in backticks");
                ways.push(self.with(&[(self.side(advice), Some(key), "")]));
            }
        }
        ways
    }

    /// The site that a part of the help is about.
    fn side(&self, advice: &str) -> At {
        if advice.contains("at fn `") || advice.contains("at `lock_key!`") {
            self.there
        } else {
            self.here
        }
    }

    /// The text of the literal there.
    fn key(&self, at: At) -> String {
        let literal = &self.source[at + 1..];
        literal[..literal.find('"').expect("its end")].to_owned()
    }

    /// The source with other keys, followed by arguments.
    fn with(&self, edits: &[(At, Option<&str>, &str)]) -> String {
        let mut edits = edits.to_vec();
        edits.sort_unstable_by_key(|edit| std::cmp::Reverse(edit.0));
        let mut source = self.source.clone();
        for (at, key, argument) in edits {
            let old = self.key(at);
            let comma = if argument.is_empty() { "" } else { ", " };
            let new = format!("\"{}\"{comma}{argument}", key.unwrap_or(&old));
            source.replace_range(at..at + old.len() + 2, &new);
        }
        source
    }
}

/// The text in backticks after these words.
fn quoted(text: &str, words: &str) -> String {
    let after = text.split_once(words).map(|(_, after)| after);
    let quoted = after.and_then(|after| after.split('`').next());
    quoted.unwrap_or_default().to_owned()
}

/// Writes the programs, and returns their folder.
pub(crate) fn write() -> PathBuf {
    let folder = crate::compiles::target().join("suggestions");
    let _none_yet = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("the target folder is ours");
    let mut count = 0;
    let ui = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui");
    for entry in std::fs::read_dir(ui).expect("the messages") {
        let file = entry.expect("an entry").path();
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        // Two functions with one literal cannot get different keys.
        if !name.starts_with("collision_") || !name.ends_with(".rs") || name.contains("made_by") {
            continue;
        }
        let case = Case::read(&file).expect("a collision's message");
        for (nth, source) in case.followed().into_iter().enumerate() {
            let file = folder.join(format!("{}_{nth}.rs", case.name));
            std::fs::write(file, source).expect("the target folder is ours");
            count += 1;
        }
    }
    assert!(count >= 14, "only {count} suggestions were found");
    folder
}
