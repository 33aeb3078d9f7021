//! The trigger of `cargo advisory migration require` refuses writes without the lock, and only
//! those.

use crate::guards::{REFUSED, guard, require};
use advisory_tests::Database;
use advisory_tests::futures::spawn_blocking;
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};

use crate::programs::{assert_has, assert_starts, booking_service, cases};

const SLOT: [&str; 3] = [
    "--key=slot:<room: int>:<night: date>",
    "--lock=booking-slot",
    "--table=bookings",
];

async fn bookings(words: &[&str]) -> (Database, AsyncPgConnection) {
    let db = Database::create().await;
    db.run("CREATE TABLE bookings (id int PRIMARY KEY, room int, night date, guest text)")
        .await;
    guard(&db, words).await;
    let conn = db.connect().await;
    (db, conn)
}

/// Takes the locks of some slots and runs a statement, in a transaction.
async fn with(conn: &mut AsyncPgConnection, slots: &[&str], sql: &str) -> Result<(), String> {
    let mut batch = "BEGIN;".to_owned();
    for slot in slots {
        let key = advisory_pattern::Derivation::Sha256.key(slot);
        batch = format!("{batch}SELECT pg_advisory_xact_lock({key});");
    }
    let done = conn.batch_execute(&format!("{batch}{sql};COMMIT")).await;
    if let Err(error) = done {
        conn.batch_execute("ROLLBACK").await.unwrap();
        return Err(error.to_string());
    }
    Ok(())
}

fn is_refused(outcome: Result<(), String>) -> bool {
    match outcome {
        Ok(()) => false,
        Err(error) => {
            assert_starts(&error, REFUSED);
            true
        }
    }
}

const HERE: &str = "slot:7:2027-06-01";
const THERE: &str = "slot:7:2027-06-02";
const INSERT: &str = "INSERT INTO bookings VALUES (1, 7, '2027-06-01', 'Ada')";

#[tokio::test]
async fn the_example_has_the_migration_that_the_command_prints() {
    let words = ["--lock", "booking-slot", "--table", "bookings", "--key"];
    let said = require(&[&words[..], &["<tenant_id: uuid>:<date: date>"]].concat()).await;
    let up = include_str!("../../../examples/guarded_table/up.sql");
    assert_eq!(said.out, up);
}

#[tokio::test]
async fn each_write_needs_the_lock_of_the_row_as_it_was_and_as_it_is() {
    let (_db, mut conn) = bookings(&SLOT).await;
    assert!(is_refused(with(&mut conn, &[], INSERT).await));
    assert!(is_refused(with(&mut conn, &[THERE], INSERT).await));
    assert!(!is_refused(with(&mut conn, &[HERE], INSERT).await));
    let rename = "UPDATE bookings SET guest = 'Grace'";
    assert!(is_refused(with(&mut conn, &[THERE], rename).await));
    assert!(!is_refused(with(&mut conn, &[HERE], rename).await));
    let move_on = "UPDATE bookings SET night = '2027-06-02'";
    assert!(is_refused(with(&mut conn, &[HERE], move_on).await));
    assert!(is_refused(with(&mut conn, &[THERE], move_on).await));
    assert!(!is_refused(with(&mut conn, &[HERE, THERE], move_on).await));
    let delete = "DELETE FROM bookings";
    assert!(is_refused(with(&mut conn, &[HERE], delete).await));
    assert!(!is_refused(with(&mut conn, &[THERE], delete).await));
}

#[tokio::test]
async fn a_shared_lock_and_a_lock_of_another_session_do_not_let_write() {
    let (db, mut conn) = bookings(&SLOT).await;
    let key = advisory_pattern::Derivation::Sha256.key(HERE);
    let shared = format!("SELECT pg_advisory_xact_lock_shared({key});{INSERT}");
    assert!(is_refused(with(&mut conn, &[], &shared).await));
    let mut other = db.connect().await;
    other
        .batch_execute(&format!("SELECT pg_advisory_lock({key})"))
        .await
        .unwrap();
    assert!(is_refused(with(&mut conn, &[], INSERT).await));
    assert!(
        !is_refused(with(&mut other, &[], INSERT).await),
        "session-level"
    );
}

#[tokio::test]
async fn a_row_without_a_key_is_refused_but_an_old_one_can_be_fixed() {
    let (db, mut conn) = bookings(&SLOT).await;
    let null = "INSERT INTO bookings VALUES (1, 7, NULL, 'Ada')";
    let error = with(&mut conn, &[HERE], null).await.unwrap_err();
    assert_eq!(
        error,
        "a column of the key of the advisory lock \"booking-slot\" is NULL"
    );
    db.run(&format!("SET session_replication_role = replica; {null}"))
        .await;
    let repair = "UPDATE bookings SET night = '2027-06-01'";
    assert!(!is_refused(with(&mut conn, &[HERE], repair).await));
}

#[tokio::test]
async fn a_lock_of_the_whole_table_is_asked_for_once_a_statement() {
    for (key, sql) in [
        (
            "the-register",
            advisory_pattern::Derivation::Sha256
                .key("the-register")
                .to_string(),
        ),
        (
            "<<",
            advisory_pattern::Derivation::Sha256.key("<").to_string(),
        ),
    ] {
        let (_db, mut conn) = bookings(&["--key", key, "--table", "bookings"]).await;
        let many = "INSERT INTO bookings SELECT g FROM generate_series(1, 20000) AS g";
        assert!(is_refused(with(&mut conn, &[], many).await));
        assert!(is_refused(with(&mut conn, &[], "TRUNCATE bookings").await));
        let lock = format!("SELECT pg_advisory_xact_lock({sql})");
        assert!(!is_refused(
            with(&mut conn, &[], &format!("{lock};{many}")).await
        ));
        assert!(!is_refused(
            with(&mut conn, &[], &format!("{lock};TRUNCATE bookings")).await
        ));
    }
}

#[tokio::test]
async fn an_expression_can_replace_a_column_but_not_change_its_type() {
    let db = Database::create().await;
    db.run("CREATE TABLE visits (room int, starts_at timestamp, \"Guest\" text)")
        .await;
    let key = [
        "--table",
        "visits",
        "--key",
        "slot:<room: int>:<visit.night: date>",
    ];
    // An expression is a value of its own: without parentheses, `room + 1::text` has no operator.
    let column = ["--column", "visit.night=starts_at::date", "--column"];
    let column = [&column[..], &["room=room + 1"]].concat();
    let wrong = ["--column", "visit.night=starts_at"];
    let mut conn = db.connect().await;
    let said = require(&[&key[..], &wrong].concat()).await;
    let error = conn.batch_execute(&said.out).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the column of the placeholder <visit.night> has the type timestamp without time zone, and the key needs date"
    );
    guard(&db, &[&key[..], &column].concat()).await;
    let insert = "INSERT INTO visits VALUES (6, '2027-06-01 23:59')";
    assert!(is_refused(with(&mut conn, &[THERE], insert).await));
    assert!(!is_refused(with(&mut conn, &[HERE], insert).await));
}

#[tokio::test]
async fn down_leaves_the_table_as_it_was() {
    let (db, mut conn) = bookings(&SLOT).await;
    let down = require(&[&SLOT[..], &["--down"]].concat()).await.out;
    db.run(&down).await;
    assert!(!is_refused(with(&mut conn, &[], INSERT).await));
    let functions = "SELECT count(*) FROM pg_proc WHERE proname LIKE 'advisory%'";
    assert_eq!(db.count(functions).await, 0);
}

/// A role that may write the table and nothing else.
#[tokio::test]
async fn a_writer_needs_only_the_tables_rights_on_any_search_path() {
    let (_db, mut conn) = bookings(&SLOT).await;
    let key = advisory_pattern::Derivation::Sha256.key(HERE);
    // A role belongs to the whole server, so it is created in a transaction that is rolled back.
    let role = format!(
        "BEGIN; CREATE ROLE advisory_writer; GRANT INSERT ON bookings TO advisory_writer; \
         CREATE FUNCTION public.pg_lock_status() RETURNS SETOF pg_locks LANGUAGE sql AS 'SELECT * FROM pg_locks LIMIT 0'; \
         SET LOCAL search_path = public, pg_catalog; \
         SET LOCAL ROLE advisory_writer; SELECT pg_advisory_xact_lock({key}); {INSERT}; ROLLBACK"
    );
    conn.batch_execute(&role).await.unwrap();
}

/// The application's crates are linked into this program: see `application`.
#[tokio::test]
async fn the_lock_is_found_in_the_program_by_its_name_or_type() {
    let program = std::env::current_exe().unwrap();
    let words = ["--table", "blocks", "--column", "room=room_id"];
    let words = [&words[..], &["--artifact", program.to_str().unwrap()]].concat();
    for name in ["room-night", "RoomNight", "lets_domain::locks::RoomNight"] {
        let found = require(&[&words[..], &["--lock", name]].concat()).await;
        assert_eq!(found.code, Some(0), "{}", found.err);
        let mut lines = found.out.lines();
        let mark = lines.find(|line| line.starts_with("-- advisory guard 1: "));
        let written = "-- advisory guard 1: sha256 pattern night:<room: int>:<night: date>";
        assert_eq!(mark, Some(written));
        assert_eq!(lines.next(), Some("-- lock: room-night"));
        assert_eq!(lines.next(), Some("-- column: room=room_id"));
        assert_has(&found.out, "advisory lock 'room-night' ");
    }
    let missing = require(&[&words[..], &["--lock", "room-nights"]].concat())
        .await
        .exits(2);
    let hint = "no lock site has the name `room-nights`; did you mean `room-night`?";
    assert_has(&missing.err, hint);
}

#[tokio::test]
async fn a_fixed_number_of_the_program_guards_a_table() {
    let artifact = spawn_blocking(booking_service).await.unwrap();
    let words = ["--lock", "idempotency-cleanup", "--artifact", &artifact];
    let (_db, mut conn) = bookings(&[&words[..], &["--table", "bookings"]].concat()).await;
    assert!(is_refused(with(&mut conn, &[], INSERT).await));
    let locked = format!("SELECT pg_advisory_xact_lock(42424242);{INSERT}");
    assert!(!is_refused(with(&mut conn, &[], &locked).await));
    let derived = ["--table", "bookings", "--artifact", &artifact];
    let said = require(&[&derived[..], &["--lock", "create"]].concat()).await;
    assert_has(&said.err, "derivation `fnv1a32`");
}

#[tokio::test]
async fn what_sql_cannot_compute_is_refused_by_name() {
    // The words of a case are between `#`.
    let table = "\
--key#a:<v|display> | placeholder `<v>`: SQL cannot compute the filter `display`
--key#a:<v>#--derivation#fnv1a32 | SQL has no function for the derivation `fnv1a32`
--key#a:<v>#--column#w=v | `--column w=…`: the key has no such placeholder; it has `v`
--key#a:<v>#--column#v=1; DROP TABLE t | `--column v=1; DROP TABLE t` is not an expression
--key#a:<v>#--column#v=  | is not an expression
--key#a:<v>#--column#v=a\u{7}b | is not an expression
--key#a:<v>#--column#v=a -- b | is not an expression
--key#a:<v>#--column#v=a /* b | is not an expression
--key#a:<v>#--column#v=$advisory$ | is not an expression
--key#a:<v | `--key a:<v`:
--down | no lock: use";
    for [line, why] in cases(table) {
        let words: Vec<&str> = line.split('#').collect();
        let said = require(&[&["--table", "t"], &words[..]].concat())
            .await
            .exits(2);
        assert_has(&said.err, why);
    }
    let said = require(&["--key", "a:<v>", "--table", "a b$c"]).await;
    assert_has(&said.err, "is not a table");
}
