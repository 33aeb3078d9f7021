//! `stderr`, the plain-text format: one line for each part of a message, after the prefix that
//! `log_line_prefix` sets.
//!
//! ```text
//! 2026-11-22 07:06:19.026 UTC [13595] LOG:  process 13595 still waiting for ExclusiveLock on advisory lock [5,0,42,1] after 1003.570 ms
//! 2026-11-22 07:06:19.026 UTC [13595] DETAIL:  Process holding the lock: 13547. Wait queue: 13595.
//! 2026-11-22 07:06:19.026 UTC [13595] STATEMENT:  SELECT pg_advisory_lock(42)
//! ```
//!
//! The user need not give the prefix: time, process, user, database and application are recognized
//! in common forms. The server writes a message in one piece, so its parts are adjacent.

use super::record::{Record, SEVERITIES, Time, is_error};

/// Returns `true` for the tag of a part of a message that follows its first line.
fn is_part(tag: &str) -> bool {
    let parts = "DETAIL HINT QUERY CONTEXT LOCATION BACKTRACE STATEMENT";
    parts.split(' ').any(|part| part == tag)
}

#[derive(Default)]
pub(super) struct Reader {
    record: Option<Record>,
    /// The part of the message that a line without a tag continues, if it is kept.
    part: Option<fn(&mut Record) -> &mut String>,
}

impl Reader {
    pub(super) fn line(&mut self, line: &str) -> Option<Record> {
        let is_continued = line.starts_with('\t');
        let Some((prefix, tag, text)) = split(line).filter(|_| !is_continued) else {
            if let Some((prefix, tag)) = foreign(line).filter(|_| !is_continued) {
                self.part = None;
                return self.record.replace(Record {
                    foreign_tag: Some(tag.to_owned()),
                    ..of_prefix(prefix)
                });
            }
            // The server starts a continued line with a tab, which some collectors remove.
            let text = line.strip_prefix('\t').unwrap_or(line);
            if let Some(part) = self.part() {
                part.push('\n');
                part.push_str(text);
            }
            return None;
        };
        if is_part(tag) {
            self.part = match tag {
                "DETAIL" => Some(|record| &mut record.detail),
                "STATEMENT" => Some(|record| &mut record.statement),
                _ => None,
            };
            if let Some(part) = self.part() {
                text.clone_into(part);
            }
            return None;
        }
        self.part = Some(|record| &mut record.message);
        self.record.replace(Record {
            is_error: is_error(tag),
            message: without_code(text).to_owned(),
            ..of_prefix(prefix)
        })
    }

    pub(super) fn flush(&mut self) -> Option<Record> {
        self.record.take()
    }

    fn part(&mut self) -> Option<&mut String> {
        Some(self.part?(self.record.as_mut()?))
    }
}

/// A message without the SQLSTATE that `log_error_verbosity = verbose` adds, as in
/// `40P01: deadlock detected`.
fn without_code(text: &str) -> &str {
    let is_letter = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_uppercase();
    match text.split_once(": ") {
        Some((code, message)) if code.len() == 5 && code.bytes().all(is_letter) => message,
        _ => text,
    }
}

/// The prefix, the tag and the text of a line that has a tag.
fn split(line: &str) -> Option<(&str, &str, &str)> {
    line.match_indices(":  ").find_map(|(at, colon)| {
        let before = &line[..at];
        let tag = before.rsplit(|c: char| !c.is_alphanumeric()).next()?;
        let prefix = before.strip_suffix(tag)?;
        let is_known = SEVERITIES.contains(&tag) || is_part(tag);
        is_known.then(|| (prefix, tag, &line[at + colon.len()..]))
    })
}

/// The prefix and the tag of a line with a tag in another language: `FEHLER`, `ОШИБКА`, `文`. A
/// prefix has a time, and no tag has a lower-case letter.
fn foreign(line: &str) -> Option<(&str, &str)> {
    let (before, _) = line.split_once(":  ")?;
    let before = before.trim_end();
    let tag = before.rsplit(|c: char| !c.is_alphabetic()).next()?;
    let prefix = before.strip_suffix(tag)?;
    let is_tag = !tag.is_empty() && !tag.chars().any(char::is_lowercase);
    (is_tag && Time::find(prefix).is_some()).then_some((prefix, tag))
}

/// The values in a prefix: `%m [%p] `, `%t [%p]: [%l-1] user=%u,db=%d,app=%a,client=%h `,
/// `%t:%r:%u@%d:[%p]:`, …
fn of_prefix(prefix: &str) -> Record {
    let named = |name: &str| {
        let mut values = after(prefix, name)?.split([',', ' ', ';', '|', ']', ')']);
        some(values.next()?)
    };
    let pid = || named("pid=").or_else(|| named("process="));
    let (user, database) = at_sign(prefix).unzip();
    Record {
        time: Time::find(prefix),
        pid: in_brackets(prefix).or_else(|| pid()?.parse().ok()),
        user: named("user=").or(user),
        database: named("db=").or_else(|| named("database=")).or(database),
        application: application(prefix, "app=").or_else(|| application(prefix, "application=")),
        ..Record::default()
    }
}

/// The text after a name, if it is not the end of a word.
fn after<'p>(prefix: &'p str, name: &str) -> Option<&'p str> {
    let (before, rest) = prefix.split_once(name)?;
    let is_word = before.ends_with(|c: char| c.is_ascii_alphanumeric());
    (!is_word).then_some(rest)
}

/// The value of `app=%a`, which can contain spaces and commas. It ends before another named value.
/// Without one it ends at a comma or another separator, and words at its end that look like a
/// process, an address or a user are not a part of it.
fn application(prefix: &str, name: &str) -> Option<String> {
    let rest = after(prefix, name)?;
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_name = |text: &str| {
        let word = text.trim_start().split_once('=');
        word.is_some_and(|(word, _)| !word.is_empty() && word.bytes().all(is_letter))
    };
    let mut separators = rest.match_indices([',', ' ', ';', '|']);
    if let Some((end, _)) = separators.find(|(at, sign)| is_name(&rest[at + sign.len()..])) {
        return some(rest[..end].trim_end_matches([',', ' ', ';', '|']));
    }
    let mut value = rest.split([',', ';', '|', ']', ')']).next()?.trim();
    while let Some((front, last)) = value.rsplit_once(' ') {
        let is_sign = |byte: u8| byte.is_ascii_hexdigit() || b".:()-".contains(&byte);
        if !(last.bytes().all(is_sign) || last.contains('@') || last.starts_with('[')) {
            break;
        }
        value = front.trim_end();
    }
    some(value)
}

fn some(value: &str) -> Option<String> {
    (!value.is_empty()).then(|| value.to_owned())
}

/// `[13595]`, or `[13595-7]` with the number of the line.
fn in_brackets(prefix: &str) -> Option<i32> {
    prefix.split('[').skip(1).find_map(|rest| {
        let end = rest.find([']', '-'])?;
        rest[..end].parse().ok()
    })
}

/// `user@database`.
fn at_sign(prefix: &str) -> Option<(String, String)> {
    let (before, after) = prefix.split_once('@')?;
    let is_end = |c: char| c.is_whitespace() || ":,;|[]()".contains(c);
    let user = before.rsplit(is_end).next()?;
    let database = after.split(is_end).next()?;
    (!user.is_empty() && !database.is_empty()).then(|| (user.to_owned(), database.to_owned()))
}
