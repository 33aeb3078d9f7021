//! A committed document that no longer matches the program is found.

use advisory_pattern::Record;

use crate::programs::{
    Said, advisory, assert_has, assert_has_all, assert_lacks_all, booking_service, file, inventory,
    program_of, site,
};

const DOCUMENT: &str = include_str!("booking-service.md");

fn registry(name: &str, document: &str) -> Said {
    let (program, document) = (booking_service(), file(name, document));
    advisory(&["check", "--artifact", &program, "--registry", &document])
}

#[test]
fn what_dump_wrote_is_up_to_date() {
    registry("registry.md", DOCUMENT).exits(0);
    registry("registry.json", &inventory()).exits(0);
}

/// The inventory with another line and version.
fn moved_and_released() -> String {
    let moved = inventory().replace("\"line\": 11", "\"line\": 99");
    moved.replace(
        "\"crate_version\": \"1.4.0\"",
        "\"crate_version\": \"1.4.1\"",
    )
}

#[test]
fn lines_versions_and_line_ends_may_differ() {
    let moved = DOCUMENT
        .replace("repository.rs:11", "repository.rs:99")
        .replace('\n', "\r\n");
    registry("registry-moved.md", &moved).exits(0);
    let moved = moved_and_released();
    registry("registry-moved.json", &moved).exits(0);
    // None of these is a line number.
    for end in [":", ":x", ":1x"] {
        let other = DOCUMENT.replace("repository.rs:11", &format!("repository.rs{end}"));
        registry("registry-other.md", &other).exits(1);
    }
}

#[test]
fn an_outdated_row_is_shown_with_its_replacement() {
    let old = DOCUMENT.replace("<tenant_id>:balance:", "<tenant_id>:payment:");
    let said = registry("registry-old.md", &old).exits(1);
    assert_has_all(
        &said.out,
        &[
            "registry-old.md:20",
            "= - | `<tenant_id>:payment:<booking_id>`",
            "= + | `<tenant_id>:balance:<booking_id>`",
            "cargo advisory dump --format markdown -o ",
        ],
    );
}

/// The pattern has the same text, but other keys.
#[test]
fn the_type_of_a_value_is_part_of_the_document() {
    let markdown = DOCUMENT.replacen("date (text)", "date (date)", 1);
    assert_ne!(markdown, DOCUMENT);
    let said = registry("registry-type.md", &markdown).exits(1);
    assert_has_all(&said.out, &["date (date) |", "date (text) |"]);
    let json = moved_and_released().replacen("<date: text>", "<date: date>", 1);
    assert_ne!(json, moved_and_released());
    let said = registry("registry-type.json", &json).exits(1);
    for part in [
        "the lock site booking_service::booking_repository::create has changed since `",
        "= - `keys`: [{",
        "<date: date>",
        "= + `keys`: [{",
    ] {
        assert_has(&said.out, part);
    }
    assert_lacks_all(&said.out, &["= - `line`", "= - `crate_version`"]);
}

#[test]
fn a_site_is_missing_on_either_side() {
    let old = inventory().replace("\"pay_balance\"", "\"settle\"");
    let said = registry("registry-old.json", &old).exits(1);
    assert_has(
        &said.out,
        "lacks the lock site booking_service::booking_repository::pay_balance",
    );
    assert_has(
        &said.out,
        "the program lacks the lock site booking_service::booking_repository::settle",
    );
}

/// Methods of two types have one path.
#[test]
fn one_of_two_equal_sites_is_missing_on_either_side() {
    let book = |line| Record {
        name: Some("slot".into()),
        ..site(
            "bookings",
            "book",
            line,
            &["slot:<id>"],
            &["pattern slot:<id: int>"],
        )
    };
    let (one, two) = (
        program_of("registry-one.rmeta", &[book(7)]),
        program_of("registry-two.rmeta", &[book(7), book(9)]),
    );
    let dump = |program| advisory(&["dump", "--format", "json", "--artifact", program]).out;
    let of_one = file("registry-one.json", dump(&one));
    let of_two = file("registry-two.json", dump(&two));
    let check =
        |program, registry| advisory(&["check", "--artifact", program, "--registry", registry]);
    for (program, registry, message) in [
        (&two, &of_one, "` lacks the lock site bookings::book"),
        (
            &one,
            &of_two,
            "the program lacks the lock site bookings::book",
        ),
    ] {
        let said = check(program, registry).exits(1);
        assert_has(&said.out, message);
        assert_has(&said.out, "error: 1 finding;");
    }
    check(&two, &of_two).exits(0);
}
