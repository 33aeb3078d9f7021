//! Several instances that share the work.

use crate::lets::{Lets, day, refused};
use advisory_runtime::claim::Counts;
use advisory_runtime::testing::Observer;
use async_trait::async_trait;
use lets_domain::{Channel, ScheduleId};
use lets_server::bookings::schedules;
use lets_server::store::{Refusal, Result};
use lets_server::workers::arrivals::Screen;
use lets_server::workers::dunning::Dunning;
use lets_server::workers::reminders::{self, Arrivals};
use lets_server::workers::{checkpoints, exports, feeds, jobs, orphans, outbox, scheduler};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use uuid::Uuid;

#[tokio::test]
async fn a_scheduler_skips_what_another_is_at() {
    let lets = Lets::new().await;
    let inner = scheduler::tick(&lets.pool, async {});
    let mut skipped = None;
    let ticked = scheduler::tick(&lets.pool, async { skipped = Some(inner.await) }).await;
    assert!(ticked.unwrap());
    assert!(!skipped.unwrap().unwrap());
    assert!(scheduler::tick(&lets.pool, async {}).await.unwrap());
    assert_eq!(lets.count("runs").await, 2);
    assert!(scheduler::nightly(&lets.pool, day(0)).await.unwrap());
    assert!(!scheduler::nightly(&lets.pool, day(0)).await.unwrap());
}

#[derive(Default)]
struct Seen(Mutex<Vec<i64>>);

#[async_trait]
impl jobs::Calendar for Seen {
    async fn sync(&self, job: &jobs::SyncJob) -> Result<()> {
        self.0.lock().unwrap().push(job.id);
        if job.priority == 0 {
            return Err(Refusal::NotFound.into());
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_job_is_done_by_one_worker_and_failures_are_reported() {
    let lets = Lets::new().await;
    let mut conn = lets.conn().await;
    for priority in 0..12 {
        jobs::enqueue(&mut conn, Channel::Nestling, lets.property, priority)
            .await
            .unwrap();
    }
    let calendar = Arc::new(Seen::default());
    let workers: Vec<_> = ["worker-1", "worker-2", "worker-3"]
        .into_iter()
        .map(|worker| {
            let (pool, calendar) = (lets.pool.clone(), Arc::clone(&calendar));
            tokio::spawn(async move { jobs::work(&pool, worker, &*calendar).await.unwrap() })
        })
        .collect();
    let (mut done, mut failed) = (0, 0);
    for worker in workers {
        let (by_worker, failed_by_worker) = worker.await.unwrap();
        (done, failed) = (done + by_worker, failed + failed_by_worker);
    }
    assert_eq!((done, failed), (11, 1));
    let seen = calendar.0.lock().unwrap().clone();
    assert_eq!(seen.len(), seen.iter().collect::<HashSet<_>>().len());
    let counts: Counts = jobs::counts(&mut conn).await.unwrap();
    assert_eq!((counts.completed, counts.failed), (11, 1));
    let why = "SELECT count(*) FROM sync_jobs WHERE error_message = 'refused: NotFound'";
    assert_eq!(lets.db.count(why).await, 1);
}

#[tokio::test]
async fn a_chunk_has_one_worker() {
    let lets = Lets::new().await;
    lets.db
        .run("INSERT INTO sync_checkpoints (matrix_id, chunk_hash) VALUES (1, 'ab')")
        .await;
    let second = checkpoints::sync(&lets.pool, "two", 1, "ab", async { Ok(8) });
    let mut other = None;
    let count = async {
        other = Some(second.await);
        Ok(7)
    };
    let synced = checkpoints::sync(&lets.pool, "one", 1, "ab", count).await;
    assert_eq!(synced.unwrap(), Some(7));
    assert_eq!(other.unwrap().unwrap(), None);
}

#[tokio::test]
async fn letters_are_written_once_and_sent_once() {
    let lets = Lets::new().await;
    let booked = lets
        .desk()
        .book(&lets.stay(0, 1), lets.payer, None)
        .await
        .unwrap();
    let arrivals = Arrivals {
        property: lets.property,
        day: day(0),
    };
    let mut conn = lets.conn().await;
    assert_eq!(reminders::write(&mut conn, arrivals).await.unwrap(), 1);
    assert_eq!(reminders::write(&mut conn, arrivals).await.unwrap(), 0);
    let dunning = Dunning {
        pool: lets.pool.clone(),
        brand: "harbour:lets".to_owned(),
    };
    let letter = dunning.write(booked.booking, 0).await.unwrap();
    assert_eq!(letter, Some("reminder"));
    assert_eq!(dunning.write(booked.booking, 0).await.unwrap(), None);
    let refuse = |letter: &outbox::Letter| letter.subject != "reminder";
    assert_eq!(outbox::send(&lets.pool, "mailer", refuse).await.unwrap(), 1);
    assert_eq!(
        outbox::send(&lets.pool, "mailer", |_| true).await.unwrap(),
        1
    );
    assert_eq!(
        outbox::send(&lets.pool, "mailer", |_| true).await.unwrap(),
        0
    );
}

#[tokio::test]
async fn a_screen_draws_on_its_own_connection() {
    let lets = Lets::new().await;
    let (desk, stay) = (lets.desk(), lets.stay(0, 1));
    desk.book(&stay, lets.payer, None).await.unwrap();
    let mut screen = Screen {
        conn: lets.db.connect().await,
        house: "Harbour".to_owned(),
    };
    let names = screen.draw("1", day(0)).await.unwrap();
    assert_eq!(names.collect::<Vec<_>>(), ["1/1: Ada"]);
}

#[tokio::test]
async fn an_export_is_written_under_its_token() {
    let lets = Lets::new().await;
    for token in 1..=2 {
        assert_eq!(exports::run(&lets.pool, "stays").await.unwrap(), 0);
        let written = "SELECT token FROM exports WHERE name = 'stays'";
        assert_eq!(lets.db.count(written).await, token);
    }
    assert!(exports::discard(&lets.pool, "stays").await.unwrap());
    assert_eq!(lets.count("exports").await, 0);
}

#[tokio::test]
async fn an_address_is_cleaned_up_once_here_or_in_the_database() {
    let lets = Lets::new().await;
    let address = "'ada@example.org'";
    lets.db
        .run(&format!("SELECT acquire_cleanup_lock({address})"))
        .await;
    let here = orphans::clean_up(&lets.pool, " Ada@Example.org", "17").await;
    assert_eq!(refused(here), Refusal::Busy);
    lets.db
        .run(&format!("SELECT release_cleanup_lock({address})"))
        .await;
    orphans::clean_up(&lets.pool, " Ada@Example.org", "17")
        .await
        .unwrap();
    let patience = Duration::from_secs(2);
    let confirmed = orphans::confirm(&lets.pool, "ada@example.org ", "17", patience);
    assert!(confirmed.await.unwrap());
}

#[tokio::test]
async fn events_are_made_once_by_whoever_looks_first() {
    let lets = Lets::new().await;
    let schedule = ScheduleId(Uuid::new_v4());
    lets.db
        .run(&format!(
            "INSERT INTO schedules VALUES ('{schedule}', '2027-06-01')"
        ))
        .await;
    let mut conn = lets.conn().await;
    assert_eq!(
        schedules::list(&mut conn, schedule, day(3))
            .await
            .unwrap()
            .len(),
        3
    );
    // The previous service uses the same number.
    let number = format!("('x' || substr(md5('{schedule}'), 1, 16))::bit(64)::bigint");
    lets.db
        .run(&format!("SELECT pg_advisory_lock({number})"))
        .await;
    let busy = schedules::list(&mut conn, schedule, day(9)).await;
    assert_eq!(refused(busy), Refusal::Busy);
    assert_eq!(
        schedules::list(&mut conn, schedule, day(3))
            .await
            .unwrap()
            .len(),
        3
    );
}

#[tokio::test]
async fn a_feeds_readers_wait_only_for_its_publisher() {
    let lets = Lets::new().await;
    let (mut conn, property) = (lets.conn().await, lets.property);
    assert_eq!(
        feeds::publish(&mut conn, Channel::BookAway, property)
            .await
            .unwrap(),
        1
    );
    let mut observer = Observer::new(lets.conn().await);
    let channel = Channel::BookAway;
    let key = lets_domain::locks::FeedLock { channel, property };
    let read = feeds::version(&mut conn, channel, property);
    assert_eq!(observer.assert_locked(key, read).await.unwrap(), Some(1));
}
