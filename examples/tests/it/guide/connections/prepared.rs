use advisory_tests::{Bouncer, Database, left_out};
use diesel::QueryResult;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};

diesel::table! {
    meant (room) { room -> BigInt }
}

async fn book(conn: &mut AsyncPgConnection) -> QueryResult<usize> {
    let insert = diesel::insert_into(meant::table).values(meant::room.eq(7_i64));
    insert.execute(conn).await
}

/// Why the page says no to a pooler that does not track prepared statements.
#[tokio::test]
async fn an_untracked_statement_of_another_client_is_run_instead_of_ours() {
    let db = Database::create().await;
    db.run("CREATE TABLE meant (room int8); CREATE TABLE other (room int8)")
        .await;
    let mut settings = "pool_mode = transaction\ndefault_pool_size = 2".to_owned();
    if Bouncer::start_tracking(&db, &settings).await.is_ok() {
        settings += "\nmax_prepared_statements = 0";
    }
    let bouncer = match Bouncer::start(&db, &settings).await {
        Ok(bouncer) => bouncer,
        Err(why) => return left_out("pgbouncer", why),
    };
    let url = bouncer.url(&db);
    let connect = async || AsyncPgConnection::establish(&url).await.unwrap();
    let (mut client, mut first, mut second) = (connect().await, connect().await, connect().await);
    // The pool has two sessions: a client with an open transaction leaves the other to the rest.
    first.batch_execute("BEGIN; SELECT 1").await.unwrap();
    assert_eq!(book(&mut client).await, Ok(1));
    second.batch_execute("BEGIN; SELECT 1").await.unwrap();
    let name = "SELECT name FROM pg_prepared_statements WHERE statement LIKE 'INSERT%'";
    let name: String = sql::<Text>(name).get_result(&mut second).await.unwrap();
    // As a client of another process has done that has gone: there the names are the same.
    let prepare = format!("PREPARE \"{name}\" (int8) AS INSERT INTO other VALUES ($1)");
    first.batch_execute(&prepare).await.unwrap();
    first.batch_execute("COMMIT").await.unwrap();
    assert_eq!(book(&mut client).await, Ok(1));
    let booked = async |table| db.count(&format!("SELECT count(*) FROM {table}")).await;
    assert_eq!(booked("meant").await, 1, "the second booking is lost");
    assert_eq!(booked("other").await, 1);
    second.batch_execute("COMMIT").await.unwrap();
}
