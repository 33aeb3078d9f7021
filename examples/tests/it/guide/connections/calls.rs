use advisory_runtime::lease::{self, Error};
use advisory_runtime::{Pool as _, advisory_lease};
use advisory_tests::Database;
use diesel_async::{AsyncPgConnection, pooled_connection::bb8::Pool};

crate::guide::page!("connections", 9);

/// It uses the only connection of the callers' pool.
struct Bank {
    pool: Pool<AsyncPgConnection>,
}

impl Bank {
    async fn pay(&self, id: i64) -> Result<(), Error> {
        drop(self.pool.connection().await?);
        Ok(())
    }
}

#[tokio::test]
async fn no_connection_is_held_while_the_bank_answers() {
    let db = Database::create().await;
    lease::Table::new()
        .set_up(&mut db.connect().await)
        .await
        .unwrap();
    let pool = db.bb8(1).await;
    let bank = Bank { pool: pool.clone() };
    Payouts { pool, bank }.pay_out(7).await.unwrap();
}
