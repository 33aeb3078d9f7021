//! An unusable file gives a message with its name, and exit code 2.

use crate::programs::{
    Said, advisory, assert_has, assert_lacks, assert_starts, booking_service, bytes, file,
    inventory, run, shop,
};

fn refused(said: &Said, name: &str, why: &str) {
    assert_eq!(said.code, Some(2), "{said:?}");
    assert_eq!(said.out, "");
    assert_starts(&said.err, "error: ");
    assert_has(&said.err, name);
    assert_has(&said.err, why);
    assert_eq!(said.err.lines().count(), 1, "{}", said.err);
}

fn artifact(name: &str, content: &[u8], why: &str) {
    let path = file(name, content);
    refused(&advisory(&["dump", "--artifact", &path]), name, why);
}

#[test]
fn a_file_that_is_not_there() {
    let said = advisory(&["dump", "--artifact", "no-such-file"]);
    refused(&said, "`no-such-file`", "");
}

#[test]
fn a_foreign_file() {
    artifact(
        "foreign",
        b"#!/bin/sh\n",
        "not a program, library or object file",
    );
    artifact("empty", b"", "not a program, library or object file");
}

#[test]
fn a_program_that_is_cut_short() {
    let whole = bytes(&shop());
    for part in 1..8 {
        let cut = &whole[..whole.len() * part / 8];
        artifact(&format!("cut-{part}"), cut, "truncated or damaged");
    }
}

/// The unusable file can also be one of two.
#[test]
fn a_program_without_lock_sites_is_not_checked() {
    let empty = file("no-sites.rmeta", "rust");
    let why = "has no lock sites: name the program that takes the locks, or leave `--artifact` out";
    let program = booking_service();
    for words in [
        &["check"][..],
        &["check", "--format", "json", "--artifact", &program],
        &["migration", "require", "--lock", "a", "--table", "t"],
    ] {
        let words = [words, &["--artifact", &empty]].concat();
        refused(&advisory(&words), "no-sites.rmeta", why);
    }
}

#[test]
fn records_of_a_newer_version() {
    let mut program = bytes(&booking_service());
    let marker = b"\x1eadvisory lock site\x1f";
    let found: Vec<usize> = (0..program.len() - marker.len())
        .filter(|at| program[*at..].starts_with(marker))
        .collect();
    assert!(!found.is_empty());
    for at in found {
        program[at + marker.len()] = b'9';
    }
    artifact("newer", &program, "has format 9");
}

#[test]
fn inventories_that_are_none() {
    let program = booking_service();
    let newer = inventory().replace("\"version\": 1,", "\"version\": 7,");
    let cut = &inventory()[..400];
    let wrong = inventory().replace("\"crate\": \"booking-service\"", "\"crate\": 5");
    let strange = inventory().replace("<date: text>", "<date: txt>");
    let site = |members: &str| {
        format!(r#"{{"version": 1, "sites": [{{"function": "f", "crate": "c", {members}}}]}}"#)
    };
    let number = site(r#""keys": [{"number": "42"}]"#);
    let pair = site(r#""keys": [{"pair": "(1, 2)"}]"#);
    let permits = |permits: &str| {
        site(&format!(
            r#""permits": {permits}, "keys": [{{"number": 42}}]"#
        ))
    };
    let (no_permits, permits) = (permits("0"), permits("4294967295"));
    let word = site(r#""keys": [{"pair": ["\u009b31m", 1]}]"#);
    let scope = site(r#""scope": "table", "keys": []"#);
    let none = |name: &str, content: &str, why: &str| {
        let path = file(name, content);
        for flag in ["--with", "--against"] {
            let said = advisory(&["check", "--artifact", &program, flag, &path]);
            refused(&said, name, why);
        }
    };
    none("newer.json", &newer, "has version 7");
    none("cut.json", cut, "not an inventory of");
    none("no-version.json", "{}", "`version` is not a number");
    let why = "`sites` is not an array";
    none("no-sites.json", "{\"version\": 1}", why);
    none("wrong.json", &wrong, "sites[0]: `crate` is not a string");
    none("strange.json", &strange, "sites[0]: ");
    none("number.json", &number, "sites[0]: `number` is not a number");
    none("pair.json", &pair, "sites[0]: `pair` is not an array");
    none(
        "word.json",
        &word,
        "sites[0]: `pair` does not contain integers",
    );
    none("scope.json", &scope, "scope `table`");
    let why = "sites[0]: `permits` is neither a number from 1 to 1000 nor an expression";
    none("no-permits.json", &no_permits, why);
    none("permits.json", &permits, why);
}

#[test]
fn a_registry_that_is_not_text() {
    let path = file("registry.bin", [0xff, 0xfe, 0x00]);
    let program = booking_service();
    let said = advisory(&["check", "--artifact", &program, "--registry", &path]);
    refused(&said, "registry.bin", "UTF-8");
}

#[test]
fn an_inventory_can_not_steer_the_terminal() {
    let hostile = inventory()
        .replace("\"booking-service\"", "\"x\\u001b[2J\"")
        .replace("Booking creation", "\\u001b]0;title\\u0007")
        .replace("\"create\"", "\"\\u202ecreate\\u2066\\u009bx\"");
    assert_has(&hostile, "202e");
    let scope = hostile.replace("\"xact\"", "\"\\u202etable\"");
    let (program, path) = (booking_service(), file("hostile.json", hostile));
    let words = ["check", "--artifact", &program, "--with", &path];
    // With the command's own colours, which would be removed together with the others.
    let said = run(&words, &[("CLICOLOR_FORCE", "1")]).exits(1);
    let json = run(&[&words[..], &["--format", "json"]].concat(), &[]);
    for steers in "\u{1b}[2J \u{1b}]0 \u{7} \u{202e} \u{2066} \u{9b}".split(' ') {
        assert_lacks(&said.out, steers);
        assert_lacks(&json.out, steers);
    }
    let path = file("hostile-scope.json", scope);
    let said = advisory(&["check", "--artifact", &program, "--with", &path]);
    refused(&said, "hostile-scope.json", "scope ` table`");
}
