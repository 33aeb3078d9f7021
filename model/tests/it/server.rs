//! Paths of the model, step by step on a server: it answers as the model does.

use advisory_model::{Action, Call, Leases, Process, State, TTL, Transaction};
use advisory_runtime::__private::lease::Steps as _;
use advisory_runtime::Wait;
use advisory_runtime::lease::{Error, FencingToken, Lease, Request, Table};
use advisory_tests::Database;
use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Bool};
use diesel_async::{
    AnsiTransactionManager, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection,
    TransactionManager,
};
use stateright::Model as _;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A tick on the server: every expiry is moved back by this. A path takes less.
const TICK: Duration = Duration::from_secs(1000);

const PATHS: u64 = 40;
const STEPS: usize = 60;

/// Longer paths than the check has, with the faults that need no other server.
const MODEL: Leases = Leases {
    processes: 3,
    calls: 12,
    faults: 8,
    bug: None,
    is_symmetric: false,
};

struct Server {
    table: Table,
    /// For the calls, and for their renewals and take-overs.
    connections: Vec<(AsyncPgConnection, AsyncPgConnection)>,
    leases: Vec<Option<Lease>>,
    observer: AsyncPgConnection,
    /// Of all grants.
    seen: Vec<FencingToken>,
    /// By the number of the grant.
    tokens: BTreeMap<u8, i64>,
    /// The largest token in the storage elsewhere.
    stored: i64,
}

#[derive(QueryableByName)]
struct Found {
    #[diesel(sql_type = BigInt)]
    token: i64,
    #[diesel(sql_type = Bool)]
    is_kept: bool,
    #[diesel(sql_type = BigInt)]
    ticks: i64,
}

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

fn ttl() -> Duration {
    TICK * u32::from(TTL)
}

fn request() -> Request {
    let request = Request::text("k").ttl(ttl()).wait(Wait::Never);
    request.keep(TICK * 100)
}

impl Server {
    async fn new(db: &Database) -> Self {
        let mut connections = Vec::new();
        for _ in 0..MODEL.processes {
            connections.push((db.connect().await, db.connect().await));
        }
        let mut observer = db.connect().await;
        Table::new().set_up(&mut observer).await.unwrap();
        observer
            .batch_execute("CREATE TABLE work (done_by int8)")
            .await
            .unwrap();
        Self {
            table: Table::new(),
            leases: vec![None; connections.len()],
            connections,
            observer,
            seen: Vec::new(),
            tokens: BTreeMap::new(),
            stored: 0,
        }
    }

    async fn restart(&mut self) {
        for process in 0..MODEL.processes {
            self.roll_back(process).await;
        }
        let empty = "DELETE FROM advisory_lease; DELETE FROM work";
        self.observer.batch_execute(empty).await.unwrap();
        self.leases.fill(None);
        self.seen.clear();
        self.tokens.clear();
        self.stored = 0;
    }

    async fn begin(&mut self, of: Process) {
        let (conn, _) = &mut self.connections[of];
        AnsiTransactionManager::begin_transaction(conn)
            .await
            .unwrap();
    }

    /// Also where there is no transaction.
    async fn roll_back(&mut self, of: Process) {
        let (conn, _) = &mut self.connections[of];
        drop(AnsiTransactionManager::rollback_transaction(conn).await);
    }

    #[allow(clippy::too_many_lines, reason = "one arm for each step")]
    async fn step(&mut self, action: Action, before: &State, after: &State) -> &'static str {
        let is_open = |of: Process| after.processes[of].transaction.is_some();
        match action {
            Action::Tick => {
                let seconds = TICK.as_secs();
                let tick = format!(
                    "UPDATE advisory_lease SET expires_at = expires_at - interval '{seconds} s' WHERE NOT is_kept"
                );
                self.observer.batch_execute(&tick).await.unwrap();
                "tick"
            }
            Action::Sweep => {
                let swept = self.table.sweep(&mut self.observer).await.unwrap();
                let is_gone = before.data.row.is_some() && after.data.row.is_none();
                assert_eq!(swept, usize::from(is_gone));
                if is_gone { "sweep" } else { "sweep refused" }
            }
            Action::Try(of) => {
                let Call::Asking { grant, .. } = before.processes[of].call else {
                    panic!("{before:?}");
                };
                let (conn, _) = &mut self.connections[of];
                let tried = self.table.acquire_as(conn, request(), grant.into());
                let tried = tried.await;
                let is_done = after.data.row.is_some_and(|row| row.is_kept);
                match (tried, &after.processes[of].call) {
                    (Ok(lease), Call::Asking { granted, .. }) => {
                        let left = lease.remaining().div_duration_f64(TICK).ceil();
                        assert_eq!(Some(left), granted.map(|lease| lease.left.into()));
                        self.seen.push(lease.token());
                        self.leases[of] = Some(lease);
                        if before.data.row == after.data.row {
                            "grant found again"
                        } else {
                            "grant"
                        }
                    }
                    (Err(Error::Held { .. }), Call::Idle) if !is_done => "held",
                    (Err(Error::Done { .. }), Call::Idle) if is_done => "done",
                    (tried, expected) => panic!("{tried:?} instead of {expected:?}"),
                }
            }
            Action::LateTry(of) => {
                let grant = before.processes[of].late_try.unwrap();
                let (_, conn) = &mut self.connections[of];
                let late = self.table.acquire_as(conn, request(), grant.into());
                let Ok(late) = late.await else {
                    assert_eq!(before.data.row, after.data.row);
                    return "late try refused";
                };
                self.seen.push(late.token());
                if before.data.row == after.data.row {
                    "late try of the holder"
                } else {
                    "late grant"
                }
            }
            Action::TakeOver(of) => {
                let found = self.row().await.unwrap();
                let mut seen = self.seen.iter();
                let seen = seen.find(|seen| seen.get() == found.token).unwrap();
                let (conn, _) = &mut self.connections[of];
                let taken = self.table.take_over(conn, request(), *seen).await.unwrap();
                let lease = taken.unwrap();
                self.seen.push(lease.token());
                self.leases[of] = Some(lease);
                "take-over"
            }
            Action::Renew(of) | Action::RenewUnanswered(of) => {
                let (_, conn) = &mut self.connections[of];
                let lease = self.leases[of].as_ref().unwrap();
                let renewed = self.table.renew(conn, lease, ttl()).await.unwrap();
                let row = after.data.row;
                let Call::Holding(held) = before.processes[of].call else {
                    panic!("{before:?}");
                };
                let is_ours = |row: advisory_model::Row| {
                    row.token == held.token && row.left == TTL && !row.is_kept
                };
                assert_eq!(renewed, row.is_some_and(is_ours));
                if renewed {
                    "renewal"
                } else {
                    "renewal refused"
                }
            }
            Action::Release(of) => {
                let (conn, _) = &mut self.connections[of];
                let lease = self.leases[of].take().unwrap();
                self.table.release(conn, &lease).await.unwrap();
                "release"
            }
            Action::Fence(of) => {
                self.begin(of).await;
                let (conn, _) = &mut self.connections[of];
                let lease = self.leases[of].as_ref().unwrap();
                let fenced = lease.fence(conn).await;
                assert_eq!(fenced.is_ok(), is_open(of), "{fenced:?}");
                if fenced.is_ok() {
                    return "fence";
                }
                self.roll_back(of).await;
                "fence refused"
            }
            Action::Complete(of) => {
                self.begin(of).await;
                let (conn, _) = &mut self.connections[of];
                let work = format!("INSERT INTO work VALUES ({of})");
                conn.batch_execute(&work).await.unwrap();
                let lease = self.leases[of].as_ref().unwrap();
                let completed = lease.complete(conn).await;
                assert_eq!(completed.is_ok(), is_open(of), "{completed:?}");
                if completed.is_ok() {
                    return "complete";
                }
                self.roll_back(of).await;
                "complete refused"
            }
            Action::Commit(of) | Action::CommitUnanswered(of) => {
                let (conn, _) = &mut self.connections[of];
                AnsiTransactionManager::commit_transaction(conn)
                    .await
                    .unwrap();
                "commit"
            }
            Action::RollBack(of) | Action::EndSession(of) | Action::Crash(of) => {
                self.roll_back(of).await;
                "rollback"
            }
            Action::Store(of) => {
                let Call::Holding(held) = before.processes[of].call else {
                    panic!("{before:?}");
                };
                let token = self.leases[of].as_ref().unwrap().token().get();
                let is_refused = token < self.stored;
                assert_eq!(is_refused, held.token < before.storage.token);
                self.stored = self.stored.max(token);
                if is_refused {
                    "write elsewhere refused"
                } else {
                    "write elsewhere"
                }
            }
            // Only the process learns of it, or does not.
            _ => "",
        }
    }

    async fn row(&mut self) -> Option<Found> {
        let seconds = TICK.as_secs();
        let look = format!(
            "SELECT token, is_kept, \
             ceil(extract(epoch FROM expires_at - clock_timestamp()) / {seconds})::int8 AS ticks FROM advisory_lease"
        );
        let mut rows: Vec<Found> = diesel::sql_query(look)
            .load(&mut self.observer)
            .await
            .unwrap();
        rows.pop()
    }

    /// Compares the row and the work with the model's.
    async fn compare(&mut self, state: &State) {
        let found = self.row().await;
        match (&found, state.data.row) {
            (None, None) => {}
            (Some(found), Some(row)) => {
                assert_eq!(found.is_kept, row.is_kept);
                if !row.is_kept {
                    assert_eq!(found.ticks.max(0), i64::from(row.left));
                }
                let before = self.tokens.insert(row.term, found.token);
                assert!(before.is_none_or(|before| before == found.token));
                assert!(self.tokens.values().is_sorted_by(|a, b| a < b));
            }
            (found, row) => panic!(
                "{:?} instead of {row:?}",
                found.as_ref().map(|row| row.token)
            ),
        }
        let count = diesel::sql_query("SELECT count(*) AS count FROM work");
        let count: Count = count.get_result(&mut self.observer).await.unwrap();
        assert_eq!(count.count, i64::from(state.data.effects));
    }
}

/// A failover needs a second server.
fn is_replayable(state: &State, action: Action) -> bool {
    let is_completed =
        |of: &Process| state.processes[*of].transaction == Some(Transaction::Completed);
    match action {
        // The observer's update would wait for the row.
        Action::Tick => !(0..MODEL.processes).any(|of| is_completed(&of)),
        Action::FallBehind | Action::FailOver => false,
        _ => true,
    }
}

/// Which of so many; the same in each run.
fn choose(random: &mut u64, of: usize) -> usize {
    *random = random
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    usize::try_from(*random >> 33).unwrap() % of
}

/// Rare on random paths: a holder that was stopped renews after its own late try, and writes
/// elsewhere after another holder.
const RARE: [&[Action]; 2] = [
    &[
        Action::Ask(0),
        Action::GiveUp(0),
        Action::Try(0),
        Action::Answer(0),
        Action::Stop(0),
        Action::Tick,
        Action::Tick,
        Action::LateTry(0),
        Action::Tick,
        Action::Resume(0),
        Action::Renew(0),
    ],
    &[
        Action::Ask(0),
        Action::Try(0),
        Action::Answer(0),
        Action::Stop(0),
        Action::Tick,
        Action::Tick,
        Action::Ask(1),
        Action::Try(1),
        Action::Answer(1),
        Action::Store(1),
        Action::Resume(0),
        Action::Store(0),
    ],
];

#[tokio::test]
async fn a_server_answers_as_the_model_does() {
    let db = Database::create().await;
    let mut server = Server::new(&db).await;
    let (mut seen, mut random) = (BTreeSet::new(), 7);
    let rare = RARE.map(Some).into_iter();
    for path in rare.chain((0..PATHS).map(|_| None)) {
        server.restart().await;
        let mut state = MODEL.start();
        for step in 0..path.map_or(STEPS, <[_]>::len) {
            let mut actions = Vec::new();
            MODEL.actions(&state, &mut actions);
            actions.retain(|action| is_replayable(&state, *action));
            let action = match path {
                Some(path) => path[step],
                None => actions[choose(&mut random, actions.len())],
            };
            assert!(actions.contains(&action), "{action:?}");
            let next = MODEL.next_state(&state, action);
            let next = next.unwrap_or_else(|| state.clone());
            seen.insert(server.step(action, &state, &next).await);
            server.compare(&next).await;
            state = next;
        }
    }
    let all = [
        "",
        "tick",
        "sweep",
        "sweep refused",
        "grant",
        "grant found again",
        "late grant",
        "late try of the holder",
        "late try refused",
        "held",
        "done",
        "take-over",
        "renewal",
        "renewal refused",
        "release",
        "fence",
        "fence refused",
        "complete",
        "complete refused",
        "commit",
        "rollback",
        "write elsewhere",
        "write elsewhere refused",
    ];
    let missing: Vec<_> = all.iter().filter(|name| !seen.contains(*name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
