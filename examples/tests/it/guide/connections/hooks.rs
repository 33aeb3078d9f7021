use advisory_runtime::Pool as _;
use advisory_tests::Database;
use diesel::sql_types::Text;
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, ManagerConfig, deadpool};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};

crate::guide::page!("connections", 7);

/// The same by a hook of the pool.
fn hooked(url: &str) -> deadpool::Pool<AsyncPgConnection> {
    let manager = AsyncDieselConnectionManager::new(url);
    let hook = deadpool::Hook::async_fn(|conn: &mut AsyncPgConnection, _| {
        Box::pin(async move {
            conn.batch_execute("SET search_path = app").await.unwrap();
            Ok(())
        })
    });
    deadpool::Pool::builder(manager)
        .post_create(hook)
        .build()
        .unwrap()
}

#[derive(diesel::QueryableByName)]
struct Shown {
    #[diesel(sql_type = Text)]
    search_path: String,
}

async fn shown(conn: &mut AsyncPgConnection) -> String {
    let shown = diesel::sql_query("SHOW search_path");
    shown.get_result::<Shown>(conn).await.unwrap().search_path
}

#[tokio::test]
async fn a_connection_outside_of_the_pool_has_what_the_manager_sets() {
    let db = Database::create().await;
    for (pool, dedicated) in [
        (pool(db.url()).unwrap(), "app"),
        (hooked(db.url()), "\"$user\", public"),
    ] {
        assert_eq!(shown(&mut pool.get().await.unwrap()).await, "app");
        assert_eq!(shown(&mut pool.dedicated().await.unwrap()).await, dedicated);
    }
}
