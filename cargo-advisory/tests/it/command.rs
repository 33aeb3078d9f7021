//! The command as cargo and people call it.

use std::fs;
use std::path::Path;

use crate::programs::{Said, advisory, assert_has, assert_has_all, file, run, scratch, words};

#[test]
fn help_names_every_subcommand_and_exit_code() {
    let said = advisory(&["--help"]).exits(0);
    let names = "dump check build key locks log doctor graph migration completions manual";
    assert_has_all(&said.out, &words(names));
    let rest = ["cargo advisory [OPTIONS] <COMMAND>", "Exit codes"];
    assert_has_all(&said.out, &rest);
}

#[test]
fn the_readme_has_the_exit_codes_of_the_help() {
    let help = advisory(&["--help"]).out;
    let (_, codes) = help.split_once("Exit codes:").expect("the codes");
    let page = include_str!("../../README.md");
    let (_, table) = page.split_once("| exit code | |\n").expect("the table");
    let rows = table.lines().skip(1).take_while(|row| row.starts_with('|'));
    let rows = rows.flat_map(|row| row.split_whitespace().filter(|word| *word != "|"));
    assert!(rows.eq(codes.split_whitespace()), "{codes}");
}

#[test]
fn a_typo_is_wrong_use_and_gets_a_suggestion() {
    let said = advisory(&["dmp"]).exits(2);
    assert_has(&said.err, "'dump'");
}

#[test]
fn an_artifact_and_a_selection_exclude_each_other() {
    let said = advisory(&["dump", "--artifact", "shop", "--package", "shop"]).exits(2);
    assert_has(&said.err, "cannot be used with");
}

#[test]
fn colours_are_for_terminals() {
    let plain = advisory(&["key", "booking:42"]).out;
    assert!(!plain.contains('\u{1b}'), "{plain}");
    let forced = run(&["key", "booking:42"], &[("CLICOLOR_FORCE", "1")]).out;
    assert!(forced.contains('\u{1b}'), "{forced}");
    let refused = run(&["key", "booking:42"], &[("NO_COLOR", "1")]).out;
    assert_eq!(refused, plain);
}

#[test]
fn a_flag_and_then_cargos_variable_decide_about_colours() {
    for (variable, flag, is_colored) in [
        ("always", "", true),
        ("never", "", false),
        ("auto", "", false),
        ("always", "--color=never", false),
        ("never", "--color=always", true),
        ("always", "--color=auto", false),
    ] {
        let variables = [("CARGO_TERM_COLOR", variable)];
        let flag: Vec<&str> = flag.split('=').filter(|word| !word.is_empty()).collect();
        // An answer, a help and an error.
        for words in [&["key", "booking:42"][..], &["key", "--help"], &["key"]] {
            let said = run(&[&flag, words].concat(), &variables);
            let shown = said.out + &said.err;
            assert_eq!(shown.contains('\u{1b}'), is_colored, "{flag:?} {words:?}");
        }
    }
    let said = advisory(&["key", "booking:42", "--color=sometimes"]).exits(2);
    assert_has(&said.err, "auto, always, never");
    // The key of a command line that asks for it, and not a flag.
    let said = advisory(&["key", "--", "--color=always"]);
    assert!(!said.out.contains('\u{1b}'), "{}", said.out);
}

#[test]
fn output_goes_to_the_file() {
    let (script, found) = (scratch("completions.bash"), scratch("found.json"));
    for (line, to, part) in [
        ("completions bash", script, "cargo-advisory"),
        (
            "key --find=3 --pattern=<id> --values=1..3 --format=json",
            found,
            "\"tried\": 3",
        ),
    ] {
        let said = advisory(&[&words(line)[..], &["-o", &to]].concat());
        assert_eq!(said.out, "", "{said:?}");
        assert_has(&fs::read_to_string(to).unwrap(), part);
    }
}

#[test]
fn every_shell_gets_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let said = advisory(&["completions", shell]).exits(0);
        assert_has_all(&said.out, &["cargo-advisory", "allow-key-change"]);
    }
}

#[test]
fn a_failed_build_is_reported_by_cargo() {
    // Not at the same time as another test writes the fixtures' lock file.
    crate::programs::built();
    let said = advisory(&["dump", "--package", "no-such-package"]).exits(101);
    assert_has(&said.err, "no-such-package");
    assert_has(&said.err, "`cargo build` failed");
    let cargos = |said: &Said| {
        said.err
            .split("`cargo build`")
            .next()
            .unwrap()
            .contains('\u{1b}')
    };
    assert!(!cargos(&said), "{}", said.err);
    let said = advisory(&["--color=always", "dump", "--package", "no-such-package"]);
    assert!(cargos(&said), "{}", said.err);
}

#[test]
fn a_build_that_names_nothing_is_not_in_order() {
    crate::programs::built();
    let words = ["check", "--package=ledger", "--", "--help"];
    let said = advisory(&words).exits(2);
    assert_has(&said.err, "error: `cargo build`");
}

#[test]
fn every_subcommand_has_a_manual_page() {
    let folder = scratch("manual/man1");
    let said = advisory(&["manual", &folder]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let page = |name: &str| fs::read_to_string(Path::new(&folder).join(name)).expect(name);
    let all = page("cargo-advisory.1");
    assert_has(&all, "Exit codes:");
    let help = advisory(&["help"]).out;
    let (_, listed) = help.split_once("Commands:\n").unwrap();
    let (listed, _) = listed.split_once("\n\n").unwrap();
    let mut pages = 0;
    for line in listed.lines() {
        let name = line.split_whitespace().next().unwrap();
        if name != "help" && line.starts_with("  ") && !line.starts_with("   ") {
            assert_has(&all, &format!("advisory\\-{name}"));
            let text = page(&format!("cargo-advisory-{name}.1"));
            assert_has(&text, &format!("cargo advisory {name}"));
            pages += 1;
        }
    }
    assert!(pages > 10, "{help}");
}

#[test]
fn manual_pages_need_a_folder_that_can_be_written() {
    let file = file("manual-file", "not a folder");
    let said = advisory(&["manual", &file]).exits(2);
    assert_has(&said.err, "cannot write the pages");
}
