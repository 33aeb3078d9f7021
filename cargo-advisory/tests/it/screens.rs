//! The screens of the command: what happened, to what, and what to do. `screens.txt` is the
//! gallery: read it aloud. Other output has its own files in this folder.

use std::fmt::Write;

use crate::programs::{assert_lacks, assert_starts, booking_service, file, run, shop};

const GALLERY: &str = include_str!("screens.txt");

/// The values of the words in braces.
fn places() -> Vec<(&'static str, String)> {
    let document = include_str!("booking-service.md");
    let old = document.replace("<tenant_id>:balance:", "<tenant_id>:payment:");
    vec![
        ("{booking-service}", booking_service()),
        ("{shop}", shop()),
        ("{old document}", file("screens-old.md", old)),
        (
            "{no locks}",
            env!("CARGO_BIN_EXE_cargo-advisory").to_owned(),
        ),
    ]
}

/// The words of a command line: one in braces can contain spaces.
fn words(line: &str, places: &[(&'static str, String)]) -> Vec<String> {
    let mut line = line.to_owned();
    for (name, _) in places {
        line = line.replace(name, &name.replace(' ', "\u{a0}"));
    }
    let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    for word in &mut words {
        *word = word.replace('\u{a0}', " ");
        for (name, place) in places {
            *word = word.replace(name, place);
        }
    }
    words
}

/// The numbers of the operating system's errors differ, their texts do not.
fn without_number(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        kept.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    kept
}

#[test]
fn each_screen_is_as_the_gallery_shows_it() {
    let places = places();
    let mut printed = String::new();
    for line in GALLERY.lines() {
        let Some(command) = line.strip_prefix("$ cargo advisory ") else {
            if line.starts_with("# ") {
                writeln!(printed, "{line}").unwrap();
            }
            continue;
        };
        let words = words(command, &places);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let said = run(&words, &[("ADVISORY_LOCK_ORDER", "")]);
        let mut text = without_number(&(said.out + &said.err));
        for (name, place) in &places {
            text = text.replace(place, name);
        }
        let code = said.code.expect("an exit code");
        writeln!(printed, "{line}\n{text}[exit code {code}]\n").unwrap();
    }
    assert!(printed.trim_end() == GALLERY.trim_end(), "{printed}");
}

/// A host begins after the first `@` of a URL, which can be inside the password.
#[test]
fn no_message_has_a_part_of_a_password() {
    let (hidden, invalid) = ("cannot connect to the database: ", "invalid database URL: ");
    for (why, address) in [
        (hidden, "postgres://app:se@cret@127.0.0.1:1/shop"),
        (
            hidden,
            "postgres://me:p@127.0.0.1:1?application_name=cret@h/db",
        ),
        (
            hidden,
            "host=127.0.0.1 port=1 dbname=postgres://me:secret@h/db",
        ),
        (
            "cannot connect to the database `shop` at `127.0.0.1:1`: ",
            "host=127.0.0.1 port=1 password=a@secret@c dbname=shop",
        ),
        (&format!("{invalid}unknown option;"), "password=my secret=1"),
        (
            &format!("{invalid}unknown option;"),
            "postgres://me:p@ss?secret=x@h/db",
        ),
        (
            &format!("{invalid}unexpected character at byte 19: expected `=`;"),
            "password=my secret word",
        ),
    ] {
        let said = run(&["locks", "--database-url", address], &[]).exits(2);
        assert_starts(&said.err, &format!("error: {why}"));
        assert_lacks(&said.err, "cret");
    }
}
