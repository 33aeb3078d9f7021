//! From a number back to the key: the command of the live view, with the values of a file, a range
//! and a query.

use advisory_pattern::{Derivation, Shape};
use advisory_tests::Database;
use advisory_tests::futures::spawn_blocking;

use crate::live_view::{holder, locks};
use crate::programs::{advisory, assert_has, assert_has_all, assert_starts, cases, file, hex, run};

/// The start of a lease's hash.
fn hash(text: &str) -> String {
    hex(&advisory_pattern::sha256(text)[..6])
}

#[test]
fn a_number_is_found_among_a_days_candidates() {
    let tenants = file("key-find.txt", "t-1\nt:2\nT-3 \n");
    let find = |number: String, pattern: &str| {
        let number = format!("--find={number}");
        let tenant = format!("tenant={tenants}");
        let words = ["key", &number, "--pattern", pattern, "--values", &tenant];
        advisory(&[&words[..], &["--values", "date=2026-10-30..2026-11-30"]].concat())
    };
    for (pattern, text) in [
        ("<tenant>:<date>", "t-1:2026-11-22"),
        // A text is escaped, and filters apply.
        ("<tenant>:<date>", "t%3A2:2026-11-01"),
        (
            "room:<tenant|trim|lower>:<date: date>",
            "room:t-3:2026-10-31",
        ),
    ] {
        for derivation in Derivation::ALL {
            let number = derivation.key(text).to_string();
            let said = find(number.clone(), pattern);
            let line = format!("{number} is {text}  {}\n", derivation.name());
            assert_eq!(said.exits(0).out, line);
        }
        let hash = hash(text);
        let said = find(hash.clone(), pattern);
        assert_eq!(said.out, format!("{hash} is {text}  lease\n"));
    }
    for derivation in Derivation::ALL {
        let pair = format!("(7, {})", derivation.half("t-1:2026-11-22"));
        let said = find(pair, "(7,\"<tenant>:<date>\")");
        let end = format!(") is (7,\"t-1:2026-11-22\")  {}\n", derivation.name());
        // One with 64 bits has no half of a pair.
        assert_eq!(said.out.ends_with(&end), derivation.bits() == 32);
    }
    let number = advisory(&["key", "4711"]).out;
    assert_has_all(
        &number,
        &[
            "cargo advisory key --find=4711 ",
            "`monitor::show(Shown::Key)`",
        ],
    );
    let said = find("5".to_owned(), "<tenant>:<date>").exits(1);
    assert_starts(&said.out, "none of ");
    let said = find("5".to_owned(), "<tenant>:<room>").exits(2);
    assert_has(&said.err, "write `--values room=FILE`");
    for wrong in ["0123abc", "0123abcg", "(7, x)", ""] {
        let said = find(wrong.to_owned(), "<tenant>").exits(2);
        assert_has(&said.err, "is not a key: write the number");
    }
    find("\\x0123abcd…".to_owned(), "<tenant>:<date>").exits(1);
}

#[test]
fn values_are_those_of_their_placeholder() {
    let table = "\
<a> | 1..3 | none of 3 texts
<a> | 2024-02-27..2024-03-02 | none of 5 texts
<a> | 1900-01-01..1901-01-01 | none of 366 texts
<a> | 08:00..08:02 | none of 3 texts
<a> | 08:00..09:00/30min | none of 3 texts
<a> | 08:00..09:00/30 | none of 121 texts
<a> | 08:00..09:00/1m30s | none of 41 texts
<a> | 08:00..09:00/1.5s | none of 2401 texts
<a> | 08:00..09:00/1d | none of 1 texts
<a> | 23:59:58..23:59:59 | none of 2 texts
<a>:<b> | 1..3 | no values for `<a>`
<a>:<b> | b=1..3 a=1..2 | none of 6 texts
<req.a>:<b> | a=1..2 b=1..3 | none of 6 texts
<req.a>:<b> | req.a=1..2 b=1..3 | none of 6 texts
<req.a>:<b> | req=1..2 b=1..3 | no values for `<req.a>`";
    for [pattern, values, says] in cases(table) {
        let mut words = vec!["key", "--find=5", "--pattern", pattern];
        words.extend(values.split(' ').flat_map(|values| ["--values", values]));
        let said = advisory(&words);
        assert_has(&(said.out + &said.err), says);
    }
}

#[test]
fn ten_texts_are_shown() {
    let find = format!("--find={}", Derivation::Sha256.key("7"));
    for (count, lines) in [(10, 10), (12, 11)] {
        let patterns = ["--pattern", "<id>"].repeat(count);
        let words = [&["key", &find, "--values", "7..7"], &patterns[..]].concat();
        let out = advisory(&words).exits(0).out;
        assert_eq!(out.lines().count(), lines, "{out}");
        assert_eq!(out.ends_with("\nand 2 more\n"), count == 12, "{out}");
    }
}

/// Times in a range, and as a query or a file has them.
#[test]
fn a_time_is_found_however_it_is_given() {
    let times = file(
        "key-find-times.txt",
        "2026-11-22 09:30:00.125+01\n2026-11-22 10:00:00+01\n2026-11-22 09:30:00\n09:30:00\n",
    );
    // The slot is as the live view shows it, without the shape.
    let table = "\
<at: time> | 093000 | 08:00..18:00/15min
<id: uint> | 7 | 1..9
<name: text> | 093000 | 08:00..18:00/15min
<at: timestamp> | 2026-11-22T083000Z | 2026-11-22T08:00..2026-11-22T09:00
<at: time> | 093007 | 08:00:00..18:00:00
<at: time> | 080000.25 | 08:00..08:00:00.5/250ms
<at: datetime> | 2026-11-22T093000 | 2026-11-22T00:00..2026-11-23T00:00
<at: datetime> | 2026-11-23T000000 | 2026-11-22T23:59..2026-11-23 00:00
<at: timestamp> | 2026-11-22T083000Z | 2026-11-22T09:00+01:00..2026-11-22T10:00+01:00
<at: timestamp> | 2026-11-22T080100Z | 2026-11-22T09:00+01:00..2026-11-22T08:01Z
slot:<slot.at> | slot:2026-11-22T083000Z | at=2026-11-22T08:00..2026-11-22T09:00
slot:<at> | slot:2026-11-22T083000.125Z | FILE
<at: timestamp> | 2026-11-22T090000Z | FILE
<at> | 2026-11-22T093000 | FILE
<at> | 2026-11-22T093000Z | FILE
<at> | 093000 | FILE
<flag: bool>:<at: time> | true:180000 | at=18:00..18:00";
    for [pattern, text, values] in cases(&table.replace("FILE", &times)) {
        let number = Derivation::Sha256.key(text);
        let find = format!("--find={number}");
        let said = advisory(&["key", &find, "--pattern", pattern, "--values", values]);
        let line = format!("{number} is {text}  sha256\n");
        assert_eq!(said.exits(0).out, line);
    }
}

/// The server's form in the simple protocol, that of RFC 3339, and the key's own text.
#[test]
fn a_value_is_written_as_its_shape_renders_it() {
    let table = "\
int | -7 | -7
int | x | refused
uint | -7 | refused
uuid | 67E55044-10B1-426F-9247-BB680E5FE0C8 | 67e55044-10b1-426f-9247-bb680e5fe0c8
uuid | 67e5504410b1426f9247bb680e5fe0c8 | 67e55044-10b1-426f-9247-bb680e5fe0c8
uuid | 67e5504410b1426f9247bb680e5fe0c | refused
bool | t | true
bool | yes | refused
date | 2026-11-22 | 2026-11-22
date | -0044-03-15 | -0044-03-15
date | +10000-01-01 | +10000-01-01
date | 22.11.2026 | refused
time | 09:30:00 | 093000
time | 09:30:00.250 | 093000.25
time | 235960.5 | 235960.5
time | later | refused
datetime | 2026-11-22 09:30:00 | 2026-11-22T093000
datetime | 2026-11-22T093000 | 2026-11-22T093000
datetime | 2026-11-22 09:30:00+00 | refused
datetime | 2026-11-22 | refused
timestamp | 2026-11-22 09:30:00+00 | 2026-11-22T093000Z
timestamp | 2026-11-22 09:30:00.123456+05:30 | 2026-11-22T040000.123456Z
timestamp | 2026-11-22T09:30:00Z | 2026-11-22T093000Z
timestamp | 2026-11-22 09:30:00 | 2026-11-22T093000Z
timestamp | 2026-11-22T235960Z | 2026-11-22T235960Z
timestamp | infinity | refused";
    for [shape, value, text] in cases(table) {
        let values = file("key-find-forms.txt", value);
        let find = format!("--find={}", Derivation::Sha256.key(text));
        let pattern = format!("<v: {shape}>");
        let said = advisory(&["key", &find, "--pattern", &pattern, "--values", &values]);
        let code = if text == "refused" { 2 } else { 0 };
        assert_eq!(said.code, Some(code), "{shape} {value}: {said:?}");
    }
    let is_any_text = |shape: &Shape| matches!(shape, Shape::Char | Shape::Text | Shape::Raw);
    for shape in Shape::ALL.into_iter().filter(|shape| !is_any_text(shape)) {
        let has_row = cases(table).any(|[name, _, _]| name == shape.name());
        assert!(has_row, "no row of {}", shape.name());
    }
}

#[test]
fn a_shape_that_cannot_be_searched_says_why() {
    let mixed = file("key-find-mixed.txt", "7\nseven\n");
    let find = |pattern: &str, values: &str| {
        advisory(&["key", "--find=5", "--pattern", pattern, "--values", values])
    };
    let table = "\
<id: uuid> | 1..9 | too many UUIDs to try
<at: timestamp> | 2026-11-01..2026-11-30 | write `2026-11-22T08:00Z..2026-11-22T18:00Z/15min`
<at: time> | 080000..180000 | write `08:00..18:00/15min`
<id: int> | 2026-11-01..2026-11-30 | write `1..1000`
<id: uint> | 2026-11-01..2026-11-30 | write `1..1000`
<day: date> | 1..9 | write `2026-11-01..2026-11-30`
<at: datetime> | 08:00..18:00 | write `2026-11-22T08:00..2026-11-22T18:00/15min`
<on: bool> | 0..1 | both values are tried
<at> | 2026-11-22T09:00..2026-11-22T09:00Z | write both in one form
<at> | 08:00..09:00/0s | longer than zero
<at> | 08:00..09:00/often | is not a duration
<at> | 08:00..09:00/1mo | is not a duration
<at> | 08:00..09:00/-1s | is not a duration
<at> | 08:00..09:00/99999999999999999999s | is not a duration
<at> | 2000-01-01T00:00:00..2026-01-01T00:00:00 | more than 50000000 texts
<day> | 2026-02-29..2026-12-31 | cannot read `2026-02-29..2026-12-31`
<day> | 2026-1-1..2026-12-31 | cannot read `2026-1-1..2026-12-31`
<day> | 20260101..2026-12-31 | cannot read `20260101..2026-12-31`
<day> | 2026-01-01-01..2026-12-31 | cannot read `2026-01-01-01..2026-12-31`
<at: timestamp> | FILE | 2 of the values for `<at>` are not of the shape timestamp, the first of them `7`
<a: uuid>:<b> | b=1..9 | no values for `<a>`: write `--values a=FILE` or `a=SELECT …`";
    for [pattern, values, why] in cases(&table.replace("| FILE |", &format!("| {mixed} |"))) {
        let said = find(pattern, values).exits(2);
        assert_eq!(said.out, "");
        assert_has(&said.err, why);
        assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    }
    let said = find("<id: int>", &mixed).exits(1);
    assert_has(
        &said.err,
        "1 of the values for `<id>` are not of the shape int",
    );
    let said = find("<at: time>", "08:00..18:00");
    assert_has(
        &said.out,
        "times between the steps of a range were not tried",
    );
}

/// The value is rendered by each placeholder in its own way, so one name can have two texts.
#[test]
fn a_placeholder_is_rendered_at_each_of_its_places() {
    let names = file("key-find-twice.txt", "x\na:B\n");
    let name = format!("name={names}");
    for (pattern, text) in [
        ("<name>:<name|raw>", "a%3AB:a:B"),
        ("<name>:<name|raw>", "x:x"),
        // Without a shape it can be no text, and is not escaped.
        ("<name>", "a:B"),
        ("<name|lower>", "a:b"),
        ("<name|lower>", "a%3Ab"),
        ("<name>/<name>", "a%3AB/a%3AB"),
        ("<name: text>:<name|raw>:<name|lower>", "a%3AB:a:B:a%3Ab"),
    ] {
        for (number, code) in [(Derivation::Sha256.key(text), 0), (5, 1)] {
            let number = format!("--find={number}");
            let words = ["key", &number, "--pattern", pattern, "--values", &name];
            let said = advisory(&words).exits(code);
            let line = format!(" is {text}  sha256\n");
            assert_eq!(said.out.contains(&line), code == 0, "{said:?}");
        }
    }
    for (pattern, count) in [("<name>", 3), ("<name: text>", 2), ("<name|raw>", 2)] {
        let said = advisory(&["key", "--find=5", "--pattern", pattern, "--values", &name]);
        assert_has(&said.out, &format!("none of {count} texts "));
    }
}

/// One hash of some hundred is written with decimal digits alone.
#[test]
fn a_hash_without_letters_is_not_only_a_number() {
    let hash = |id: u32| hash(&format!("booking:{id}"));
    let id = (1..20_000).find(|id| hash(*id).chars().all(|c| c.is_ascii_digit()));
    let (id, find) = (id.unwrap(), format!("--find={}", hash(id.unwrap())));
    let words = ["--pattern", "booking:<id>", "--values", "1..20000"];
    let said = advisory(&[&["key", &find], &words[..]].concat());
    let line = format!(" is booking:{id}  lease\n");
    assert!(said.out.ends_with(&line), "{said:?}");
    // A number with fewer digits would be the start of too many.
    let shorter = &find[..find.len() - 1];
    advisory(&[&["key", shorter], &words[..]].concat()).exits(1);
}

/// The permits of a number and of a pair are numbers.
#[test]
fn the_number_of_a_permit_is_found() {
    let own = Derivation::Sha256.key("slot:7").to_string();
    let pair = format!("(7, {})", Derivation::Hashtext.half("slot:7"));
    for (key, pattern, end) in [
        (own, "slot:<id>", " is slot:7  sha256, permit 3\n"),
        (
            pair,
            "(7,\"slot:<id>\")",
            " is (7,\"slot:7\")  hashtext, permit 3\n",
        ),
    ] {
        let find = format!("--find={}", advisory_pattern::permit_key(&key, 3));
        let words = ["key", &find, "--pattern", pattern, "--values", "1..9"];
        for (permits, code) in [("2", 1), ("3", 0)] {
            let said = advisory(&[&words[..], &["--permits", permits]].concat()).exits(code);
            assert_eq!(said.out.ends_with(end), code == 0, "{said:?}");
        }
        advisory(&words).exits(1);
        let said = advisory(&[&words[..], &["--permits", "3", "--format", "json"]].concat());
        let value: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        assert_eq!(value["found"][0]["permit"], 3, "{value}");
    }
    // The number of each permit is computed and compared.
    let words = [
        "key",
        "--find=5",
        "--pattern=<id>",
        "--values=1..60000",
        "--permits=1000",
    ];
    assert_has(&advisory(&words).exits(2).err, "more than 50000000 texts");
}

/// The live view prints the command; with the ids of a table it finds the key.
#[tokio::test(flavor = "multi_thread")]
async fn the_live_view_names_the_command_that_finds_the_key() {
    let db = Database::create().await;
    db.run("CREATE TABLE room (id int); INSERT INTO room SELECT generate_series(1, 500)")
        .await;
    let number = Derivation::Sha256.key("booking:417");
    let call = format!("/*advisory:booking:<id>*/;SELECT pg_catalog.pg_advisory_lock({number})");
    let held = holder(&db, "job", &call).await;
    let out = locks(&db, &[]).await.out;
    let command =
        format!("cargo advisory key --find={number} --pattern 'booking:<id>' --values id=FILE");
    assert_has(&out, &command);
    assert_has(&out, "`monitor::show(Shown::Key)`");
    let url = db.url().to_owned();
    let said = spawn_blocking(move || {
        let number = format!("--find={number}");
        let words = [
            "key",
            &number,
            "--pattern",
            "booking:<id>",
            "--values",
            "id=WITH own AS (SELECT id FROM room) SELECT id FROM own",
        ];
        let query = run(&words, &[("DATABASE_URL", &url)]);
        let words = [&words[..5], &["id=select\tid from room"]].concat();
        [query, run(&words, &[("DATABASE_URL", &url)])]
    });
    for said in said.await.unwrap() {
        assert_has(&said.out, " is booking:417  sha256");
    }
    drop(held);
    db.until_no_locks().await;
    let held = holder(&db, "job", "SELECT pg_advisory_lock(987654321987)").await;
    let out = locks(&db, &[]).await.out;
    assert_has_all(
        &out,
        &[
            "cargo advisory key --find NUMBER",
            "`monitor::show(Shown::Key)`",
        ],
    );
    drop(held);
    // The comment is cut in the pattern, by the marks of the comment of another lock or by the
    // server.
    let cut = "/*advisory:booking:<i…*/;SELECT pg_catalog.pg_advisory_lock(987654321987)";
    let held = holder(&db, "job", cut).await;
    let out = locks(&db, &[]).await.out;
    assert_has(&out, "cargo advisory key --find NUMBER");
    drop(held);
}
