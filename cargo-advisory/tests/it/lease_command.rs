//! `cargo advisory lease`: what is held and overdue, and a key that is freed for good.

use advisory_tests::futures::spawn_blocking;
use std::time::Duration;

use advisory_pattern::Record;
use advisory_runtime::lease::{Error, Request, Table};
use advisory_tests::Database;
use advisory_tests::leases::{leases_at, once, orphan};
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use serde_json::Value;

use crate::live_view::locks;
use crate::programs::{Said, hex, leased, program_of, run, run_at, words};

async fn lease(db: &Database, line: &str) -> Said {
    run_at(db.url(), &words(&format!("lease {line}"))).await
}

/// A database with the lease table, which a process that is dead by now has used.
async fn database() -> (Database, Table, AsyncPgConnection) {
    let db = Database::create().await;
    let table = Table::new().held_by("svc:14365@vm").unwrap();
    let mut conn = db.connect().await;
    table.set_up(&mut conn).await.unwrap();
    (db, table, conn)
}

fn request(key: &str) -> Request {
    Request::rendered("webhook:<id>", key.to_owned())
}

fn has(said: &Said, code: i32, parts: &[&str]) {
    assert_eq!(said.code, Some(code), "{said:?}");
    for part in parts {
        let is_said = said.out.contains(part) || said.err.contains(part);
        assert!(is_said, "{part}: {said:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_not_renewed_is_overdue() {
    let (db, table, _) = database().await;
    orphan(db.url(), &table, request("webhook:1")).await;
    let program = program_of(
        "lease-overdue.rmeta",
        &[Record {
            ttl: Some("60s".to_owned()),
            ..leased("hook", "webhook:<id: uint>")
        }],
    );
    let artifact = ["--artifact", &program];
    for of_lease in [true, false] {
        let shown = async |words: &[&str]| {
            if of_lease {
                lease(&db, &format!("list {}", words.join(" "))).await
            } else {
                locks(&db, words).await
            }
        };
        db.run("UPDATE public.advisory_lease SET expires_at = clock_timestamp() + interval '59 s'")
            .await;
        has(&shown(&artifact).await, 0, &[" held ", "s ago "]);
        assert!(!shown(&artifact).await.out.contains("overdue"));
        // Without the program the ttl is not known.
        assert!(!shown(&[]).await.out.contains(" ago "));
        db.run("UPDATE public.advisory_lease SET expires_at = clock_timestamp() + interval '10 s'")
            .await;
        let frees = "cargo advisory lease release ";
        let said = shown(&artifact).await;
        has(
            &said,
            0,
            &[" overdue ", " 50s ago ", "not renewed in time", frees],
        );
    }
    let said = lease(&db, &format!("list --format json --artifact {program}")).await;
    let value: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(value["leases"][0]["is_overdue"], true, "{value}");
    assert!(value["leases"][0]["renewed_ms_ago"].as_u64().unwrap() >= 50_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_released_lease_refuses_the_old_holders_write() {
    let (db, table, mut conn) = database().await;
    let old = orphan(db.url(), &table, request("webhook:42")).await;
    let asked = lease(&db, "release webhook:42").await;
    has(
        &asked,
        2,
        &[
            "webhook:<id>",
            "held by svc:14365@vm for ",
            "loses the lease",
            "write `--yes`",
        ],
    );
    assert!(leases_at(db.url(), 1).holds(&old).await.unwrap());

    let said = lease(&db, "release webhook:42 --yes").await;

    has(&said, 0, &["The key is free."]);
    let late = conn.transaction(async |conn| old.fence(conn).await).await;
    assert!(matches!(late, Err(Error::Lost { .. })), "{late:?}");
    assert!(!leases_at(db.url(), 1).holds(&old).await.unwrap());
    let next = orphan(db.url(), &table, request("webhook:42")).await;
    assert!(next.token() > old.token());
    let said = lease(&db, "release webhook:43 -y").await;
    has(&said, 1, &["nobody holds a lease on `webhook:43`"]);
    // The screens show the start of the hash, since the table does not have the text.
    let list = lease(&db, "list").await.out;
    let hash = list.lines().nth(1).unwrap().split(' ').next().unwrap();
    let said = lease(&db, &format!("resign {hash} -y")).await;
    has(&said, 0, &["The term has ended."]);
    assert!(!leases_at(db.url(), 1).holds(&next).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fenced_write_ends_before_its_lease_does() {
    let (db, table, mut conn) = database().await;
    db.run("CREATE TABLE paid (id int)").await;
    let old = orphan(db.url(), &table, request("webhook:42")).await;
    let url = db.url().to_owned();
    conn.transaction(async |conn| {
        old.fence(conn).await?;
        let freeing = spawn_blocking(move || {
            run(
                &["lease", "release", "webhook:42", "-y"],
                &[("DATABASE_URL", &url)],
            )
        });
        let none = "SELECT 'none' WHERE NOT EXISTS (SELECT FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid) \
                    WHERE NOT l.granted AND a.datname = current_database())";
        db.until_empty(Duration::from_secs(30), "a wait for the fence", none)
            .await;
        conn.batch_execute("INSERT INTO paid VALUES (42)")
            .await
            .unwrap();
        Ok::<_, Error>(freeing)
    })
    .await
    .unwrap()
    .await
    .map(|said| has(&said, 0, &["The key is free."]))
    .unwrap();
    assert_eq!(db.count("SELECT count(*) FROM paid").await, 1);
    assert!(!leases_at(db.url(), 1).holds(&old).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_done_key_runs_again_after_its_release() {
    let (db, table, _) = database().await;
    let leases = leases_at(db.url(), 1).table(table);
    let kept = request("webhook:42").keep(Duration::from_secs(86_400));
    let done = once(&leases, kept).await.unwrap();
    let again = once(&leases, request("webhook:42")).await;
    assert!(matches!(again, Err(Error::Done { .. })), "{again:?}");
    let said = locks(&db, &[]).await;
    has(&said, 0, &[" done ", "cargo advisory lease release KEY"]);
    let resigned = lease(&db, "resign webhook:42 -y").await;
    has(&resigned, 1, &["done by svc:14365@vm", "Nobody holds it"]);
    let said = lease(&db, "release webhook:42 -y").await;
    has(&said, 0, &["runs the work again", "The key is free."]);
    let again = once(&leases, request("webhook:42")).await;
    assert!(again.unwrap() > done);
}

/// Keys that are done can be millions.
#[tokio::test(flavor = "multi_thread")]
async fn a_hash_is_found_without_a_scan_of_the_table() {
    let (db, table, _) = database().await;
    orphan(db.url(), &table, request("webhook:7")).await;
    db.run(
        "INSERT INTO public.advisory_lease (key_hash, token, grant_id, holder, is_kept, acquired_at, expires_at) \
         SELECT sha256(convert_to('done:' || id, 'UTF8')), id, id, 'a worker', true, now(), now() + interval '1 hour' \
         FROM generate_series(1, 20000) AS id; ANALYZE public.advisory_lease",
    )
    .await;
    let reads = |column: &str| {
        format!("SELECT {column} FROM pg_stat_user_tables WHERE relname = 'advisory_lease'")
    };
    let scans = db.count(&reads("seq_scan")).await;
    let hash = hex(&advisory_pattern::sha256("webhook:7")[..6]);
    let said = lease(&db, &format!("release {hash} --yes")).await;
    has(&said, 0, &["The key is free."]);
    assert_eq!(db.count(&reads("seq_scan")).await, scans);
    let said = lease(&db, "release webhook:none --yes").await;
    has(&said, 1, &["nobody holds a lease"]);
    // Six digits are the start of more than one hash of these.
    let first = |id: u32| advisory_pattern::sha256(&format!("done:{id}"))[..3].to_vec();
    let mut starts: Vec<Vec<u8>> = (1..=20_000).map(first).collect();
    starts.sort_unstable();
    let twice = starts.windows(2).find(|pair| pair[0] == pair[1]).unwrap();
    let digits = hex(&twice[0]);
    let said = lease(&db, &format!("release {digits} --yes")).await;
    has(
        &said,
        2,
        &["is the start of several hashes: write more of it"],
    );
}
