#![allow(unused, deprecated)]
use advisory_runtime::{Key, LockKey, advisory_lease, advisory_lock, lock_key};
use chrono::NaiveDate;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;
use uuid::Uuid;

macro_rules! locked {
    ($($name:ident: $args:tt)*) => { $(
        locked!(@ $name $args);
    )* };
    (@ $name:ident ($($args:tt)*)) => {
        #[advisory_lock($($args)*)]
        async fn $name(conn: &mut AsyncPgConnection, id: i64, tenant_id: Uuid, date: NaiveDate) -> QueryResult<()> {
            Ok(())
        }
    };
}

locked! {
    clean: (key = 42_424_242)
    two_numbers: (key = 42424242)
    sweep: (key = (42))
    a_number_in_parentheses: (key = 42)
    create: (key = "slot:<id>", name = "slot")
    one_name_with_two_patterns: (key = "slots:<id>", name = "slot")
    run: (key = "job", name = "job", permits = 3, scope = "session", wait = "never")
    two_numbers_of_permits: (key = "job", name = "job", permits = 2, scope = "session", wait = "never")
    start: (key = "task:<id>")
    pause: (keys = ["pause:task:<id>", "task:<id>"], name = "pause")
}

#[advisory_lock(key = "report:<month>")]
async fn send(conn: &mut AsyncPgConnection, month: &str) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "report:<day>-<part>", allow_ambiguous = "deployed")]
async fn report(conn: &mut AsyncPgConnection, day: &str, part: &str) -> QueryResult<()> {
    Ok(())
}

macro_rules! functions {
    ($($name:ident),*) => { $(
        #[advisory_lock(key = "made:<id>")]
        async fn $name(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
            Ok(())
        }
    )* };
}
functions!(first, made_by_a_macro);

fn before_the_attribute(tenant_id: Uuid, date: NaiveDate) -> Key {
    lock_key!("seat:<tenant_id>:<date>", name = "seat")
}
locked! { after_lock_key: (key = "seat:<tenant_id>:<date>", name = "seat") }

locked! { before_lock_key: (key = "desk:<tenant_id>:<date>", name = "desk") }
fn after_the_attribute(tenant_id: Uuid, date: NaiveDate) -> Key {
    lock_key!("desk:<tenant_id>:<date>", name = "desk")
}

#[derive(LockKey)]
#[lock_key("account:<id>")]
struct AccountLock {
    id: i64,
}

fn with_a_declared_lock(id: i64) -> Key {
    lock_key!("account:<id: int>")
}

#[derive(LockKey)]
#[lock_key("mail:<day>")]
struct MailLock {
    day: i64,
}

#[advisory_lease(key = "mail:<month>", pool = pool)]
async fn a_lease_and_a_declared_lock(pool: &Pool<AsyncPgConnection>, month: u32) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "sync:<day>", name = "sync")]
async fn write(conn: &mut AsyncPgConnection, day: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lease(key = "sync:<day>", name = "sync", pool = pool)]
async fn a_lease_and_an_advisory_lock_of_one_name(pool: &Pool<AsyncPgConnection>, day: i64) -> QueryResult<()> {
    Ok(())
}

fn main() {}
