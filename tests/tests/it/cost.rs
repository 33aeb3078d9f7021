//! Cost of a locked call: its exact round trips, and an upper bound of its allocations.

use advisory_runtime::advisory_lock;
use advisory_tests::{Database, Proxy, debug_checks_are_on};
use allocation_counter::{AllocationInfo, measure};
use diesel::QueryResult;
use diesel::sql_types::Integer;
use diesel_async::pooled_connection::{
    AsyncDieselConnectionManager, ManagerConfig, RecyclingMethod, deadpool,
};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};

diesel::define_sql_function! {
    fn abs(number: Integer) -> Integer;
}

/// A query that Diesel prepares once.
async fn query(conn: &mut AsyncPgConnection) -> QueryResult<i32> {
    diesel::select(abs(3)).get_result(conn).await
}

#[advisory_lock(key = "cost:<room>")]
async fn locked(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<i32> {
    _ = room;
    query(conn).await
}

#[advisory_lock(key = "cost-of-session:<room>", scope = "session")]
async fn locked_by_session(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<i32> {
    _ = room;
    query(conn).await
}

async fn by_hand(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<i32> {
    conn.transaction(async |conn| {
        diesel::sql_query("SELECT pg_advisory_xact_lock($1)")
            .bind::<diesel::sql_types::BigInt, _>(room)
            .execute(conn)
            .await?;
        query(conn).await
    })
    .await
}

#[derive(Clone, Copy, Debug)]
enum Way {
    Locked,
    LockedBySession,
    ByHand,
}

async fn call(way: Way, conn: &mut AsyncPgConnection, room: i64) {
    let answer = match way {
        Way::Locked => locked(conn, room).await,
        Way::LockedBySession => locked_by_session(conn, room).await,
        Way::ByHand => by_hand(conn, room).await,
    };
    assert_eq!(answer, Ok(3));
}

#[tokio::test]
async fn a_locked_call_with_a_cached_query_has_three_round_trips() {
    let db = Database::create().await;
    let proxy = Proxy::start(&db).await;
    for (way, round_trips) in [
        (Way::Locked, 3),
        (Way::LockedBySession, 3),
        (Way::ByHand, 5),
    ] {
        let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
        for room in 0..5 {
            proxy.reset();
            call(way, &mut conn, room).await;
            if room > 0 {
                assert_eq!(
                    proxy.round_trips(),
                    round_trips,
                    "{way:?} {:#?}",
                    proxy.queries()
                );
            }
        }
    }
}

/// A pool checks each connection before it hands it out, unless configured otherwise; a begin
/// detects a closed connection by itself.
#[tokio::test]
async fn a_locked_call_can_skip_the_pools_check() {
    let db = Database::create().await;
    let proxy = Proxy::start(&db).await;
    for (recycling_method, round_trips) in
        [(RecyclingMethod::Verified, 4), (RecyclingMethod::Fast, 3)]
    {
        let mut config = ManagerConfig::default();
        config.recycling_method = recycling_method;
        let manager = AsyncDieselConnectionManager::new_with_config(proxy.url(), config);
        let pool = deadpool::Pool::builder(manager)
            .max_size(1)
            .build()
            .unwrap();
        for room in 0..5 {
            proxy.reset();
            call(Way::Locked, &mut pool.get().await.unwrap(), room).await;
            if room > 1 {
                assert_eq!(proxy.round_trips(), round_trips, "{:#?}", proxy.queries());
            }
        }
    }
}

/// The allocations of one call, including those of the connection's own task: the runtime has only
/// this thread.
fn allocations(way: Way) -> AllocationInfo {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (_db, mut conn) = runtime.block_on(async {
        let db = Database::create().await;
        let mut conn = db.connect().await;
        for room in 0..5 {
            call(way, &mut conn, room).await;
        }
        (db, conn)
    });
    let least = (5..15).map(|room| measure(|| runtime.block_on(call(way, &mut conn, room))));
    least.min_by_key(|one| one.count_total).unwrap()
}

/// A limit, not the exact number of a release, so that increases are noticed. The checks of debug
/// builds have messages of their own.
#[test]
fn a_locked_call_allocates_less_than_one_by_hand() {
    if debug_checks_are_on() {
        return;
    }
    let by_hand = allocations(Way::ByHand).count_total;
    for (way, most) in [(Way::Locked, 64), (Way::LockedBySession, 64)] {
        let allocated = allocations(way).count_total;
        assert!(
            allocated <= most && allocated < by_hand,
            "{way:?}: {allocated} allocations of at most {most}, {by_hand} by hand"
        );
    }
}

/// A call with `pool = …` rebuilds its table: the statements and the holder's name belong to the
/// process, and only what is known of its server is its own.
#[test]
fn a_calls_table_of_leases_is_one_allocation() {
    drop(advisory_runtime::lease::Table::new());
    let again = measure(|| drop(advisory_runtime::lease::Table::new()));
    assert_eq!(again.count_total, 1);
}
