//! Does all prose use the words of CONTRIBUTING? Its table "Words" is the list: a phrase, what to write instead, and where the phrase is
//! right. Documents, comments, texts in the source and golden files are read; code is not.

use crate::packages::root;
use std::path::{Path, PathBuf};

const PAGE: &str = include_str!("../../../CONTRIBUTING.md");

/// A row of the table.
struct Rule<'p> {
    phrases: Vec<&'p str>,
    instead: &'p str,
    /// Longer phrases around one of the row's that are right.
    right: Vec<&'p str>,
}

fn rules() -> Vec<Rule<'static>> {
    let (_, part) = PAGE.split_once("\n## Words\n").expect("the part");
    let part = part.split("\n## ").next().unwrap_or(part);
    let rows = part.lines().filter(|line| line.starts_with("| `"));
    let rules = rows.map(|row| {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [phrases, instead, right] = cells[..] else {
            panic!("three cells: {row}")
        };
        let in_backticks = |cell: &'static str| cell.split('`').skip(1).step_by(2).collect();
        Rule {
            phrases: in_backticks(phrases),
            instead,
            right: in_backticks(right),
        }
    });
    rules.collect()
}

impl Rule<'_> {
    /// Each phrase of the row in the text, with its place in it.
    fn find<'r>(&'r self, text: &'r str) -> impl Iterator<Item = (usize, &'r str)> {
        self.phrases.iter().flat_map(move |phrase| {
            let found = text.match_indices(phrase).map(|(at, _)| at);
            found
                .filter(|&at| is_whole(text, at, phrase) && !self.is_right(text, at, phrase))
                .map(|at| (at, *phrase))
        })
    }

    fn is_right(&self, text: &str, at: usize, phrase: &str) -> bool {
        self.right.iter().any(|right| {
            let mut places = right.match_indices(phrase);
            places.any(|(inside, _)| {
                let start = at.checked_sub(inside);
                start.is_some_and(|start| {
                    text.get(start..)
                        .is_some_and(|rest| rest.starts_with(right))
                })
            })
        })
    }
}

/// Whether the phrase begins and ends with whole words, and not with a placeholder.
fn is_whole(text: &str, at: usize, phrase: &str) -> bool {
    let is_letter = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let before = text[..at].chars().next_back();
    let after = text[at + phrase.len()..].chars().next();
    let is_inside = |c: char| is_letter(c) || c == '{';
    let begins_in_word = phrase.starts_with(is_letter) && before.is_some_and(is_inside);
    !begins_in_word && !after.is_some_and(is_letter)
}

/// Prose that belongs together, in lower case and with single spaces, and where its lines begin.
#[derive(Default)]
struct Passage {
    text: String,
    lines: Vec<(usize, usize)>,
}

impl Passage {
    fn push(&mut self, number: usize, line: &str) {
        self.lines.push((self.text.len(), number));
        for word in line.split_whitespace() {
            self.text.push_str(&word.to_lowercase());
            self.text.push(' ');
        }
    }

    fn line(&self, at: usize) -> usize {
        let before = self.lines.iter().rev().find(|(start, _)| *start <= at);
        before.map_or(0, |(_, number)| *number)
    }
}

/// The passages of a file without code: an empty line ends one.
fn plain(text: &str) -> Vec<Passage> {
    let mut passages = vec![Passage::default()];
    let mut is_table = false;
    for (line, number) in text.lines().zip(1..) {
        is_table |= line == "## Words";
        let line = line.trim_start_matches(|c: char| c.is_whitespace() || "#/->".contains(c));
        if line.is_empty() {
            passages.push(Passage::default());
        } else if let Some(last) = passages.last_mut()
            && !(is_table && line.starts_with("| `"))
        {
            last.push(number, line);
        }
    }
    passages
}

/// The comments and the texts of a source file; comments on lines that follow each other are one passage.
fn of_rust(source: &str) -> Vec<Passage> {
    let mut passages: Vec<Passage> = Vec::new();
    let (mut rest, mut number, mut comment) = (source, 1, 0);
    let mut before = ' ';
    while let Some(c) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            let line = rest.lines().next().unwrap_or(rest);
            if comment == 0 || comment + 1 != number {
                passages.push(Passage::default());
            }
            let text = line.trim_start_matches(['/', '!']);
            if let Some(last) = passages.last_mut() {
                last.push(number, text);
            }
            comment = number;
            line.len()
        } else if let Some((start, end)) = text_at(rest, before) {
            let mut passage = Passage::default();
            for (line, more) in rest[start..end].lines().zip(0..) {
                passage.push(number + more, &line.replace("\\n", " ").replace('\\', ""));
            }
            passages.push(passage);
            comment = 0;
            end + start.saturating_sub(1).max(1)
        } else if c == '\'' {
            character(rest)
        } else {
            c.len_utf8()
        };
        let (done, left) = rest.split_at(length);
        number += done.matches('\n').count();
        before = done.chars().next_back().unwrap_or(' ');
        rest = left;
    }
    passages
}

/// Where the text that begins here has its first byte and its end.
fn text_at(rest: &str, before: char) -> Option<(usize, usize)> {
    let is_raw = !(before.is_alphanumeric() || before == '_');
    if let Some(raw) = rest.strip_prefix('r').filter(|_| is_raw) {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        let inside = raw[hashes..].strip_prefix('"')?;
        let end = inside.find(&format!("\"{}", "#".repeat(hashes)))?;
        return Some((hashes + 2, hashes + 2 + end));
    }
    let mut letters = rest.strip_prefix('"')?.char_indices();
    while let Some((at, c)) = letters.next() {
        match c {
            '"' => return Some((1, at + 1)),
            '\\' => {
                letters.next();
            }
            _ => {}
        }
    }
    None
}

/// The length of a character literal, or of the quote of a lifetime.
fn character(rest: &str) -> usize {
    let inside = &rest[1..];
    let end = if inside.starts_with('\\') {
        inside[2..].find('\'').map(|end| end + 4)
    } else {
        let first = inside.chars().next().map_or(0, char::len_utf8);
        inside[first..].starts_with('\'').then_some(first + 2)
    };
    end.unwrap_or(1)
}

/// The files with prose, below the folder.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if name != "target" && (!name.starts_with('.') || name == ".ci") {
                files(&path, found);
            }
            continue;
        }
        let kinds = ["md", "rs", "stderr", "txt", "sql", "toml", "yml", "sh"];
        let kind = path.extension().map(|kind| kind.to_string_lossy());
        let is_script = kind.is_none() && !name.starts_with("LICENSE") && !name.starts_with('.');
        if is_script || kind.is_some_and(|kind| kinds.contains(&&*kind)) {
            found.push(path);
        }
    }
}

#[test]
fn prose_has_the_words_of_the_list() {
    let (rules, root) = (rules(), root());
    assert!((10..=40).contains(&rules.len()), "{} rows", rules.len());
    let mut paths = Vec::new();
    files(&root, &mut paths);
    assert!(paths.len() > 900, "only {} files", paths.len());
    let mut found = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("a text");
        let name = path.strip_prefix(&root).unwrap_or(&path).display();
        let name = name.to_string().replace('\\', "/");
        let is_rust = path.extension().is_some_and(|kind| kind == "rs");
        let passages = if is_rust {
            of_rust(&text)
        } else {
            plain(&text)
        };
        for passage in &passages {
            for rule in &rules {
                found.extend(rule.find(&passage.text).map(|(at, phrase)| {
                    let instead = rule.instead;
                    format!("{name}:{}: `{phrase}`: write {instead}", passage.line(at))
                }));
            }
        }
    }
    found.sort_unstable();
    assert!(
        found.is_empty(),
        "{}\n{} in all; the list is in CONTRIBUTING",
        found.join("\n"),
        found.len()
    );
}

#[test]
fn each_phrase_is_found_where_it_is_wrong_and_nowhere_else() {
    for rule in rules() {
        for phrase in &rule.phrases {
            let comment = format!(
                "// A wrapped\n// {}\nfn f() {{}}",
                phrase.replacen(' ', "\n// ", 1)
            );
            let text = format!("fn f() -> &'static str {{ '\"'; r#\"\\ {phrase} \"#; \"\" }}");
            for source in [comment, text] {
                let passages = of_rust(&source);
                let found = passages.iter().flat_map(|passage| rule.find(&passage.text));
                assert_eq!(found.count(), 1, "{source}");
            }
            let code = format!("fn f() {{ {} }} // x{phrase}x", phrase.replace(' ', "_"));
            let passages = of_rust(&code);
            let found = passages.iter().flat_map(|passage| rule.find(&passage.text));
            assert_eq!(found.count(), 0, "{code}");
        }
        for right in &rule.right {
            let contains = |phrase: &&str| right.contains(*phrase);
            assert!(
                rule.phrases.iter().any(contains),
                "`{right}` needs no mention"
            );
            assert_eq!(rule.find(&format!("x {right} x")).count(), 0, "{right}");
        }
    }
}
