//! A run of migrations that waits for another one: its report of the holder, and how long it waits.

use crate::gated_migrations::{MIGRATIONS, NAMES, assert_migrated, telling, until_it_waits};
use advisory_runtime::migrations::{self, Error, KEY, Migrator, Report, Step};
use advisory_runtime::session;
use advisory_tests::Database;
use advisory_tests::bookings::run;
use std::time::Duration;

#[tokio::test]
async fn it_says_for_whom_it_waits_and_what_it_runs() {
    let db = Database::create().await;
    let mut holder = db.connect().await;
    run(&mut holder, "SET application_name = 'booking-service'").await;
    let pid = advisory_tests::pid_of(&mut holder).await;
    let holder = session::acquire_owned(holder, KEY).await.unwrap();
    let (migrator, mut told) = telling(MIGRATIONS);
    let (report, ()) = tokio::join!(migrator.run(db.url()), async {
        let [seen] = &until_it_waits(&mut told).await[..] else {
            panic!("one holder");
        };
        assert_eq!((seen.pid, &*seen.application), (pid, "booking-service"));
        let [later] = &until_it_waits(&mut told).await[..] else {
            panic!("one holder");
        };
        assert!(later.since > seen.since && later.since < Duration::from_secs(60));
        let said = format!("process {pid} (`booking-service`");
        assert!(later.to_string().starts_with(&said), "{later}");
        drop(
            holder
                .finish(Ok::<_, advisory_runtime::Error>(()))
                .await
                .unwrap(),
        );
    });
    let report = report.unwrap();
    assert_eq!(report.applied, NAMES);
    assert!(report.waited >= Duration::from_millis(900), "{report:?}");
    let mut steps = Vec::new();
    while let Some(step) = told.recv().await {
        match step {
            Step::Waiting { .. } => {}
            Step::Locked { pending, .. } => steps.push(format!("locked: {pending}")),
            Step::Running { number, of, .. } => steps.push(format!("running {number} of {of}")),
            Step::Done { migration, .. } => steps.push(migration),
            step => panic!("{step}"),
        }
    }
    let expected = [
        "locked: 3",
        "running 1 of 3",
        NAMES[0],
        "running 2 of 3",
        NAMES[1],
        "running 3 of 3",
        NAMES[2],
    ];
    assert_eq!(steps, expected);
    assert_migrated(&db).await;
}

#[tokio::test]
async fn a_wait_has_an_end_and_names_the_holder() {
    let db = Database::create().await;
    let holder = session::acquire_owned(db.connect().await, KEY)
        .await
        .unwrap();
    for wait in [Duration::ZERO, Duration::from_millis(300)] {
        let error = Migrator::new(MIGRATIONS)
            .wait(wait)
            .run(db.url())
            .await
            .unwrap_err();
        let text = error.to_string();
        let Error::TimedOut {
            holders, waited, ..
        } = error
        else {
            panic!("{error:?}");
        };
        assert_eq!(holders.len(), 1);
        assert!(waited >= wait);
        assert!(
            text.contains(&format!("held by process {}", holders[0].pid)),
            "{text}"
        );
    }
    // Another key is another lock.
    let report = Migrator::new(MIGRATIONS)
        .key(7)
        .wait(Duration::ZERO)
        .run(db.url())
        .await;
    assert_eq!(report.unwrap().applied, NAMES);
    // If nothing is pending, there is nothing to wait for.
    let report = migrations::run(db.url(), MIGRATIONS).await.unwrap();
    assert_eq!(report, Report::default());
    drop(holder);
    assert_migrated(&db).await;
}
