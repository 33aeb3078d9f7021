//! `check --database-url` says where a constraint could say a lock's rule, and where an index is
//! missing.

use advisory_pattern::Record;
use advisory_tests::Database;
use serde_json::Value;

use crate::guards::{BLOCKS, GUARD, check, guard};
use crate::programs::{assert_has, assert_has_all, assert_starts, keyed, program_of, run_at, site};

/// The advice on the guarded table. Its lock has the key `night:<room>:<night>`.
async fn advice(db: &Database, words: &[&str]) -> Option<(String, Vec<String>)> {
    let said = check(db, &[words, &["--format", "json"]].concat()).await;
    assert_eq!(said.code, Some(0), "advice is not a failure: {said:?}");
    let value: Value = serde_json::from_str(&said.out).unwrap();
    let findings = value["findings"].as_array().unwrap();
    let one = findings.first()?;
    assert_eq!(
        (findings.len(), &one["kind"]),
        (1, &"advice".into()),
        "{value:#}"
    );
    let notes = one["notes"].as_array().unwrap().iter();
    let notes = notes
        .map(|note| note.as_str().unwrap().to_owned())
        .collect();
    Some((one["message"].as_str().unwrap().to_owned(), notes))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_constraint_that_could_say_the_rule_is_advised() {
    let db = Database::create().await;
    db.run(&format!("{BLOCKS};{GUARD}")).await;
    let (message, notes) = advice(&db, &[]).await.unwrap();
    assert_starts(
        &message,
        "no index of `public.blocks` begins with a column of the advisory lock `room-night`",
    );
    assert_eq!(
        notes[1],
        "CREATE INDEX CONCURRENTLY ON public.blocks (room_id, night);"
    );
    db.run("ALTER TABLE blocks DISABLE TRIGGER ALL; INSERT INTO blocks VALUES (1, 1, '2026-11-22'), (1, 1, '2026-11-23'); \
            ALTER TABLE blocks ENABLE TRIGGER ALL").await;
    let (message, notes) = advice(&db, &[]).await.unwrap();
    assert_has(
        &message,
        "no two of the 2 rows of `public.blocks` have the same (room_id, night)",
    );
    // The statements do it: NULL differs from NULL.
    assert_eq!(
        notes,
        [
            "CREATE UNIQUE INDEX CONCURRENTLY ON public.blocks (room_id, night);",
            "it compares no rows with NULL in one of these columns:",
            "ALTER TABLE public.blocks ALTER COLUMN room_id SET NOT NULL;",
            "ALTER TABLE public.blocks ALTER COLUMN night SET NOT NULL;",
        ]
    );
    db.run(&notes[0]).await;
    let (_, rest) = advice(&db, &[]).await.unwrap();
    assert_eq!(rest, notes[1..], "the index alone is not the rule");
    for statement in &notes[2..] {
        db.run(statement).await;
    }
    let (message, _) = advice(&db, &[]).await.unwrap();
    assert_has(
        &message,
        "the unique index `blocks_room_id_night_idx` already allows one row",
    );
    let said = check(&db, &[]).await;
    for part in [
        "\nadvice: ",
        "ON CONFLICT DO NOTHING",
        "ok: nothing found but advice; ",
    ] {
        assert!(
            format!("\n{}", said.out).contains(part),
            "{part}: {}",
            said.out
        );
    }
    // Two rows of one key: the rule is another, and an index is there or not.
    db.run(
        "DROP INDEX blocks_room_id_night_idx; ALTER TABLE blocks DISABLE TRIGGER ALL; \
            INSERT INTO blocks VALUES (1, 2, '2026-11-22'); ALTER TABLE blocks ENABLE TRIGGER ALL",
    )
    .await;
    let (message, _) = advice(&db, &[]).await.unwrap();
    assert_starts(&message, "no index of");
    db.run("CREATE INDEX ON blocks (night, room_id)").await;
    assert_eq!(advice(&db, &[]).await, None);
    db.run("ALTER TABLE blocks ADD CONSTRAINT one_night EXCLUDE USING btree (room_id WITH =, night WITH =, other_room WITH =)").await;
    let (message, _) = advice(&db, &[]).await.unwrap();
    assert_has(
        &message,
        "the exclusion constraint `one_night` already says a rule",
    );
    // Next to a finding, advice is not counted.
    db.run("ALTER TABLE blocks DISABLE TRIGGER ALL").await;
    let said = check(&db, &[]).await.exits(1);
    assert_has_all(&said.out, &["\nadvice: ", "\nerror: 1 finding; "]);
}

/// The advice on a table `t` for a lock with these columns in its key.
async fn on_table(db: &Database, key: &str, reason: Option<&str>) -> Vec<Value> {
    let shaped = format!("pattern {}", key.replace('>', ": int>"));
    let site = Record {
        name: Some("own".to_owned()),
        guards: vec!["t".to_owned()],
        allow_redundant: reason.map(str::to_owned),
        ..site("svc", "run", 7, &[key], &[&shaped])
    };
    let program = program_of(&format!("advice-{}.rmeta", key.len()), &[site]);
    let words = ["check", "--database-url", db.url(), "--artifact", &program];
    let said = run_at(db.url(), &[&words[..], &["--format", "json"]].concat()).await;
    // The trigger is missing, which is a finding.
    assert_eq!(said.code, Some(1), "{said:?}");
    let value: Value = serde_json::from_str(&said.out).unwrap();
    let findings = value["findings"].as_array().unwrap().iter();
    let findings = findings.filter(|found| found["kind"] == "advice");
    findings.cloned().collect()
}

/// Checks that there is only one advice, with these parts in its message, notes or help.
#[track_caller]
fn has(found: &[Value], parts: &[&str]) {
    let [found] = found else {
        panic!("{found:#?}");
    };
    for part in parts {
        assert_has(&found.to_string(), part);
    }
}

/// Each line is a table with its rows, and what the advice says. Rows with NULL are not compared. A
/// unique constraint on one of the columns counts; an index that is not unique, or is on other
/// columns, does not. One row shows nothing. A partial index, or one that begins with another
/// column, does not help.
const CONSTRAINTS: &str = "\
(a int, b int, PRIMARY KEY (a, b)) => has one row for each key of the advisory lock `own` & FOR UPDATE
(a int NOT NULL, b int NOT NULL, UNIQUE (a, b)) => already allows one row & ON CONFLICT DO NOTHING & `allow_redundant
(a int NOT NULL, b int NOT NULL, UNIQUE (a, b) DEFERRABLE) => already allows one row & so `ON CONFLICT` is refused
(a int NOT NULL, b int, UNIQUE (a, b)) => could say the rule & ALTER TABLE public.t ALTER COLUMN b SET NOT NULL;
(a int, b int NOT NULL UNIQUE) => already allows one row for each (b)
(a int NOT NULL, b int NOT NULL, id serial PRIMARY KEY); CREATE INDEX ON t (a, b); CREATE INDEX ON t (a) => no two of the 2 rows & CREATE UNIQUE INDEX CONCURRENTLY ON public.t (a, b);
(a int NOT NULL, b int NOT NULL) < (1, 1) => no index of `public.t` begins with
(a int, b int, c int); CREATE INDEX ON t (a) WHERE c > 0; CREATE INDEX ON t (c, a) < (1, 1, 1), (1, 1, 2) => no index of `public.t` begins with & except for those with a WHERE & CREATE INDEX CONCURRENTLY ON public.t (a, b);
(a int NOT NULL, b int NOT NULL) PARTITION BY LIST (a); CREATE TABLE t_1 PARTITION OF t DEFAULT => no index of `public.t` begins with & CREATE INDEX ON public.t (a, b);";

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_constraint_is_answered_in_its_own_way() {
    let key = "t:<a>:<b>";
    for case in CONSTRAINTS.lines() {
        let (table, parts) = case.split_once(" => ").unwrap();
        let (table, rows) = table.split_once(" < ").unwrap_or((table, "(1, 1), (1, 2)"));
        let table = format!("CREATE TABLE t {table}; INSERT INTO t VALUES {rows}");
        let parts: Vec<&str> = parts.split(" & ").collect();
        let db = Database::create().await;
        db.run(&table).await;
        has(&on_table(&db, key, None).await, &parts);
        let needed = on_table(&db, key, Some("the sum over the week needs it")).await;
        assert!(needed.is_empty(), "{needed:#?}");
    }
    // No constraint of a table holds for its inheritance children.
    let db = Database::create().await;
    db.run("CREATE TABLE t (a int, b int, PRIMARY KEY (a, b)); CREATE TABLE child () INHERITS (t)")
        .await;
    assert!(on_table(&db, key, None).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exclusion_constraint_that_could_say_the_rule_is_advised() {
    let key = "stay:<room>";
    let db = Database::create().await;
    db.run(
        "CREATE TABLE t (room int, days daterange); CREATE INDEX ON t (room); \
         INSERT INTO t VALUES (1, '[2026-11-01,2026-11-10)'), (1, '[2026-11-10,2026-11-12)'), (2, '[2026-11-01,2026-11-30)'), (1, NULL)",
    )
    .await;
    let found = on_table(&db, key, None).await;
    has(
        &found,
        &[
            "an exclusion constraint could say the rule of the advisory lock `own`",
            "with the same (room) overlap in `days`",
        ],
    );
    let notes = found[0]["notes"].as_array().unwrap();
    let is_there = "SELECT count(*) FROM pg_available_extensions WHERE name = 'btree_gist'";
    if db.count(is_there).await == 1 {
        for statement in &notes[..2] {
            db.run(statement.as_str().unwrap()).await;
        }
        has(&on_table(&db, key, None).await, &["already says a rule"]);
        db.run("ALTER TABLE t DROP CONSTRAINT t_room_days_excl")
            .await;
    }
    let add = "ALTER TABLE public.t ADD EXCLUDE USING gist (room WITH =, days WITH &&);";
    assert_eq!(notes[1], add);
    let rest = [
        "it compares no rows with NULL in one of these columns:",
        "ALTER TABLE public.t ALTER COLUMN room SET NOT NULL;",
        "ALTER TABLE public.t ALTER COLUMN days SET NOT NULL;",
    ];
    assert_eq!(notes[2..], rest);
    // Not the neighbour in the order of the ends, but the first one overlaps the last.
    db.run("INSERT INTO t VALUES (3, '[2026-11-01,2026-11-30)'), (3, '[2026-11-02,2026-11-03)'), (3, '[2026-11-20,2026-11-21)')")
        .await;
    assert!(on_table(&db, key, None).await.is_empty());
    // No two rows of one key.
    db.run("DELETE FROM t WHERE room <> 2").await;
    assert!(on_table(&db, key, None).await.is_empty());
}

/// The server writes the expression with more parentheses, and with other spaces.
#[tokio::test(flavor = "multi_thread")]
async fn an_index_on_the_expression_of_a_column_is_found() {
    let db = Database::create().await;
    db.run("CREATE TABLE t (starts_at timestamp)").await;
    let key = "day:<date: date>";
    let words = ["--lock", "own", "--table", "t", "--key", key];
    guard(
        &db,
        &[&words[..], &["--column", "date=starts_at :: date"]].concat(),
    )
    .await;
    let site = Record {
        name: Some("own".to_owned()),
        guards: vec!["t".to_owned()],
        ..keyed("svc", "run", 7, key)
    };
    let program = program_of("advice-expression.rmeta", &[site]);
    let words = ["check", "--database-url", db.url(), "--artifact", &program];
    let create = "CREATE INDEX CONCURRENTLY ON public.t ((starts_at :: date));";
    assert_has(&run_at(db.url(), &words).await.exits(0).out, create);
    db.run(create).await;
    let said = run_at(db.url(), &words).await;
    assert_starts(&said.out, "ok: nothing found; ");
}
