//! Bookings through the services, several at a time.

use crate::lets::{Lets, day, refused};
use advisory_runtime::inventory::assert_lock_order;
use advisory_runtime::lock_key;
use lets_domain::{BookingState, CleanerId, NewStay, OwnerId, RoomId};
use lets_server::bookings::{
    self, BookingRepository, PgBookings, blocks, cleanings, guests, key_safes, quotes, reviews,
    waiting_list,
};
use lets_server::services::front_desk::{Departure, FrontDesk};
use lets_server::services::{self, Rebooking};
use lets_server::store::Refusal;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_gets_the_nights_and_the_others_pay_nothing() {
    let lets = Lets::new().await;
    let calls: Vec<_> = (0..12)
        .map(|call| {
            let (desk, payer) = (lets.desk(), lets.payer);
            // Three nights each, with one in common.
            let stay = lets.stay(call % 3, 3);
            tokio::spawn(async move { desk.book(&stay, payer, None).await })
        })
        .collect();
    let mut booked = 0;
    for call in calls {
        match call.await.unwrap() {
            Ok(confirmation) => {
                booked += 1;
                assert_eq!(confirmation.invoice, 1);
            }
            error => assert_eq!(refused(error), Refusal::Taken),
        }
    }
    assert_eq!(booked, 1);
    assert_eq!(lets.double_bookings().await, 0);
    assert_eq!(lets.count("invoices").await, 1);
    assert_eq!(lets.count("deposits").await, 1);
    assert_eq!(lets.money().await, (100_000, 100_000));
    lets.db.until_no_locks().await;
    assert_lock_order();
}

#[tokio::test]
async fn what_fails_late_takes_back_what_came_before() {
    let lets = Lets::new().await;
    let (desk, stay) = (lets.desk(), lets.stay(0, 2));
    let error = desk.book(&stay, lets.payer, Some("no-such-code")).await;
    assert_eq!(refused(error), Refusal::NotFound);
    assert_eq!(lets.count("bookings").await, 0);
    assert_eq!(lets.count("entries").await, 1, "only the cash");
    // Nothing is locked any more, so the same nights are available.
    desk.book(&stay, lets.payer, None).await.unwrap();
}

#[tokio::test]
async fn a_night_stays_locked_to_the_end_of_the_outer_transaction() {
    use diesel_async::AsyncConnection;
    let lets = Lets::new().await;
    let (mut conn, stay) = (lets.conn().await, lets.stay(0, 1));
    let (room, night) = (lets.room.0, day(0));
    let key = match lock_key!(
        "night:<room: int>:<night: date>",
        name = "room-night",
        component = "bookings"
    ) {
        advisory_runtime::Key::BigInt(key) => key,
        key => panic!("{key:?}"),
    };
    let mut other = lets.conn().await;
    let waits = lets.stay(0, 1);
    let outer = conn.transaction(async |conn| {
        bookings::bookings::book(conn, &stay).await?;
        let late = tokio::spawn(async move { bookings::bookings::book(&mut other, &waits).await });
        lets.db.until_waiting(key).await;
        Ok::<_, lets_server::store::Error>(late)
    });
    let late = outer.await.unwrap();
    assert_eq!(refused(late.await.unwrap()), Refusal::Taken);
}

#[tokio::test]
async fn a_stay_from_the_quote_to_the_review() {
    let lets = Lets::new().await;
    let mut conn = lets.conn().await;
    let stay = lets.stay(0, 2);
    let quote = quotes::offer(&mut conn, lets.room, stay.nights, stay.price)
        .await
        .unwrap();
    let booking = quotes::take(&mut conn, quote, lets.tenant, lets.guest)
        .await
        .unwrap();
    let again = quotes::take(&mut conn, quote, lets.tenant, lets.guest).await;
    assert_eq!(refused(again), Refusal::AlreadyDone);
    lets.db
        .run(&format!(
            "INSERT INTO key_safes VALUES ('{}', 1, '4711'), ('{}', 2, '0815')",
            lets.property, lets.property
        ))
        .await;
    let front = FrontDesk {
        pool: lets.pool.clone(),
        tenant: lets.tenant,
        property: lets.property,
        owner: OwnerId(1),
        till: lets.till,
    };
    lets_server::payments::deposits::take(&mut conn, booking, lets_domain::Cents(2_000))
        .await
        .unwrap();
    assert_eq!(front.check_in(booking, 1).await.unwrap(), "4711");
    assert_eq!(
        refused(front.check_in(booking, 2).await),
        Refusal::WrongState
    );
    let leaving = Departure {
        booking,
        payer: lets.payer.account,
        slot: 1,
        cleaner: CleanerId(9),
        day: day(2),
    };
    assert_eq!(front.check_out(leaving).await.unwrap(), 20);
    assert_eq!(refused(front.check_out(leaving).await), Refusal::WrongState);
    assert_eq!(lets.money().await, (100_000, 100_000));
    reviews::write(&mut conn, booking, 5, "harbour!")
        .await
        .unwrap();
    reviews::write(&mut conn, booking, 4, "harbour")
        .await
        .unwrap();
    assert_eq!(lets.count("reviews").await, 1);
    assert!(cleanings::done(&mut conn, lets.room, day(2)).await.unwrap());
    assert!(!cleanings::done(&mut conn, lets.room, day(2)).await.unwrap());
    let codes = key_safes::change_all(&mut conn, lets.property, &[1, 2], |slot| {
        format!("{slot}{slot}{slot}{slot}")
    });
    assert_eq!(codes.await.unwrap(), 2);
    assert_lock_order();
}

#[tokio::test]
async fn a_move_takes_the_new_nights_and_leaves_the_old() {
    let lets = Lets::new().await;
    let mut conn = lets.conn().await;
    let repository = PgBookings::new(lets.pool.clone());
    let first = repository.create(&lets.stay(0, 2)).await.unwrap();
    let second = repository.create(&lets.stay(4, 2)).await.unwrap();
    let onto = repository.relocate(first, lets.room, lets.stay(3, 2).nights);
    assert_eq!(refused(onto.await), Refusal::Taken);
    assert!(
        blocks::block(&mut conn, lets.room, day(8), "boiler")
            .await
            .unwrap()
    );
    let blocked = repository.relocate(first, lets.room, lets.stay(7, 2).nights);
    assert_eq!(refused(blocked.await), Refusal::Taken);
    blocks::unblock(&mut conn, lets.room, day(8)).await.unwrap();
    let free = repository.relocate(first, lets.room, lets.stay(7, 2).nights);
    free.await.unwrap();
    repository.create(&lets.stay(0, 2)).await.unwrap();
    assert_eq!(repository.discount(second, 10).await.unwrap().0, 9_000);
    let rebooking = Rebooking {
        bookings: repository,
    };
    let outcome = rebooking.postpone(lets.guest, 1).await.unwrap();
    assert_eq!(outcome.moved, 3);
    assert_eq!(lets.double_bookings().await, 0);
    assert_lock_order();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn families_book_both_rooms_or_none_in_whatever_order() {
    let lets = Lets::new().await;
    let mut conn = lets.conn().await;
    let (other, name) = bookings::rooms::add(&mut conn, lets.property, 3)
        .await
        .unwrap();
    assert_eq!((other, &*name), (RoomId(2), "2"));
    drop(conn);
    let here = lets.stay(0, 2);
    let there = NewStay {
        room: other,
        ..lets.stay(0, 2)
    };
    let calls: Vec<_> = [[here.clone(), there.clone()], [there, here]]
        .into_iter()
        .cycle()
        .take(6)
        .map(|stays| {
            let (desk, payer) = (lets.desk(), lets.payer);
            tokio::spawn(async move { desk.book_together(&stays, payer).await })
        })
        .collect();
    let mut booked = 0;
    for call in calls {
        booked += usize::from(call.await.unwrap().is_ok());
    }
    assert_eq!(booked, 1);
    assert_eq!(lets.count("bookings").await, 2);
    assert_eq!(lets.double_bookings().await, 0);
}

#[tokio::test]
async fn waiting_guests_are_notified_of_a_cancelled_stay() {
    let lets = Lets::new().await;
    let mut conn = lets.conn().await;
    let desk = lets.desk();
    let booked = desk.book(&lets.stay(0, 2), lets.payer, None).await.unwrap();
    let place = waiting_list::join(&mut conn, lets.room, day(0), lets.guest);
    assert_eq!(place.await.unwrap(), 1);
    let next = desk.cancel(booked.booking, lets.payer).await.unwrap();
    assert_eq!(next, Some(lets.guest));
    let again = desk.cancel(booked.booking, lets.payer).await;
    assert_eq!(refused(again), Refusal::WrongState);
    let balance = lets_server::payments::accounts::balance(&mut conn, lets.payer.account);
    assert_eq!(balance.await.unwrap().0, 100_000, "the deposit is back");
    let left = waiting_list::leave(&lets.pool, lets.room, day(0), lets.guest).await;
    assert_eq!(left.unwrap(), Some(0));
    let found = bookings::bookings::find(&mut conn, booked.booking)
        .await
        .unwrap();
    assert_eq!(found.state().unwrap(), BookingState::Cancelled);
    assert_lock_order();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_records_of_one_guest_become_one_from_both_sides_at_once() {
    let lets = Lets::new().await;
    let guests = guests::Guests {
        pool: lets.pool.clone(),
    };
    let same = guests
        .register("Ada L.", " ADA@example.org ")
        .await
        .unwrap();
    assert_eq!(same, lets.guest, "an address is one guest");
    let other = guests
        .register("A. Lovelace", "al@example.org")
        .await
        .unwrap();
    for guest in [lets.guest, other] {
        lets_server::payments::loyalty::earn(&mut lets.conn().await, guest, 5)
            .await
            .unwrap();
    }
    let (pool, guest) = (lets.pool.clone(), lets.guest);
    let one = tokio::spawn(async move { services::guests::merge(&pool, guest, other).await });
    let pool = lets.pool.clone();
    let two = tokio::spawn(async move { services::guests::merge(&pool, other, guest).await });
    let outcomes = [one.await.unwrap(), two.await.unwrap()];
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    let points = "SELECT sum(points)::int8 FROM loyalty";
    assert_eq!(lets.db.count(points).await, 10);
    assert_lock_order();
}
