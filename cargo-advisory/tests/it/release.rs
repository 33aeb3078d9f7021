//! A lock that differs between two releases is found.

use advisory_pattern::{Permits, Record};
use serde_json::Value;

use crate::programs::{
    Said, advisory, assert_has, assert_has_all, assert_lacks, booking_service, cases, file,
    inventory, program_of, site,
};
use crate::records::declared;

fn against(name: &str, previous: &str, more: &[&str]) -> Said {
    let (program, previous) = (booking_service(), file(name, previous));
    let words = ["check", "--artifact", &program, "--against", &previous];
    advisory(&[&words[..], more].concat())
}

#[test]
fn the_same_keys_are_not_a_change() {
    against("against-same.json", &inventory(), &[]).exits(0);
}

#[test]
fn a_changed_key_is_a_finding_that_shows_both() {
    let previous = inventory().replace(":balance:", ":payment:");
    let said = against("against-changed.json", &previous, &[]).exits(1);
    let file = crate::programs::scratch("against-changed.json");
    assert_eq!(
        said.out.replace(&file, "previous.json"),
        include_str!("release.txt")
    );
}

/// The pattern has the same text.
#[test]
fn another_type_of_a_value_is_shown_by_its_shape() {
    let previous = inventory().replacen("<date: text>", "<date: date>", 1);
    let said = against("against-type.json", &previous, &[]).exits(1);
    let changed = "has changed from `<tenant_id: text>:<date: date>` by fnv1a32 to `<tenant_id: text>:<date: text>` by fnv1a32";
    assert_has(&said.out, changed);
}

#[test]
fn another_derivation_is_another_key() {
    let previous = inventory().replace("fnv1a32", "sha256");
    let said = against("against-derivation.json", &previous, &[]);
    assert_has(&said.out, "error: 2 findings");
}

#[test]
fn a_lock_is_known_by_its_name_also_where_its_function_moved() {
    let previous = inventory()
        .replace("42424242", "42424243")
        .replace("clean_up", "sweep");
    let said = against("against-name.json", &previous, &[]).exits(1);
    assert_has(&said.out, "`idempotency-cleanup` has changed");
}

#[test]
fn a_declared_change_is_not_reported() {
    let previous = inventory().replace("42424242", "42424243");
    for name in [
        "idempotency-cleanup",
        "booking_service::idempotency::clean_up",
    ] {
        let allowed = ["--allow-key-change", name];
        against("against-allowed.json", &previous, &allowed).exits(0);
    }
}

#[test]
fn renamed_placeholders_and_removed_functions_are_not_a_change() {
    let previous = inventory()
        .replace("<date", "<day")
        .replace("\"pay_balance\"", "\"gone\"");
    against("against-renamed.json", &previous, &[]).exits(0);
}

#[test]
fn methods_with_one_path_are_distinguished_by_their_keys() {
    let mut previous: Value = serde_json::from_str(&inventory()).unwrap();
    let sites = previous["sites"].as_array_mut().unwrap();
    let mut twin = sites[0].clone();
    twin["line"] = 100.into();
    twin["keys"][0]["shaped"] = "other:<id: text>".into();
    sites.push(twin);
    // The key of a removed method is gone with it; the remaining one has its own.
    against("against-removed.json", &previous.to_string(), &[]).exits(0);
}

/// `check` of a program with the sites `new`, against one with the sites `old`.
#[track_caller]
fn between(old: &[Record], new: &[Record]) -> Said {
    let name = format!("against-{}", std::panic::Location::caller().line());
    let old = program_of(&format!("{name}-old.rmeta"), old);
    let dump = advisory(&["dump", "--format", "json", "--artifact", &old]);
    let released = file(&format!("{name}.json"), dump.out);
    let new = program_of(&format!("{name}-new.rmeta"), new);
    advisory(&["check", "--artifact", &new, "--against", &released])
}

fn function(name: &str, key: &str) -> Record {
    site("bookings", name, 7, &[key], &[&format!("pattern {key}")])
}

fn expression(name: &str, key: &str) -> Record {
    site("bookings", name, 7, &[key], &["?"])
}

fn named(name: &str, record: Record) -> Record {
    Record {
        name: Some(name.into()),
        ..record
    }
}

#[track_caller]
fn changed(said: &Said, identity: &str, was: &str, is: &str) {
    assert_eq!(said.code, Some(1), "{said:?}");
    let message = format!(
        "the key of advisory lock `{identity}` has changed from `{was}` by sha256 to `{is}`"
    );
    assert_has(&said.out, &message);
    assert_has(&said.out, "error: 1 finding;");
}

/// Without a name, only its place in the program connects the two.
#[test]
fn a_function_that_is_renamed_together_with_its_key_is_found() {
    let old = [
        function("book", "slot:<room: int>:<day: date>"),
        function("cancel", "cancel:<id: int>"),
    ];
    let becomes = |new: Record| between(&old, &[new, old[1].clone()]);
    let place = || function("reserve", "place:<r: int>:<d: date>");
    let said = becomes(place()).exits(1);
    assert_has_all(
        &said.out,
        &[
            "advisory lock `bookings::book` with the key `slot:<room: int>:<day: date>` by sha256 is gone",
            "`bookings::reserve` with the key `place:<r: int>:<d: date>` by sha256 is new",
            "do not exclude each other",
            "`--allow-key-change bookings::reserve`",
        ],
    );
    becomes(function("reserve", "slot:<r: int>:<d: date>")).exits(0);
    becomes(function("reserve", "place:<id: int>")).exits(0);
    let module = "shop".into();
    becomes(Record { module, ..place() }).exits(0);
    // It can also be an addition.
    between(&old[..1], &[old[0].clone(), place()]).exits(0);
}

#[test]
fn the_type_of_a_field_is_said_to_be_unknown() {
    let at = |written: &str, shape: &str| {
        let encoded = format!("pattern slot:<slot.at: {shape}>");
        site("bookings", "book", 7, &[written], &[&encoded])
    };
    let [text, was, is] = [
        at("slot:<slot.at>", "text"),
        at("slot:<slot.at: date>", "date"),
        at("slot:<slot.at: timestamp>", "timestamp"),
    ];
    let out = becomes(text.clone(), text, 0);
    let unknown = "a change of the type of `<slot.at>` in `bookings::book` would not be found";
    assert_has(&out, unknown);
    assert_has(&out, "write its shape, such as `<slot.at: timestamp>`");
    let out = becomes(was.clone(), is, 1);
    assert_has(
        &out,
        "from `slot:<slot.at: date>` by sha256 to `slot:<slot.at: timestamp>`",
    );
    let out = becomes(was.clone(), was, 0);
    assert_lacks(&out, "would not be found");
}

#[test]
fn moving_a_function_to_another_lock_is_its_change() {
    let book = named("slot", function("book", "slot:<id: int>"));
    let old = [
        book.clone(),
        named("slot", function("shift", "slot:<id: int>")),
    ];
    let new = [book, named("move", function("shift", "move:<id: int>"))];
    let said = between(&old, &new);
    let (was, is) = ("slot:<id: int>", "move:<id: int>");
    changed(&said, "bookings::shift", was, is);
}

#[test]
fn a_change_of_a_name_is_reported_once_for_all_its_functions() {
    let sites = |key| ["book", "shift"].map(|name| named("slot", function(name, key)));
    let (was, is) = ("slot:<id: int>", "place:<id: int>");
    let said = between(&sites(was), &sites(is));
    changed(&said, "slot", was, is);
}

fn lock(name: &str, pattern: &str) -> Record {
    Record {
        derivation: "sha256".into(),
        ..declared("bookings", name, pattern)
    }
}

#[test]
fn the_key_of_a_declared_lock_is_compared_where_it_is_used() {
    let (was, is) = ("slot:<id: int>", "slot2:<id: int>");
    let old = [lock("SlotLock", was), expression("book", "SlotLock { id }")];
    let new = [lock("SlotV2", is), expression("book", "SlotV2 { id }")];
    let said = between(&old, &new);
    changed(&said, "bookings::book", was, is);
    // A change of the declaration is reported there.
    let new = [lock("SlotLock", is), expression("book", "SlotLock { id }")];
    let said = between(&old, &new);
    changed(&said, "bookings::SlotLock", was, is);
}

#[test]
fn declaring_the_lock_of_a_pattern_is_not_a_change() {
    let old = [function("book", "slot:<id: int>")];
    let new = [
        lock("SlotLock", "slot:<slot: int>"),
        expression("book", "SlotLock { slot }"),
    ];
    between(&old, &new).exits(0);
}

#[test]
fn a_key_that_becomes_an_expression_is_compared_by_scope_only() {
    let old = [function("book", "slot:<id: int>")];
    let new = [expression("book", "slot.key()")];
    between(&old, &new).exits(0);
    let new = new.map(|site| Record {
        scope: "lease".into(),
        ..site
    });
    between(&old, &new).exits(1);
}

#[test]
fn a_key_next_to_an_unchanged_expression_is_compared() {
    let keys = |first: &str| {
        let (written, encoded) = ([first, "other.key()"], format!("pattern {first}"));
        [site("bookings", "book", 7, &written, &[&encoded, "?"])]
    };
    between(&keys("slot:<id: int>"), &keys("place:<id: int>")).exits(1);
}

fn keys(name: &str, keys: &[&str]) -> Record {
    let encoded: Vec<String> = keys.iter().map(|key| format!("pattern {key}")).collect();
    let encoded: Vec<&str> = encoded.iter().map(String::as_str).collect();
    site("bookings", name, 7, keys, &encoded)
}

/// `check` of the one site `new` against the one site `old`.
#[track_caller]
fn becomes(old: Record, new: Record, code: i32) -> String {
    let said = between(&[old], &[new]).exits(code);
    said.out
}

#[test]
fn the_same_values_in_another_order_are_another_key() {
    let (was, is) = (
        "slot:<room: int>:<seat: int>",
        "slot:<seat: int>:<room: int>",
    );
    let said = between(&[function("book", was)], &[function("book", is)]);
    changed(&said, "bookings::book", was, is);
    // A value that only one release names may be the same value.
    let renamed = function("book", "slot:<r: int>:<seat: int>");
    becomes(function("book", was), renamed, 0);
    // The values of two keys were exchanged.
    let old = keys("book", &["room:<a: int>", "seat:<b: int>"]);
    let new = keys("book", &["room:<b: int>", "seat:<a: int>"]);
    becomes(old.clone(), new, 1);
    let new = keys("book", &["seat:<b: int>", "room:<a: int>"]);
    becomes(old, new, 0);
    // Each is looked for among those of its values first.
    let [from, to] = ["account:<from: int>", "account:<to: int>"];
    let (old, new) = (keys("pay", &[from, to]), keys("pay", &[to, from]));
    becomes(old, new, 0);
}

#[test]
fn only_a_value_that_both_releases_name_can_have_moved() {
    let table = "\
a b | a b | 0
a b | b a | 1
a b | a c | 0
a b | x y | 0
a b | b c | 1
a a | a b | 1
a b | c c | 1
a a | c c | 0
req.room req.day | room day | 0
req.room req.day | day room | 1
from.id to.id | source.id target.id | 0
from.id to.id | to.id from.id | 1
a.x b.y | c.y d.y | 0
c.y d.y | a.y b.x | 0
r.a r.a r.b | b b a | 1";
    let book = |values: &str| {
        let values = values.split(' ').map(|value| format!("<{value}: int>"));
        function("book", &values.collect::<Vec<_>>().join(":"))
    };
    for [old, new, code] in cases(table) {
        becomes(book(old), book(new), code.parse().unwrap());
    }
}

#[test]
fn values_that_changed_places_in_with_are_found() {
    let with = |from: &str, to: &str| Record {
        with: vec![("from".into(), from.into()), ("to".into(), to.into())],
        ..function("pay", "pay:<from: int>:<to: int>")
    };
    let out = becomes(with("a.id", "b.id"), with("b . id", "a . id"), 1);
    let message =
        "from `pay:<a.id: int>:<b.id: int>` by sha256 to `pay:<b.id: int>:<a.id: int>` by sha256";
    assert_has(&out, message);
    becomes(with("a.id", "b.id"), with("a . id", "b.id"), 0);
    becomes(with("a.id", "b.id"), with("x.id", "y.id"), 0);
}

/// The first can be each of the others under other names, and the second can be the third. The
/// third cannot be the first.
#[test]
fn methods_of_one_path_are_distinguished_by_their_values() {
    let [one, other, swapped] = [
        "<a: int>:<b: int>",
        "<c: int>:<d: int>",
        "<b: int>:<a: int>",
    ];
    let at = |line, key: &str| Record {
        line,
        ..named("pay", function("pay", &format!("pay:{key}")))
    };
    let old = [at(1, one), at(2, other), at(3, swapped)];
    let new = [at(1, other), at(2, swapped), at(3, one)];
    between(&old, &new).exits(0);
}

#[test]
fn values_that_changed_places_in_an_expression_are_found() {
    for (old, new, code) in [
        ("slot_key(room, seat)", "slot_key(seat, room)", 1),
        ("SlotLock(room, seat)", "SlotLock(seat, room)", 1),
        ("S { room: a, seat: b }", "S { room: b, seat: a }", 1),
        ("SlotLock { room, seat }", "SlotLock { seat, room }", 0),
        ("slot_key(room, seat)", "seat_key(seat, room)", 0),
        ("slot(a, f(b, c))", "slot(f(b , c), a)", 1),
        // The comma of another call is in one argument.
        ("slot(f(a, b), c)", "slot(c, a)", 1),
        ("one(a).two(b)", "one(b).two(a)", 0),
    ] {
        becomes(expression("book", old), expression("book", new), code);
    }
    let pair = |written: &str| site("bookings", "book", 7, &[written], &["number (?,?)"]);
    becomes(pair("(room, seat)"), pair("(seat, room)"), 1);
    let declared = lock("SlotLock", "slot:<room: int>:<seat.no: int>");
    for (written, code) in [
        ("SlotLock { room: r, seat: s }", 0),
        ("x::SlotLock { seat: r, room: s.no }", 1),
        // Their fields cannot be seen.
        ("SlotLock { room: s.no, ..other }", 0),
        ("SlotLock::new(s.no, r)", 0),
        ("lock! { of: SlotLock, room: s.no, seat: r }", 0),
    ] {
        let keyed = function("book", "slot:<r: int>:<s.no: int>");
        let old = [declared.clone(), keyed];
        let new = [declared.clone(), expression("book", written)];
        between(&old, &new).exits(code);
    }
}

#[test]
fn one_key_of_several_that_is_dropped_is_found() {
    let both = || keys("pay", &["account:<from: int>", "account:<to: int>"]);
    let one = || function("pay", "account:<from: int>");
    let out = becomes(both(), one(), 1);
    let message = "the key of advisory lock `bookings::pay` has changed from `account:<from: int>` by sha256, `account:<to: int>` \
                   by sha256 to `account:<from: int>` by sha256";
    assert_has(&out, message);
    let slice = || function("pay", "account:<ids*: int>");
    becomes(both(), slice(), 0);
    becomes(slice(), both(), 0);
    becomes(slice(), one(), 1);
    becomes(one(), both(), 0);
    let renamed = keys("pay", &["account:<a: int>", "account:<b: int>"]);
    becomes(both(), renamed, 0);
    let (written, encoded) = (["other.key()", "a:<x: int>"], ["?", "pattern a:<x: int>"]);
    let with_expression = site("bookings", "pay", 7, &written, &encoded);
    becomes(with_expression.clone(), function("pay", "a:<x: int>"), 1);
    let known = keys("pay", &["a:<x: int>", "b:<y: int>"]);
    becomes(with_expression, known, 0);
}

#[test]
fn everything_that_decides_the_number_or_who_shares_it_is_compared() {
    let book = || function("book", "slot:<id: text>");
    let with = |change: &dyn Fn(&mut Record)| {
        let mut record = book();
        change(&mut record);
        record
    };
    let differs = |new: Record, message: &str| {
        let out = becomes(book(), new, 1);
        assert_has(&out, message);
        assert_has(&out, "bookings: src/lib.rs:7 (fn `bookings::book`)");
    };
    let is = "from `slot:<id: text>` by sha256 to `slot:<id: text>` by md5";
    differs(with(&|it| it.derivation = "md5".into()), is);
    for shape in ["text|lower", "raw", "uuid"] {
        let key = format!("slot:<id: {shape}>");
        differs(function("book", &key), &format!("to `{key}`"));
    }
    let pair = site("bookings", "book", 7, &["(7, id)"], &["number (7,?)"]);
    differs(pair, "to `(7, id)`");
    let is = "to `slot:<id: text>` as a lease";
    differs(with(&|it| it.scope = "lease".into()), is);
    let is = "the number of permits of advisory lock `bookings::book` has changed from 1 to 3";
    differs(with(&|it| it.permits = Some(Permits::Number(3))), is);
    let is = "the mode of advisory lock `bookings::book` has changed from exclusive to shared";
    differs(with(&|it| it.mode = "shared".into()), is);
    let nothing = Record {
        wait: Some("5s".into()),
        poll: Some("1s".into()),
        max_hold: Some("1m".into()),
        isolation: Some("serializable".into()),
        purpose: Some("Books".into()),
        component: Some("shop".into()),
        guards: vec!["booking".into()],
        file: "src/book.rs".into(),
        line: 99,
        version: "2.0.0".into(),
        ..book()
    };
    becomes(book(), nothing, 0);
    let lease = |keep: Option<&str>| Record {
        scope: "lease".into(),
        keep: keep.map(str::to_owned),
        ..book()
    };
    becomes(lease(Some("1h")), lease(Some("2h")), 0);
    let out = becomes(lease(Some("24h")), lease(None), 1);
    let message = "the `keep` of advisory lock `bookings::book` has changed from `24h` to none";
    assert_has(&out, message);
    // Readers and a writer of one name.
    let read = || named("slot", function("read", "slot:<id: text>"));
    let mode = "shared".into();
    let both = [named("slot", book()), Record { mode, ..read() }];
    between(&both, &both).exits(0);
    between(&both, &[named("slot", book()), read()]).exits(1);
}
