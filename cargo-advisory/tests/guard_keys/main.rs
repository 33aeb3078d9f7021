//! A trigger computes the key of a row as Rust renders and derives it. Each shape, filter and
//! derivation, on a server.
//!
//! A binary of its own, because `it` compares its own lock sites with a document.
#![expect(
    clippy::unwrap_used,
    reason = "the functions that tests share fail the test too"
)]

use std::process::Command;

use advisory_runtime::{Key, lock_key};
use advisory_tests::{BACKSLASH_ESCAPES, Database};
use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, Utc};
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use uuid::Uuid;

/// The start of the refusal.
const REFUSED: &str = "this session does not hold the advisory lock";

/// Runs the migration that the command prints.
async fn guard(db: &Database, words: &[&str]) {
    let printed = Command::new(env!("CARGO_BIN_EXE_cargo-advisory"))
        .args(["advisory", "migration", "require", "--table", "t"])
        .args(words)
        .output()
        .unwrap();
    assert!(printed.status.success(), "{printed:?}");
    db.run(&String::from_utf8(printed.stdout).unwrap()).await;
}

/// Guards a table with a column `v` of this type, and writes each value, which is refused without
/// the lock on its key, and accepted with it.
async fn agree(words: &[&str], column: &str, rows: &[(impl AsRef<str>, Key)]) {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    db.run(&format!("CREATE TABLE t (v {column})")).await;
    guard(&db, words).await;
    // Settings that must not affect the function.
    does(&mut conn, BACKSLASH_ESCAPES).await;
    does(
        &mut conn,
        "SET TimeZone = 'Asia/Kolkata'; SET DateStyle = 'German, DMY'; SET search_path = pg_temp, public",
    )
    .await;
    for (value, key) in rows {
        let value = value.as_ref();
        let insert = format!("INSERT INTO public.t VALUES ({value})");
        let refused = conn.batch_execute(&insert).await.expect_err(&insert);
        assert!(refused.to_string().starts_with(REFUSED), "{refused}");
        let Key::BigInt(key) = key else {
            panic!("a pair: {key}")
        };
        let locked = format!("BEGIN; SELECT pg_advisory_xact_lock({key}); {insert}; COMMIT");
        let accepted = conn.batch_execute(&locked).await;
        accepted.unwrap_or_else(|error| panic!("{words:?} {value}: {error}"));
    }
}

async fn does(conn: &mut AsyncPgConnection, sql: &str) {
    conn.batch_execute(sql).await.unwrap();
}

#[tokio::test]
async fn integers() {
    let key = |v: i64| lock_key!("int:<v: int>");
    let rows = [
        ("0", key(0)),
        ("-1", key(-1)),
        ("-9223372036854775808", key(i64::MIN)),
        ("9223372036854775807", key(i64::MAX)),
    ];
    agree(&["--key", "int:<v: int>"], "bigint", &rows).await;
    agree(&["--key", "int:<v: int>"], "smallint", &rows[..2]).await;
    let key = |v: u32| lock_key!("uint:<v: uint>");
    let rows = [("0", key(0)), ("2147483647", key(2_147_483_647))];
    agree(&["--key", "uint:<v: uint>"], "integer", &rows).await;
}

#[tokio::test]
async fn uuids_and_booleans() {
    let key = |v: Uuid| lock_key!("uuid:<v: uuid>");
    let rows = [
        ("'00000000-0000-0000-0000-000000000000'", key(Uuid::nil())),
        (
            "'67E5504410B1426F9247BB680E5FE0C8'",
            key(Uuid::from_u128(0x67e5_5044_10b1_426f_9247_bb68_0e5f_e0c8)),
        ),
    ];
    agree(&["--key", "uuid:<v: uuid>"], "uuid", &rows).await;
    let key = |v: bool| lock_key!("bool:<v: bool>");
    let rows = [("true", key(true)), ("false", key(false))];
    agree(&["--key", "bool:<v: bool>"], "boolean", &rows).await;
}

const DAYS: [(&str, i32, u32, u32); 9] = [
    ("2025-01-15", 2025, 1, 15),
    ("1999-12-31", 1999, 12, 31),
    ("0001-01-01", 1, 1, 1),
    ("9999-12-31", 9999, 12, 31),
    ("10000-01-01", 10_000, 1, 1),
    ("262142-02-28", 262_142, 2, 28),
    ("0001-02-29 BC", 0, 2, 29),
    ("0002-12-31 BC", -1, 12, 31),
    ("4713-01-01 BC", -4712, 1, 1),
];

fn day(year: i32, month: u32, day: u32) -> NaiveDate {
    NaiveDate::from_ymd_opt(year, month, day).unwrap()
}

#[tokio::test]
async fn days_of_every_year() {
    let key = |v: NaiveDate| lock_key!("date:<v: date>");
    let rows = DAYS.map(|(text, y, m, d)| (format!("date '{text}'"), key(day(y, m, d))));
    agree(&["--key", "date:<v: date>"], "date", &rows).await;
}

const TIMES: [&str; 5] = [
    "00:00:00",
    "09:30:00",
    "09:30:00.5",
    "23:59:59.999999",
    "12:00:00.000100",
];

fn time(text: &str) -> NaiveTime {
    text.parse().unwrap()
}

#[tokio::test]
async fn times_of_day() {
    let key = |v: NaiveTime| lock_key!("time:<v: time>");
    let rows = TIMES.map(|text| (format!("time '{text}'"), key(time(text))));
    agree(&["--key", "time:<v: time>"], "time", &rows).await;
}

#[tokio::test]
async fn moments_with_and_without_a_time_zone() {
    let mut moments = Vec::new();
    for (text, y, m, d) in DAYS {
        let (date, era) = text.split_once(' ').unwrap_or((text, ""));
        for clock in TIMES {
            let moment = day(y, m, d).and_time(time(clock));
            moments.push((format!("{date} {clock}"), era, moment));
        }
    }
    let key = |v: NaiveDateTime| lock_key!("datetime:<v: datetime>");
    let rows = moments
        .iter()
        .map(|(text, era, moment)| (format!("timestamp '{text} {era}'"), key(*moment)));
    let rows: Vec<_> = rows.collect();
    agree(&["--key", "datetime:<v: datetime>"], "timestamp", &rows).await;
    let key = |v: DateTime<Utc>| lock_key!("timestamp:<v: timestamp>");
    let rows = moments.iter().map(|(text, era, moment)| {
        let text = format!("timestamptz '{text}+00 {era}'");
        (text, key(moment.and_utc()))
    });
    let mut rows: Vec<_> = rows.collect();
    let moment = day(2025, 1, 15).and_time(time("20:00:00")).and_utc();
    let other_zone = "timestamptz '2025-01-16 01:30+05:30'".to_owned();
    rows.push((other_zone, key(moment)));
    agree(&["--key", "timestamp:<v: timestamp>"], "timestamptz", &rows).await;
}

/// Literals in which a backslash can be an escape.
const TEXTS: [(&str, &str); 7] = [
    ("''", ""),
    ("'a:b%'", "a:b%"),
    ("'%3A:%25'", "%3A:%25"),
    ("'it''s'", "it's"),
    ("E'\\\\ \\n\\t'", "\\ \n\t"),
    ("'  É A Ünal  '", "  É A Ünal  "),
    ("'日本 😀'", "日本 😀"),
];

#[tokio::test]
async fn texts_and_characters_are_escaped() {
    let key = |v: &str| lock_key!("text:<v>:it's \\ %");
    let rows = TEXTS.map(|(sql, text)| (sql, key(text)));
    agree(&["--key", "text:<v>:it's \\ %"], "text", &rows).await;
    agree(&["--key", "text:<v>:it's \\ %"], "varchar(20)", &rows).await;
    let key = |v: char| lock_key!("char:<v: char>");
    let rows = ["a", ":", "%", "é", " "].map(|text| {
        let letter = text.chars().next().unwrap();
        (format!("'{text}'"), key(letter))
    });
    agree(&["--key", "char:<v: char>"], "varchar", &rows).await;
}

/// Guards by this key, and writes every text.
async fn texts_agree(words: &[&str], key: impl Fn(&str) -> Key) {
    let words = [&["--key"], words].concat();
    agree(&words, "text", &TEXTS.map(|(sql, text)| (sql, key(text)))).await;
}

#[tokio::test]
async fn filters() {
    texts_agree(&["trim:<v|trim>"], |v| lock_key!("trim:<v|trim>")).await;
    texts_agree(&["lower:<v|lower>"], |v| lock_key!("lower:<v|lower>")).await;
    let both = |v: &str| lock_key!("both:<v|lower|trim>");
    texts_agree(&["both:<v|lower|trim>"], both).await;
    texts_agree(&["raw:<v|raw>"], |v| lock_key!("raw:<v|raw>")).await;
    let all = |v: &str| lock_key!("all:<v|raw|trim|lower>");
    texts_agree(&["all:<v|raw|trim|lower>"], all).await;
}

#[tokio::test]
async fn derivations() {
    let md5 = |v: &str| lock_key!("md5:<v>", derivation = "md5");
    texts_agree(&["md5:<v>", "--derivation", "md5"], md5).await;
    let hashtext = |v: &str| lock_key!("hashtext:<v>", derivation = "hashtext");
    texts_agree(&["hashtext:<v>", "--derivation", "hashtext"], hashtext).await;
    let extended = |v: &str| lock_key!("extended:<v>", derivation = "hashtextextended");
    let words = ["extended:<v>", "--derivation", "hashtextextended"];
    texts_agree(&words, extended).await;
}
