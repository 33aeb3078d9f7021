//! Code that uses the traits, without a database.

use crate::lets::{day, refused};
use advisory_runtime::lease::Leases;
use async_trait::async_trait;
use lets_domain::{Cents, GuestId, NewStay, Nights, RoomId, TenantId};
use lets_server::bookings::{BookingRepository, MockBookings};
use lets_server::payments::webhooks::{Effect, Webhook, Webhooks};
use lets_server::services::Rebooking;
use lets_server::services::rebooking::Outcome;
use lets_server::store::{Refusal, Result};
use std::sync::atomic::{AtomicUsize, Ordering};
use uuid::Uuid;

#[tokio::test]
async fn a_storm_moves_what_can_be_moved_and_cancels_the_rest() {
    let bookings = MockBookings::default();
    let guest = GuestId(Uuid::new_v4());
    let stay = |guest, first| NewStay {
        tenant: TenantId(Uuid::new_v4()),
        room: RoomId(1),
        guest,
        nights: Nights::from(day(first), 2).unwrap(),
        price: Cents(1),
    };
    for first in [0, 2] {
        bookings.create(&stay(guest, first)).await.unwrap();
    }
    let taken = bookings.create(&stay(guest, 1)).await;
    assert_eq!(refused(taken), Refusal::Taken);
    // The nights that the second one would move to are taken.
    bookings
        .create(&stay(GuestId(Uuid::new_v4()), 4))
        .await
        .unwrap();
    let outcome = Rebooking { bookings }.postpone(guest, 2).await.unwrap();
    let expected = Outcome {
        moved: 1,
        cancelled: 1,
    };
    assert_eq!(outcome, expected);
}

#[derive(Default)]
struct Counted(AtomicUsize);

#[async_trait]
impl Effect for Counted {
    async fn apply(&self, webhook: &Webhook) -> Result<()> {
        let calls = self.0.fetch_add(1, Ordering::Relaxed);
        if webhook.kind == "flaky" && calls == 0 {
            return Err(Refusal::Invalid.into());
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_webhook_is_handled_once_and_again_only_where_it_failed() {
    let webhooks = Webhooks {
        leases: Leases::in_memory(),
        effect: Counted::default(),
    };
    let webhook = |kind: &str| Webhook {
        id: format!("evt-{kind}"),
        kind: kind.to_owned(),
    };
    assert_eq!(
        refused(webhooks.handle(&webhook("flaky")).await),
        Refusal::Invalid
    );
    assert!(webhooks.handle(&webhook("flaky")).await.unwrap());
    assert!(!webhooks.handle(&webhook("flaky")).await.unwrap());
    assert!(webhooks.handle(&webhook("paid")).await.unwrap());
    assert_eq!(webhooks.effect.0.load(Ordering::Relaxed), 3);
}
