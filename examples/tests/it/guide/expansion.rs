use advisory_runtime::advisory_lock;
use advisory_tests::{Database, Proxy};
use diesel::QueryResult;
use diesel_async::{AsyncConnection, AsyncPgConnection};

const PAGE: &str = include_str!("../../../../advisory-runtime/docs/expansion.md");

#[advisory_lock(key = "room:<room>", name = "room")]
async fn book(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<bool> {
    Ok(true)
}

#[tokio::test]
async fn a_nested_call_sends_what_the_table_says() {
    let db = Database::create().await;
    let proxy = Proxy::start(&db).await;
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    let booked = conn.transaction(async |conn| book(conn, 7).await);
    booked.await.unwrap();
    let sent = proxy.queries();
    let mut rows = PAGE
        .lines()
        .filter(|line| line.starts_with("| inside a transaction |"));
    let row = rows.next().expect("it has a row");
    let shown: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
    let [begin, end] = shown[..] else {
        panic!("two messages, and not {shown:?}")
    };
    let (savepoint, _) = begin.split_once('…').expect("the lock is left out");
    let is_begin = |sent: &String| sent.contains(&format!("*/;{savepoint}"));
    assert!(sent.iter().any(is_begin), "{savepoint}: {sent:#?}");
    assert!(sent.iter().any(|sent| sent == end), "{end}: {sent:#?}");
}
