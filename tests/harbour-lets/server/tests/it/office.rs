//! The back office next to the server: blocking Diesel with the same locks.

use crate::lets::{Lets, blocking, day, establish, refused};
use advisory_runtime::inventory::assert_lock_order;
use diesel_async::SimpleAsyncConnection;
use lets_domain::{AccountId, Cents, OwnerId, Season};
use lets_server::admin::audit::Audit;
use lets_server::admin::imports::{self, PriceRow};
use lets_server::admin::ledger::LedgerMonth;
use lets_server::admin::{Office, blocks, erasure, rooms};
use lets_server::bookings::{bookings, emails, prices};
use lets_server::payments::accounts;
use lets_server::services::season;
use lets_server::store::Refusal;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holidays_and_bookings_do_not_get_the_same_night() {
    let lets = Lets::new().await;
    let room = lets.room;
    let mut clerk = establish(&lets);
    let nights: Vec<_> = (0..3).map(day).collect();
    let holiday = tokio::task::spawn_blocking(move || blocks::holiday(&mut clerk, room, &nights));
    let guest = bookings::book(&mut lets.conn().await, &lets.stay(2, 2)).await;
    let holiday = holiday.await.unwrap();
    assert_ne!(holiday.is_ok(), guest.is_ok(), "{holiday:?} {guest:?}");
    let mut clerk = establish(&lets);
    let blocked = blocking(move || blocks::is_blocked(&mut clerk, room, day(2))).await;
    assert_eq!(blocked.unwrap(), Some(guest.is_err()));
    let mut clerk = establish(&lets);
    assert_eq!(
        blocking(move || rooms::set_floor(&mut clerk, &[room], false))
            .await
            .unwrap(),
        1
    );
    let closed = bookings::book(&mut lets.conn().await, &lets.stay(20, 2)).await;
    assert_eq!(refused(closed), Refusal::WrongState);
}

#[tokio::test]
async fn a_night_cannot_be_blocked_past_its_lock() {
    let lets = Lets::new().await;
    let insert = "INSERT INTO blocks (room_id, night, reason) VALUES (1, '2027-06-01', 'by hand')";
    let refused = lets.conn().await.batch_execute(insert).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "this session does not hold the advisory lock \"room-night\", which guards the table \"blocks\""
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn corrections_and_transfers_keep_the_ledger_even() {
    let lets = Lets::new().await;
    let office = Office::new(lets.db.r2d2(4));
    let clerks: Vec<_> = (0..6)
        .map(|_| {
            let office = office.clone();
            tokio::task::spawn_blocking(move || {
                office
                    .correct(AccountId(2), AccountId(1), Cents(10))
                    .unwrap()
            })
        })
        .collect();
    for _ in 0..6 {
        let mut conn = lets.conn().await;
        accounts::transfer(&mut conn, AccountId(1), AccountId(2), Cents(5), "x")
            .await
            .unwrap();
    }
    for clerk in clerks {
        assert_eq!(clerk.await.unwrap(), 2);
    }
    let month = LedgerMonth {
        year: 2027,
        month: 6,
    };
    let closed = blocking(move || office.close_month(month)).await;
    assert_eq!(closed.unwrap(), Cents(100_000));
    let mut audit = Audit {
        conn: establish(&lets),
    };
    let compared = blocking(move || audit.compare(AccountId(2))).await;
    assert_eq!(compared.unwrap(), (Cents(90), Cents(90)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_office_prices_imports_reports_and_forgets() {
    let lets = Lets::new().await;
    let office = Office::new(lets.db.r2d2(2));
    let row = PriceRow {
        property: lets.property,
        season: Season::Summer,
        night: Cents(9_000),
    };
    let mut clerk = establish(&lets);
    let rows = [
        row,
        PriceRow {
            season: Season::Autumn,
            ..row
        },
    ];
    assert_eq!(
        blocking(move || imports::import(&mut clerk, &rows))
            .await
            .unwrap(),
        2
    );
    let mut conn = lets.conn().await;
    let version = season::open(&mut conn, lets.property, Season::Summer, Cents(9_500)).await;
    assert_eq!(version.unwrap(), 2);
    let stay = lets.stay(0, 2);
    let price = prices::of_stay(&mut conn, lets.property, stay.nights).await;
    assert_eq!(price.unwrap(), Cents(19_000));
    lets.desk().book(&stay, lets.payer, None).await.unwrap();
    let tenant = lets.tenant;
    let (invoiced, occupancy, tax) = blocking({
        let office = office.clone();
        move || {
            (
                office.invoiced(tenant, 2026).unwrap(),
                office.occupancy(OwnerId(1), day(6)).unwrap(),
                office.tax(12, tenant, 190).unwrap(),
            )
        }
    })
    .await;
    assert_eq!((invoiced, occupancy), (Cents(10_000), (0, 7)));
    assert_eq!(tax, Cents(1_900));
    let (guest, mut clerk) = (lets.guest, establish(&lets));
    let erased = blocking(move || erasure::erase(&mut clerk, guest)).await;
    assert_eq!(refused(erased), Refusal::WrongState, "somebody is to come");
    assert!(blocking(move || office.step("tidy", day(0))).await.unwrap());
    assert_lock_order();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_is_given_to_one_guest() {
    let lets = Lets::new().await;
    let mut conn = lets.conn().await;
    let request = emails::ChangeRequest {
        guest: lets.guest,
        new_email: "ada@harbour.example".to_owned(),
    };
    let change = emails::ask(&mut conn, &request).await.unwrap();
    emails::confirm(&mut conn, change, &request).await.unwrap();
    let again = emails::confirm(&mut conn, change, &request).await;
    assert_eq!(refused(again), Refusal::AlreadyDone);
    let office = Office::new(lets.db.r2d2(1));
    assert_eq!(blocking(move || office.lower_emails(10)).await.unwrap(), 0);
    assert_lock_order();
}
