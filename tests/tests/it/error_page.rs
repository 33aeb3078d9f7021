//! The guide's pages of errors show each error as it is printed.

use advisory_runtime::Error;
use advisory_runtime::testing::{claim_errors, lease_errors, lock_errors};
use diesel::result::Error as DieselError;

const PAGE: &str = include_str!("../../../advisory-runtime/docs/errors.md");

const PAGES: [&str; 3] = [
    PAGE,
    include_str!("../../../advisory-runtime/docs/lease-errors.md"),
    include_str!("../../../advisory-runtime/docs/claim-errors.md"),
];

/// One of each error, as the pages show them.
fn galleries() -> [Vec<(String, String)>; 3] {
    fn printed<E: std::error::Error>(errors: &[E]) -> Vec<(String, String)> {
        let printed = errors
            .iter()
            .map(|error| (name(&format!("{error:?}")), error.to_string()));
        printed.collect()
    }
    [
        printed(&lock_errors()),
        printed(&lease_errors()),
        printed(&claim_errors()),
    ]
}

/// The declared variants, so that a new one fails here until a page describes it.
fn declared() -> [Vec<String>; 3] {
    [
        include_str!("../../../advisory-runtime/src/error.rs"),
        include_str!("../../../advisory-runtime/src/lease/error.rs"),
        include_str!("../../../advisory-runtime/src/claim/error.rs"),
    ]
    .map(|source| {
        let (_, body) = source.split_once("pub enum Error {").unwrap_or_default();
        let (body, _) = body.split_once("\n}").unwrap_or_default();
        let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
        let variants =
            lines.filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()));
        variants.map(name).collect()
    })
}

fn name(text: &str) -> String {
    text.chars()
        .take_while(char::is_ascii_alphanumeric)
        .collect()
}

fn shown(page: &str) -> Vec<(String, String)> {
    let parts = page.split("\n# ").skip(1).map(|part| {
        let text = part.split("```text\n").nth(1).unwrap_or_default();
        let (text, _) = text.split_once("\n```").unwrap_or_default();
        let words: Vec<_> = text.split_whitespace().collect();
        (name(part), words.join(" "))
    });
    parts.collect()
}

#[test]
fn the_pages_show_each_error_as_it_prints_itself() {
    let printed = galleries();
    let names = printed.clone().map(|of_product| {
        let names = of_product.into_iter().map(|(name, _)| name);
        names.collect::<Vec<_>>()
    });
    assert_eq!(names, declared());
    for (page, printed) in PAGES.into_iter().zip(printed) {
        let shown = shown(page);
        for (shown, printed) in shown.iter().zip(&printed) {
            assert_eq!(shown, printed);
        }
        assert_eq!(shown.len(), printed.len());
    }
}

/// A reader of a lock's error does not have to read about leases and claims.
#[test]
fn a_locks_error_mentions_no_lease_and_no_claim() {
    let declared = include_str!("../../../advisory-runtime/src/error.rs");
    let (_, declared) = declared.split_once("pub enum Error {").unwrap_or_default();
    let (declared, _) = declared.split_once("\n}").unwrap_or_default();
    let printed = lock_errors().into_iter().map(|error| error.to_string());
    for text in printed.chain([declared.to_owned()]) {
        assert!(!text.to_lowercase().contains("lease "), "{text}");
        assert!(!text.to_lowercase().contains("claim"), "{text}");
    }
}

fn status(error: &(dyn std::error::Error + 'static)) -> u16 {
    match Error::find(error).as_deref() {
        Some(Error::NotAvailable { .. }) => 409, // Conflict: held
        Some(Error::TimedOut { .. } | Error::HoldExceeded { .. }) => 504, // Gateway Timeout
        Some(Error::QueueFull { .. } | Error::Pool { .. }) => 503, // Service Unavailable
        _ => 500,
    }
}

#[test]
fn the_pages_statuses() {
    for error in lock_errors() {
        let expected = match name(&format!("{error:?}")).as_str() {
            "NotAvailable" => 409,
            "TimedOut" | "HoldExceeded" => 504,
            "QueueFull" | "Pool" => 503,
            _ => 500,
        };
        assert_eq!(status(&error), expected, "{error:?}");
        assert_eq!(status(&DieselError::from(error)), expected);
    }
    let (_, shown) = PAGE.split_once("fn status(").unwrap_or_default();
    let (shown, _) = shown.split_once("\n```").unwrap_or_default();
    let words = |code: &str| code.split_whitespace().collect::<String>();
    assert!(words(include_str!("error_page.rs")).contains(&words(shown)));
}

#[test]
fn the_pages_say_more_of_each_error_than_its_message() {
    let parts = PAGES.iter().flat_map(|page| page.split("\n# ").skip(1));
    for part in parts {
        let (_, said) = part.rsplit_once("\n```\n").unwrap_or_default();
        assert!(said.split_whitespace().count() > 3, "{}", name(part));
    }
}

/// The guide's table of how a wait ends.
#[test]
fn the_page_of_waiting_says_which_errors_are_busy() {
    let page = include_str!("../../../advisory-runtime/docs/waiting.md");
    let (_, table) = page.split_once("\n# How a wait ends\n").unwrap_or_default();
    let (table, _) = table.split_once("\n\n`on_held`").unwrap_or_default();
    let mut rows = 0;
    for error in lock_errors() {
        let link = format!("| [`{0}`][Error::{0}] |", name(&format!("{error:?}")));
        if let Some(row) = table.lines().find(|row| row.contains(&link)) {
            assert_eq!(row.ends_with("| yes |"), error.is_busy(), "{row}");
            rows += 1;
        } else {
            assert!(!error.is_busy(), "{error:?} has no row");
        }
    }
    assert_eq!(rows, 8);
}
