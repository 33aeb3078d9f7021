//! The guide's page of errors: each as it prints itself.

use advisory_runtime::{BusyLock, Error};
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use std::time::Duration;

const PAGE: &str = include_str!("../../../advisory-runtime/docs/errors.md");

fn answer(message: &str) -> DieselError {
    DieselError::DatabaseError(DatabaseErrorKind::Unknown, Box::new(message.to_owned()))
}

fn task_deadlock() -> Error {
    let cycle = "`pay` (src/pay.rs:9) waits for `room:<room>`, which `book` (src/book.rs:4) holds; `refund` \
                 (src/book.rs:12) waits for `account:<id>`, which `open` (src/pay.rs:3) holds";
    Error::TaskDeadlock {
        lock: "room:<room>".into(),
        cycle: cycle.to_owned(),
    }
}

/// One of each, as the page shows them.
#[allow(clippy::too_many_lines, reason = "a list")]
fn gallery() -> Vec<Error> {
    let lock = || "room:<room>".into();
    let source = || answer("what the server said");
    vec![
        Error::NotAvailable {
            lock: lock(),
            busy: BusyLock::default(),
        },
        Error::TimedOut {
            lock: lock(),
            busy: BusyLock::default(),
            waited: Duration::from_millis(2003),
            source: Some(source()),
        },
        Error::Done {
            lock: "lease webhook:<id>".into(),
            remaining: Duration::from_secs(86_400),
        },
        Error::QueueFull {
            lock: lock(),
            limit: 64,
        },
        Error::SelfDeadlock { lock: lock() },
        task_deadlock(),
        Error::Cancelled {
            lock: lock(),
            source: source(),
        },
        Error::HoldExceeded {
            lock: lock(),
            max_hold: Duration::from_secs(30),
        },
        Error::LockLost {
            lock: lock(),
            source: None,
        },
        Error::InTransaction { lock: lock() },
        Error::Standby { lock: lock() },
        Error::PooledSession { lock: lock() },
        Error::UnsupportedServer,
        Error::Pool("Timeout occurred while waiting for a slot to become available".into()),
        Error::Deadlock {
            lock: lock(),
            source: source(),
        },
        Error::RolledBack {
            lock: lock(),
            source: source(),
        },
        Error::TransactionEnded { lock: lock() },
        Error::CommitUnknown {
            lock: lock(),
            source: source(),
        },
        Error::StaleSnapshot { lock: lock() },
        Error::ForeignTransaction { lock: lock() },
        Error::InFailedTransaction {
            lock: lock(),
            source: source(),
        },
        Error::NoKeys {
            lock: "room:<rooms*>".into(),
            slice: "rooms",
        },
        Error::TooManyKeys {
            lock: "room:<rooms*>".into(),
            keys: 200,
            max: 64,
        },
        Error::InvalidPermits {
            lock: "export".into(),
            permits: 0,
        },
        Error::BrokenConnection { lock: lock() },
        Error::KeyTooLong {
            lock: "lease room:<room>".into(),
            bytes: 900,
            max: 512,
        },
        Error::InvalidLease {
            lock: lock(),
            reason: "a reason that names what to write",
        },
        Error::InvalidHolder {
            holder: "worker".repeat(50),
            reason: "it has more than 255 bytes",
        },
        Error::NoRuntime {
            lock: lock(),
            reason: "there is no tokio runtime",
        },
        Error::InvalidTable {
            table: "Leases".to_owned(),
            reason: "a reason that names what to write",
        },
        Error::MissingTable {
            table: "public.advisory_lease".to_owned(),
            source: source(),
        },
        Error::MissingRights {
            table: "public.advisory_lease".to_owned(),
            source: source(),
        },
        Error::NotInTransaction {
            lock: "lease room:<room>".into(),
        },
        Error::NotHeld { lock: lock() },
        Error::Database(answer(
            "duplicate key value violates unique constraint \"booking_room_key\"",
        )),
    ]
}

/// The variants as they are declared, so that a new one fails here until the page has it.
fn declared() -> Vec<String> {
    let source = include_str!("../../../advisory-runtime/src/error.rs");
    let (_, body) = source.split_once("pub enum Error {").unwrap_or_default();
    let (body, _) = body.split_once("\n}").unwrap_or_default();
    let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
    let variants = lines.filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()));
    variants.map(name).collect()
}

fn name(text: &str) -> String {
    text.chars()
        .take_while(char::is_ascii_alphanumeric)
        .collect()
}

#[test]
fn the_page_shows_each_error_as_it_prints_itself() {
    let shown: Vec<(String, String)> = PAGE
        .split("\n# ")
        .skip(1)
        .map(|part| {
            let text = part.split("```text\n").nth(1).unwrap_or_default();
            let (text, _) = text.split_once("\n```").unwrap_or_default();
            (
                name(part),
                text.split_whitespace().collect::<Vec<_>>().join(" "),
            )
        })
        .collect();
    let printed: Vec<(String, String)> = gallery()
        .iter()
        .map(|error| (name(&format!("{error:?}")), error.to_string()))
        .collect();
    assert_eq!(
        printed
            .iter()
            .map(|(name, _)| name.clone())
            .collect::<Vec<_>>(),
        declared()
    );
    for (shown, printed) in shown.iter().zip(&printed) {
        assert_eq!(shown, printed);
    }
    assert_eq!(shown.len(), printed.len());
}

/// As the page shows it.
fn status(error: &(dyn std::error::Error + 'static)) -> u16 {
    match Error::find(error).as_deref() {
        Some(Error::NotAvailable { .. } | Error::Done { .. }) => 409, // Conflict: held, or done
        Some(Error::TimedOut { .. } | Error::HoldExceeded { .. }) => 504, // Gateway Timeout
        Some(Error::QueueFull { .. }) => 503, // Service Unavailable: too many calls wait
        _ => 500,
    }
}

#[test]
fn the_pages_statuses() {
    for error in gallery() {
        let expected = match name(&format!("{error:?}")).as_str() {
            "NotAvailable" | "Done" => 409,
            "TimedOut" | "HoldExceeded" => 504,
            "QueueFull" => 503,
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
fn the_page_says_more_of_each_error_than_its_message() {
    for part in PAGE.split("\n# ").skip(1) {
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
    for error in gallery() {
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
