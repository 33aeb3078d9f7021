//! Locks that may be in one crate together. That this file compiles is the test: each pair that the
//! macro considers a collision would be an error.
#![allow(
    dead_code,
    unused_variables,
    reason = "the functions are compiled, and not called"
)]

use advisory_runtime::{LockKey, advisory_lock, lock_key};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

// One lock by name, whatever the placeholder is called.
/// Creates a slot.
///
/// This line is not in the registry.
#[advisory_lock(key = "slot:<slot>", name = "slot", component = "booking")]
async fn create(conn: &mut AsyncPgConnection, slot: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "slot:<id>", name = "slot")]
async fn cancel(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    Ok(())
}

// One lock, by type.
#[derive(LockKey)]
#[lock_key("account:<id>")]
struct AccountLock {
    id: i64,
}

#[advisory_lock(keys = [AccountLock { id: from }, AccountLock { id: to }])]
async fn transfer(conn: &mut AsyncPgConnection, from: i64, to: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = AccountLock { id })]
async fn close(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    Ok(())
}

// Never one key: another word, another shape, another derivation, another key space.
#[advisory_lock(key = "<tenant: uuid>:balance:<slot>")]
async fn balance(conn: &mut AsyncPgConnection, tenant: uuid::Uuid, slot: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "<tenant: uuid>:<slot>")]
async fn booking(conn: &mut AsyncPgConnection, tenant: uuid::Uuid, slot: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "slot:<slot>", derivation = "md5")]
async fn old(conn: &mut AsyncPgConnection, slot: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = 7)]
async fn number(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = (7, tenant))]
async fn pair(conn: &mut AsyncPgConnection, tenant: i32) -> QueryResult<()> {
    Ok(())
}

// The macro does not know a constant's number, so it reports nothing.
const BOOKING: i32 = 1;
const INVOICE: i32 = 2;

#[advisory_lock(key = (BOOKING, tenant))]
async fn booking_pair(conn: &mut AsyncPgConnection, tenant: i32) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = (INVOICE, tenant))]
async fn invoice_pair(conn: &mut AsyncPgConnection, tenant: i32) -> QueryResult<()> {
    Ok(())
}

// Declared explicitly.
#[advisory_lock(
    key = "<anything>",
    name = "legacy",
    allow_overlap("slot", "keys of the old service"),
    allow_overlap("transfers", "never in one database")
)]
async fn legacy(conn: &mut AsyncPgConnection, anything: i64) -> QueryResult<()> {
    Ok(())
}

// One location, two keys of one form.
#[advisory_lock(keys = ["room:<from>", "room:<to>"])]
async fn move_guest(conn: &mut AsyncPgConnection, from: i64, to: i64) -> QueryResult<()> {
    Ok(())
}

#[test]
fn a_lock_declared_as_a_type_and_one_written_out_share_by_name() {
    #[derive(LockKey)]
    #[lock_key("report:<week>", name = "report")]
    struct ReportLock {
        week: u32,
    }
    let week = 7;
    assert_eq!(
        ReportLock { week }.key(),
        lock_key!("report:<week: uint>", name = "report")
    );
}

#[test]
fn the_program_contains_the_sites_of_uncalled_functions_too() {
    let sites = advisory_runtime::inventory::sites().expect("this program's own file");
    let found: Vec<&str> = sites.iter().map(|site| site.function.as_str()).collect();
    let known = "create cancel AccountLock transfer close balance booking old number pair \
                 booking_pair invoice_pair legacy move_guest ReportLock lock_key!";
    for function in known.split_whitespace() {
        assert!(found.contains(&function), "{function} in {found:?}");
    }
    assert_eq!(found.len(), 16, "{found:?}");
    let create = sites.iter().find(|site| site.function == "create");
    let create = create.expect("found above");
    assert_eq!(create.name.as_deref(), Some("slot"));
    assert_eq!(create.purpose.as_deref(), Some("Creates a slot."));
    assert_eq!(create.component.as_deref(), Some("booking"));
    assert_eq!(create.written, ["slot:<slot>"]);
    assert_eq!(create.keys, ["pattern slot:<slot: int>"]);
    assert_eq!(create.file, "tests/sharing.rs");
    assert_eq!(create.module, "sharing");
    assert_eq!(
        (create.krate.as_str(), create.version.as_str()),
        ("advisory-tests", env!("CARGO_PKG_VERSION"))
    );
    assert!(create.line > 10);
    let fixed = sites.iter().find(|site| site.function == "pair");
    assert_eq!(fixed.expect("found above").keys, ["number (7,?)"]);
    advisory_runtime::inventory::assert_no_collisions();
}
