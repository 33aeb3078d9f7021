//! Claims on rows of any table: a key of several columns, and names of any form.

use advisory_runtime::claim::{self, Claim, State};
use advisory_tests::{Database, claims};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};

diesel::table! {
    sync_checkpoints (matrix_id, chunk_hash) {
        matrix_id -> BigInt,
        chunk_hash -> Text,
        row_count -> Nullable<BigInt>,
        last_synced_at -> Nullable<Timestamptz>,
        locked_until -> Nullable<Timestamptz>,
        locked_by -> Nullable<Text>,
    }
}

#[derive(Debug, Queryable, Selectable, Claim)]
#[diesel(table_name = sync_checkpoints)]
#[claim(key = (matrix_id, chunk_hash), ttl = "2m", renew = "30s")]
struct Checkpoint {
    matrix_id: i64,
    chunk_hash: String,
    row_count: Option<i64>,
}

#[derive(AsChangeset)]
#[diesel(table_name = sync_checkpoints)]
struct Found {
    row_count: Option<i64>,
}

#[tokio::test]
async fn a_checkpoint_is_claimed_by_its_whole_key_and_updated() {
    let db = Database::create().await;
    db.run(
        "CREATE TABLE sync_checkpoints (matrix_id int8 NOT NULL, chunk_hash text NOT NULL, row_count int8, \
             last_synced_at timestamptz, locked_until timestamptz, locked_by text, PRIMARY KEY (matrix_id, chunk_hash)); \
         INSERT INTO sync_checkpoints VALUES (1, 'a'), (2, 'a'), (2, 'b')",
    )
    .await;
    let mut conn = db.connect().await;
    let take = async |conn: &mut AsyncPgConnection, matrix: i64, chunk: &str| {
        claims::by_key::<Checkpoint>(conn, (matrix, chunk)).await
    };
    let one = take(&mut conn, 1, "a").await.unwrap();
    assert_eq!((one.matrix_id, &*one.chunk_hash), (1, "a"));
    assert!(take(&mut conn, 1, "a").await.is_none(), "held");
    assert!(take(&mut conn, 3, "a").await.is_none(), "there is none");
    let other = take(&mut conn, 2, "a").await.unwrap();
    claim::renew(&mut conn, &one).await.unwrap();

    let found = (
        sync_checkpoints::row_count.eq(7),
        sync_checkpoints::last_synced_at.eq(claim::now()),
    );
    let end = claim::end(&one).set(found);
    end.complete(&mut conn).await.unwrap();
    let done = "SELECT count(*) FROM sync_checkpoints WHERE (matrix_id, chunk_hash, row_count) = (1, 'a', 7) \
         AND last_synced_at > clock_timestamp() - interval '1 minute' AND locked_until IS NULL AND locked_by IS NULL";
    assert_eq!(db.count(done).await, 1);
    let held =
        "SELECT count(*) FROM sync_checkpoints WHERE locked_by IS NOT NULL AND row_count IS NULL";
    assert_eq!(db.count(held).await, 1, "the same chunk of another matrix");

    let again = take(&mut conn, 1, "a").await.unwrap();
    assert_eq!(again.row_count, Some(7));
    for (job, row_count) in [(&again, None), (&other, Some(9))] {
        let end = claim::end(job).set(Found { row_count });
        end.complete(&mut conn).await.unwrap();
    }
    let counts = "SELECT sum(row_count)::int8 FROM sync_checkpoints";
    assert_eq!(db.count(counts).await, 16);
    assert!(claim::indexes::<Checkpoint>().is_empty(), "its key's does");
    let mut left = Vec::new();
    while let Some(one) = claims::first::<Checkpoint>(&mut conn).await {
        left.push((one.matrix_id, one.chunk_hash.clone()));
    }
    let all = [(1, "a"), (2, "a"), (2, "b")].map(|(matrix, chunk)| (matrix, chunk.to_owned()));
    assert_eq!(left, all, "in the order of the key");
}

mod schema {
    diesel::table! {
        /// Names that need quotes, in a schema of its own.
        #[sql_name = "Out\"box"]
        work.outbox (reference) {
            #[sql_name = "Ref"]
            reference -> Text,
            due -> Nullable<Timestamptz>,
            #[sql_name = "taken until"]
            taken_until -> Nullable<Timestamptz>,
            taken_by -> Nullable<Text>,
            sent_at -> Nullable<Timestamptz>,
            completed_at -> Nullable<Text>,
        }
    }
}

/// Its only terminal column is `sent_at`: the table's `completed_at` has another meaning.
#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = schema::outbox)]
#[claim(
    key = reference,
    order = "due desc nulls last, reference",
    locked_until = taken_until,
    locked_by = taken_by,
    completed_at = sent_at
)]
struct Letter {
    #[diesel(column_name = reference)]
    address: String,
}

#[tokio::test]
async fn columns_and_tables_can_have_any_names() {
    let db = Database::create().await;
    db.run(
        "CREATE SCHEMA work; CREATE TABLE work.\"Out\"\"box\" (\"Ref\" text PRIMARY KEY, due timestamptz, \
             \"taken until\" timestamptz, taken_by text, sent_at timestamptz, completed_at text); \
         INSERT INTO work.\"Out\"\"box\" VALUES ('never', NULL), ('old', '2020-01-01'), ('new', '2021-01-01'), ('no'' -- \"', '2022-01-01')",
    )
    .await;
    let index = r#"CREATE INDEX IF NOT EXISTS "Out""box_claim_d5c2b5c9" ON "work"."Out""box" ("due" DESC NULLS LAST, "Ref") WHERE "sent_at" IS NULL;"#;
    let indexes = claim::indexes::<Letter>();
    assert_eq!(indexes, [index]);
    db.run(&indexes[0]).await;
    let mut conn = db.connect().await;
    let mut seen = Vec::new();
    while let Some(letter) = claims::first::<Letter>(&mut conn).await {
        claim::renew(&mut conn, &letter).await.unwrap();
        assert_eq!(letter.ttl().as_secs(), 60);
        claim::complete(&mut conn, &letter).await.unwrap();
        seen.push(letter.address.clone());
    }
    assert_eq!(seen, ["no' -- \"", "new", "old", "never"]);
    let taken = claims::by_key::<Letter>(&mut conn, "old").await;
    assert!(taken.is_none(), "sent");
    let states: Vec<State> = schema::outbox::table
        .select(claim::state::<Letter>())
        .load(&mut conn)
        .await
        .unwrap();
    assert_eq!(states, [State::Completed; 4]);
}
