//! A database with a house, and queries for tests.

use advisory_tests::Database;
use chrono::{Days, NaiveDate};
use diesel::prelude::*;
use diesel_async::AsyncPgConnection;
use lets_domain::{
    AccountId, Cents, GuestId, NewStay, Nights, OwnerId, PropertyId, RoomId, TenantId,
};
use lets_server::services::Desk;
use lets_server::services::desk::Payer;
use lets_server::{bookings, payments, store};
use uuid::Uuid;

pub(crate) struct Lets {
    pub(crate) db: Database,
    pub(crate) pool: store::Pool,
    pub(crate) tenant: TenantId,
    pub(crate) property: PropertyId,
    pub(crate) room: RoomId,
    pub(crate) guest: GuestId,
    pub(crate) payer: Payer,
    pub(crate) till: AccountId,
}

impl Lets {
    /// One house with one room, one guest with a balance of a thousand.
    pub(crate) async fn new() -> Self {
        let db = Database::create().await;
        let pool = db.deadpool(8);
        assert!(store::migrate::migrate(&pool).await.unwrap());
        let mut conn = pool.get().await.unwrap();
        let (tenant, property) = (TenantId(Uuid::new_v4()), PropertyId(Uuid::new_v4()));
        bookings::rooms::add_property(&mut conn, property, OwnerId(1), "Harbour")
            .await
            .unwrap();
        let (room, _) = bookings::rooms::add(&mut conn, property, 2).await.unwrap();
        let guests = bookings::guests::Guests { pool: pool.clone() };
        let guest = guests.register("Ada", "ada@example.org").await.unwrap();
        let (payer, till) = (AccountId(1), AccountId(2));
        for account in [payer, till] {
            payments::accounts::open(&mut conn, account, "somebody")
                .await
                .unwrap();
        }
        payments::accounts::pay_in(&mut conn, payer, Cents(100_000), "cash")
            .await
            .unwrap();
        drop(conn);
        Self {
            db,
            pool,
            tenant,
            property,
            room,
            guest,
            payer: Payer {
                account: payer,
                year: 2026,
            },
            till,
        }
    }

    pub(crate) async fn conn(
        &self,
    ) -> diesel_async::pooled_connection::deadpool::Object<AsyncPgConnection> {
        self.pool.get().await.unwrap()
    }

    pub(crate) fn desk(&self) -> Desk {
        Desk {
            pool: self.pool.clone(),
            till: self.till,
        }
    }

    /// A stay in the room, this many days after the first.
    pub(crate) fn stay(&self, first: u64, nights: u64) -> NewStay {
        NewStay {
            tenant: self.tenant,
            room: self.room,
            guest: self.guest,
            nights: Nights::from(day(first), nights).unwrap(),
            price: Cents(10_000),
        }
    }

    /// The total of all money, by accounts and by entries.
    pub(crate) async fn money(&self) -> (i64, i64) {
        let accounts = "SELECT sum(balance)::int8 FROM accounts";
        let entries = "SELECT sum(amount)::int8 FROM entries";
        (self.db.count(accounts).await, self.db.count(entries).await)
    }

    /// Nights that were sold twice.
    pub(crate) async fn double_bookings(&self) -> i64 {
        let pairs = "SELECT count(*) FROM bookings a JOIN bookings b USING (room_id) WHERE a.id < b.id \
                     AND a.state <> 'cancelled' AND b.state <> 'cancelled' \
                     AND a.arrives < b.departs AND b.arrives < a.departs";
        self.db.count(pairs).await
    }

    pub(crate) async fn count(&self, table: &str) -> i64 {
        self.db
            .count(&format!("SELECT count(*) FROM {table}"))
            .await
    }
}

/// This many days after the first of June.
pub(crate) fn day(number: u64) -> NaiveDate {
    let first = NaiveDate::from_ymd_opt(2027, 6, 1).unwrap();
    first + Days::new(number)
}

pub(crate) fn refused<T: std::fmt::Debug>(result: store::Result<T>) -> store::Refusal {
    result.unwrap_err().refusal().unwrap()
}

/// The blocking half of a test, on a thread where it may block.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

pub(crate) fn establish(lets: &Lets) -> PgConnection {
    PgConnection::establish(lets.db.url()).unwrap()
}
