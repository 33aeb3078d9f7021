//! No cent is created or lost.

use crate::lets::{Lets, refused};
use advisory_runtime::inventory::assert_lock_order;
use lets_domain::{AccountId, Cents, OwnerId};
use lets_server::payments::balance::{self, BalancePayment};
use lets_server::payments::provider::MockProvider;
use lets_server::payments::webhooks::{Recorded, Webhook, Webhooks};
use lets_server::payments::{
    accounts, idempotency, invoices, payouts, rates, statements, vouchers,
};
use lets_server::store::{Error, Refusal};
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfers_in_all_directions_neither_make_nor_lose_money() {
    let lets = Lets::new().await;
    let ids: Vec<AccountId> = (1..=4).map(AccountId).collect();
    for id in &ids {
        accounts::open(&mut lets.conn().await, *id, "x")
            .await
            .unwrap();
    }
    let calls: Vec<_> = (0..24_usize)
        .map(|call| {
            let (pool, ids) = (lets.pool.clone(), ids.clone());
            let (from, to) = (ids[call % 4], ids[(call / 2 + 1) % 4]);
            tokio::spawn(async move {
                let mut conn = pool.get().await.unwrap();
                accounts::transfer(&mut conn, from, to, Cents(100), "round").await
            })
        })
        .collect();
    for call in calls {
        if let Err(error) = call.await.unwrap() {
            let refusal = error.refusal().unwrap();
            assert!(matches!(refusal, Refusal::TooLittle | Refusal::Invalid));
        }
    }
    let mut conn = lets.conn().await;
    let shares = [(AccountId(3), Cents(500)), (AccountId(4), Cents(700))];
    accounts::share_out(&mut conn, AccountId(1), &shares, "owners")
        .await
        .unwrap();
    let too_much = [(AccountId(3), Cents(1_000_000))];
    let refusal = accounts::share_out(&mut conn, AccountId(1), &too_much, "owners").await;
    assert_eq!(refused(refusal), Refusal::TooLittle);
    assert_eq!(lets.money().await, (100_000, 100_000));
    assert_lock_order();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_balance_is_paid_once_from_two_pages() {
    let lets = Lets::new().await;
    let booked = lets
        .desk()
        .book(&lets.stay(0, 1), lets.payer, None)
        .await
        .unwrap();
    let payment = BalancePayment {
        tenant_id: lets.tenant,
        booking_id: booked.booking,
        amount: Cents(10_000),
    };
    let pages = [payment.clone(), payment].map(|payment| {
        let pool = lets.pool.clone();
        tokio::spawn(async move { balance::pay(&mut pool.get().await.unwrap(), &payment).await })
    });
    let mut paid = 0;
    for page in pages {
        paid += usize::from(page.await.unwrap().is_ok());
    }
    assert_eq!(paid, 1);
    let left = balance::refund(&lets.pool, lets.tenant, booked.booking, Cents(4_000)).await;
    assert_eq!(left.unwrap(), Cents(6_000));
    let mut conn = lets.conn().await;
    let guests = balance::day_guests(&mut conn, lets.tenant, crate::lets::day(0));
    assert_eq!(guests.await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_is_handled_once_by_two_instances() {
    let lets = Lets::new().await;
    let instance = || {
        Arc::new(Webhooks {
            leases: advisory_runtime::lease::Leases::new(lets.pool.clone()),
            effect: Recorded(lets.pool.clone()),
        })
    };
    let (one, other) = (instance(), instance());
    let calls: Vec<_> = (0..8)
        .map(|call| {
            let webhooks = if call % 2 == 0 { &one } else { &other };
            let webhooks = Arc::clone(webhooks);
            let webhook = Webhook {
                id: "evt_1".to_owned(),
                kind: "paid".to_owned(),
            };
            // The provider delivers again while another instance handles it.
            tokio::spawn(async move {
                loop {
                    match webhooks.handle(&webhook).await {
                        Err(Error::Refused(Refusal::Busy)) => {}
                        handled => return handled,
                    }
                }
            })
        })
        .collect();
    let mut handled = 0;
    for call in calls {
        handled += usize::from(call.await.unwrap().unwrap());
    }
    assert_eq!((handled, lets.count("webhooks").await), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_code_pays_once_however_it_is_typed() {
    let lets = Lets::new().await;
    let mut conn = lets.conn().await;
    assert!(
        vouchers::sell(&mut conn, "Summer-27", Cents(500))
            .await
            .unwrap()
    );
    let calls = ["summer-27", " SUMMER-27 "].map(|code| {
        let (pool, guest) = (lets.pool.clone(), lets.guest);
        tokio::spawn(
            async move { vouchers::redeem(&mut pool.get().await.unwrap(), code, guest).await },
        )
    });
    let mut paid = Cents::ZERO;
    for call in calls {
        match call.await.unwrap() {
            Ok(amount) => paid = paid + amount,
            error => assert_eq!(refused(error), Refusal::AlreadyDone),
        }
    }
    assert_eq!(paid, Cents(500));
}

#[tokio::test]
async fn an_owner_is_paid_once_a_month() {
    let lets = Lets::new().await;
    let mut conn = lets.conn().await;
    for _ in 0..2 {
        statements::add(&mut conn, OwnerId(1), "2027-06", Cents(400))
            .await
            .unwrap();
    }
    drop(conn);
    let payouts = payouts::Payouts {
        pool: lets.pool.clone(),
        provider: MockProvider::default(),
    };
    let (receipt, token) = payouts.pay(OwnerId(1), "2027-06").await.unwrap();
    assert_eq!((&*receipt, token), ("0: 8.00 to 1", 1));
    let again = payouts.pay(OwnerId(1), "2027-06").await;
    assert_eq!(refused(again), Refusal::AlreadyDone);
    assert_eq!(payouts.provider.calls(), 1);
    assert!(
        rates::fetch(&lets.pool, &payouts.provider, "GBP")
            .await
            .unwrap()
    );
    assert!(
        !rates::fetch(&lets.pool, &payouts.provider, " gbp")
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn a_request_is_answered_once_and_old_answers_go() {
    let lets = Lets::new().await;
    let mut conn = lets.conn().await;
    for _ in 0..2 {
        let answer = idempotency::once(&mut conn, "r-1", async |conn| {
            let number =
                invoices::write(conn, lets.tenant, 2027, uuid::Uuid::nil().into(), Cents(7));
            Ok(number.await?.to_string())
        });
        assert_eq!(answer.await.unwrap(), "1");
    }
    let total = invoices::total(&mut conn, lets.tenant, 2027).await.unwrap();
    assert_eq!(total, (1, Cents(7)));
    lets.db
        .run("UPDATE idempotency_keys SET expires_at = now() - interval '1 s'")
        .await;
    // An instance of the service in the other language holds the lock.
    lets.db.run("SELECT pg_advisory_lock(42424242)").await;
    assert_eq!(idempotency::clean_up(&lets.pool).await.unwrap(), None);
    lets.db.run("SELECT pg_advisory_unlock(42424242)").await;
    assert_eq!(idempotency::clean_up(&lets.pool).await.unwrap(), Some(1));
    assert_lock_order();
}
