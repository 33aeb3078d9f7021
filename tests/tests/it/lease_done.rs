//! A key whose work is done and a key that is held get different answers.

use advisory_runtime::lease::{Error, Event, Leases, Request, Table, lead_until};
use advisory_runtime::{Wait, advisory_lease, monitor};
use advisory_tests::bookings::run;
use advisory_tests::futures::spawn;
use advisory_tests::leases::{
    GENEROUS, HOUR, Pool, database, expire, finish, key, leases_at, once, orphan, until_refused,
};
use advisory_tests::{Proxy, assert_matches};
use diesel::QueryResult;
use diesel_async::AsyncConnection;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// However long the call would wait, and however soon the key is free again.
#[tokio::test]
async fn a_done_key_is_answered_at_once_whatever_the_wait() {
    let db = database().await;
    let mut conn = db.connect().await;
    let pool = db.deadpool(1);
    let leases = Leases::new(pool.clone());
    run(&mut pool.get().await.unwrap(), "SET lock_timeout = '1h'").await;
    for (number, keep) in [GENEROUS, HOUR].into_iter().enumerate() {
        let text = || Request::text(format!("k{number}"));
        once(&leases, text().keep(keep)).await.unwrap();
        for wait in [
            Wait::Never,
            Wait::For(HOUR / 2),
            Wait::Session,
            Wait::Forever,
        ] {
            let error = once(&leases, text().wait(wait)).await.unwrap_err();
            let Error::Done {
                lock, remaining, ..
            } = &error
            else {
                panic!("{wait:?}: {error:?}");
            };
            assert!(!lock.is_empty());
            assert!(*remaining <= keep && *remaining > keep / 2, "{error:?}");
            assert!(error.is_done() && !error.is_held());
            let holders = monitor::holders(&mut conn, &error).await.unwrap();
            assert!(holders.is_empty());
        }
    }
}

#[tokio::test]
async fn a_call_that_waits_is_done_when_the_holder_completes() {
    let db = database().await;
    let (mut conn, mut other) = (db.connect().await, db.connect().await);
    let (leases, events) = (leases_at(db.url(), 1), Arc::new(Mutex::new(Vec::new())));
    let told = Arc::clone(&events);
    let leases = leases.observe(move |event| {
        if let Event::Done { remaining, .. } = event {
            assert!(remaining > HOUR / 2);
            told.lock().unwrap().push("done");
        }
    });
    let lease = orphan(db.url(), &Table::new(), key("k").keep(HOUR)).await;
    let waiting = spawn(async move {
        let waited = leases.acquire(Request::text("k").wait(HOUR)).await;
        waited.unwrap_err()
    });
    until_refused(&mut other).await;
    let completed = conn.transaction(async |conn| {
        lease.complete(conn).await?;
        // It is held until the commit.
        until_refused(&mut other).await;
        let error = once(&leases_at(db.url(), 1), key("k")).await;
        assert!(error.unwrap_err().is_held());
        assert!(!waiting.is_finished());
        Ok::<_, Error>(())
    });
    completed.await.unwrap();
    let error = tokio::time::timeout(GENEROUS, waiting).await;
    let error = error.expect("it waits for a key that is done").unwrap();
    assert!(error.is_done(), "{error:?}");
    assert_eq!(*events.lock().unwrap(), ["done"]);
}

#[advisory_lease(
    key = "done-job:<id>",
    name = "done-job",
    pool = pool,
    keep = "1h",
    wait = "never",
    on_held = Ok(answer + " later"),
    on_done = Ok(answer + " before")
)]
async fn job(pool: &Pool, id: i64, answer: String) -> QueryResult<String> {
    Ok(answer)
}

/// Like a lease of an older release, which says nothing about completed work.
#[advisory_lease(key = "done-job:<id>", name = "done-job", pool = pool, wait = "never", on_held = Ok(0))]
async fn older(pool: &Pool, id: i64) -> QueryResult<i64> {
    Ok(id)
}

#[tokio::test]
async fn on_held_and_on_done_are_distinguished() {
    let db = database().await;
    let pool = db.deadpool(1);
    let answer = async |id| job(&pool, id, "done".to_owned()).await.unwrap();
    let held = Leases::new(pool.clone());
    let held = held.acquire(Request::rendered("", "done-job:1".to_owned()));
    let held = held.await.unwrap();
    assert_eq!(answer(1).await, "done later");
    assert_eq!(older(&pool, 1).await.unwrap(), 0);
    finish(held).await.unwrap();
    assert_eq!(answer(1).await, "done");
    assert_eq!(answer(1).await, "done before");
    // It is an error if the call does not say what to return, and can be found in Diesel's.
    let error = older(&pool, 1).await.unwrap_err();
    assert!(matches!(error, diesel::result::Error::QueryBuilderError(_)));
    let found = Error::find(&error).unwrap();
    assert!(found.is_done() && found.to_string().contains("`done-job:<id>`"));
    assert!(matches!(Error::from(error), Error::Done { .. }));
}

/// The key can belong to another program.
#[tokio::test]
async fn a_campaign_continues_after_a_done_key() {
    let db = database().await;
    let mut conn = db.connect().await;
    let leases = leases_at(db.url(), 1);
    once(&leases, key("k").keep(HOUR)).await.unwrap();
    let (over, is_over) = tokio::sync::oneshot::channel::<()>();
    let mut over = Some(over);
    let campaign = Request::text("k").renew(Duration::from_millis(10));
    let is_over = async { drop(is_over.await) };
    let led = lead_until(&leases, campaign, is_over, |_| {
        drop(over.take());
        async { Ok::<_, Error>(()) }
    });
    let (led, ()) = tokio::join!(tokio::time::timeout(GENEROUS, led), async {
        until_refused(&mut conn).await;
        expire(&db).await;
    });
    led.expect("it leads when the key is free").unwrap();
}

/// Whether the key is done decides whether the work runs again. A key that could not be released is
/// free when it expires.
#[tokio::test]
async fn without_the_server_only_a_keep_refuses_an_ok() {
    let db = database().await;
    for keep in [Some(HOUR), None] {
        let proxy = Proxy::start(&db).await;
        let leases = leases_at(proxy.url(), 1);
        let mut request = Request::text(format!("{keep:?}"));
        if let Some(keep) = keep {
            request = request.keep(keep);
        }
        let held = leases.acquire(request).await.unwrap();
        proxy.refuse_connections().await;
        proxy.cut_all();
        let ended = finish(held).await;
        match keep {
            Some(_) => assert_matches!(
                ended,
                Err(Error::Lost {
                    source: Some(_),
                    ..
                })
            ),
            None => ended.unwrap(),
        }
    }
}

#[tokio::test]
async fn an_end_whose_answer_was_lost_is_found() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let held = leases_at(proxy.url(), 2).acquire(key("k").keep(HOUR)).await;
    let held = held.unwrap();
    proxy.cut_after_forwarding("SET is_kept");
    finish(held).await.unwrap();
    let error = once(&leases_at(db.url(), 1), key("k")).await.unwrap_err();
    assert!(error.is_done(), "{error:?}");
}
