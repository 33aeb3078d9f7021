//! Paths of the model, step by step on a server: the statements of leases answer as the model does.
//!
//! They are the statements that the library has prepared, with values of the test: a try that is
//! late or sent twice has the number of another one.

use advisory_model::{Action, Call, Leases, Process, State, TTL, Transaction};
use advisory_runtime::lease::{self, Error, Table};
use advisory_tests::Database;
use advisory_tests::leases::{key, once, until_renewed};
use advisory_tests::statements::prepared;
use diesel::QueryableByName;
use diesel::dsl::sql;
use diesel::sql_types::{BigInt, Bool, Nullable};
use diesel_async::{
    AnsiTransactionManager, AsyncConnection as _, AsyncPgConnection, RunQueryDsl,
    SimpleAsyncConnection, TransactionManager,
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

/// A statement of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Statement {
    Acquire,
    TakeOver,
    Renew,
    Release,
    Fence,
    Complete,
}

use Statement::{Acquire, Complete, Fence, Release, Renew, TakeOver};

/// A text of each statement that none after it has.
const TEXTS: [(&str, Option<Statement>); 7] = [
    // A grant that also removes expired rows.
    ("swept AS", None),
    ("pg_try_advisory_xact_lock", Some(Acquire)),
    ("nextval", Some(TakeOver)),
    ("renewed AS", Some(Renew)),
    ("fenced AS", Some(Fence)),
    ("pg_current_xact_id", Some(Complete)),
    ("LEAST(expires_at", Some(Release)),
];

/// The statements, as the library has prepared them.
async fn statements(db: &Database) -> BTreeMap<Statement, String> {
    let (pool, table) = (db.deadpool(1), Table::new());
    let leases = lease::Leases::new(pool.clone());
    let mut found = BTreeMap::new();
    while found.len() < 6 {
        once(&leases, key("released")).await.unwrap();
        // A renewal closes the connection if its answer is late by an eighth of this.
        let request = key("k").keep(TICK).renew(Duration::from_secs(1));
        let held = leases.acquire(request.clone()).await.unwrap();
        until_renewed(held.lease()).await;
        let mut conn = pool.get().await.unwrap();
        let taken = table.take_over(&mut conn, request, held.lease().token());
        let taken = taken.await.unwrap().unwrap();
        let completed = conn.transaction(async |conn| {
            taken.fence(conn).await?;
            taken.complete(conn).await
        });
        completed.await.unwrap();
        for sent in prepared(&mut conn, "advisory_lease").await {
            let known = TEXTS.iter().find(|(text, _)| sent.statement.contains(text));
            if let Some((_, Some(statement))) = known {
                found.insert(*statement, sent.statement);
            }
        }
        drop(conn);
        held.finish(Ok::<_, Error>(())).await.unwrap_err();
        db.run("DELETE FROM advisory_lease").await;
    }
    found
}

/// A grant, as its process knows it.
#[derive(Clone, Copy, Debug)]
struct Grant {
    id: i64,
    token: i64,
}

struct Server {
    statements: BTreeMap<Statement, String>,
    /// For the calls, and for their renewals and take-overs.
    connections: Vec<(AsyncPgConnection, AsyncPgConnection)>,
    leases: Vec<Option<Grant>>,
    observer: AsyncPgConnection,
    /// The number of the last take-over; no call has one of these.
    taken: i64,
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

const KEY: &str = "(pg_catalog.sha256('k'))";

/// The values of a grant, but for the last one: the key, the grant, its holder, and so on.
fn values_of_grant(id: i64, last: i64) -> Vec<String> {
    let ttl = (TICK * u32::from(TTL)).as_millis();
    [
        KEY,
        &format!("({id}::int8)"),
        "'h'::text",
        "NULL::text",
        "NULL::text",
        &format!("({ttl}::int8)"),
        "NULL::text",
        &format!("({last}::int8)"),
    ]
    .map(str::to_owned)
    .into()
}

impl Grant {
    fn values(self) -> Vec<String> {
        let kept = i64::try_from(TICK.as_millis()).unwrap() * 100;
        let numbers = [self.id, self.token, kept];
        let numbers = numbers.map(|number| format!("({number}::int8)"));
        [KEY.to_owned()].into_iter().chain(numbers).collect()
    }
}

impl Server {
    async fn new(db: &Database) -> Self {
        let mut connections = Vec::new();
        for _ in 0..MODEL.processes {
            connections.push((db.connect().await, db.connect().await));
        }
        let mut observer = db.connect().await;
        Table::new().set_up(&mut observer).await.unwrap();
        let statements = statements(db).await;
        observer
            .batch_execute("CREATE TABLE work (done_by int8)")
            .await
            .unwrap();
        Self {
            statements,
            leases: vec![None; connections.len()],
            connections,
            observer,
            taken: 1_000,
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
        self.tokens.clear();
        self.stored = 0;
    }

    /// The statement with these values.
    fn sql(&self, statement: Statement, values: &[String]) -> String {
        let mut text = self.statements[&statement].clone();
        for (nth, value) in values.iter().enumerate().rev() {
            text = text.replace(&format!("${}", nth + 1), value);
        }
        text
    }

    /// The token and the time left in the answer to a try.
    async fn ask(&mut self, of: Process, is_late: bool, text: &str) -> (Option<i64>, i64) {
        let (conn, late) = &mut self.connections[of];
        let conn = if is_late { late } else { conn };
        let asked = sql::<(Nullable<BigInt>, BigInt, BigInt)>(text);
        let (token, left, _): (_, _, i64) = asked.get_result(conn).await.unwrap();
        match (token, left) {
            // The row is locked, so the key is held.
            (Some(_), -2) => (None, 0),
            (Some(_), ..0) => panic!("the sequence has an old number"),
            answer => answer,
        }
    }

    /// Returns whether a statement of the process's lease finds or changes the row.
    async fn affects(&mut self, statement: Statement, of: Process) -> bool {
        let text = self.sql(statement, &self.leases[of].unwrap().values());
        let (conn, _) = &mut self.connections[of];
        diesel::sql_query(text).execute(conn).await.unwrap() > 0
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
                let swept = Table::new().sweep(&mut self.observer).await.unwrap();
                let is_gone = before.data.row.is_some() && after.data.row.is_none();
                assert_eq!(swept, usize::from(is_gone));
                if is_gone { "sweep" } else { "sweep refused" }
            }
            Action::Try(of) => {
                let Call::Asking { grant, .. } = before.processes[of].call else {
                    panic!("{before:?}");
                };
                let text = self.sql(Acquire, &values_of_grant(grant.into(), 1));
                let (token, left) = self.ask(of, false, &text).await;
                let is_done = after.data.row.is_some_and(|row| row.is_kept);
                match (token, &after.processes[of].call) {
                    (Some(token), Call::Asking { granted, .. }) => {
                        let ttl = TICK * u32::from(TTL);
                        let left = match Duration::from_micros(left.unsigned_abs()) {
                            Duration::ZERO => ttl,
                            left => left,
                        };
                        let left = left.div_duration_f64(TICK).ceil();
                        assert_eq!(Some(left), granted.map(|lease| lease.left.into()));
                        let id = grant.into();
                        self.leases[of] = Some(Grant { id, token });
                        if before.data.row == after.data.row {
                            "grant found again"
                        } else {
                            "grant"
                        }
                    }
                    (None, Call::Idle) if left >= 0 && !is_done => "held",
                    (None, Call::Idle) if left < 0 && is_done => "done",
                    (token, expected) => panic!("{token:?} {left} instead of {expected:?}"),
                }
            }
            Action::LateTry(of) => {
                let grant = before.processes[of].late_try.unwrap();
                let text = self.sql(Acquire, &values_of_grant(grant.into(), 1));
                let (token, _) = self.ask(of, true, &text).await;
                if token.is_none() {
                    assert_eq!(before.data.row, after.data.row);
                    "late try refused"
                } else if before.data.row == after.data.row {
                    "late try of the holder"
                } else {
                    "late grant"
                }
            }
            Action::TakeOver(of) => {
                let found = self.row().await.unwrap();
                self.taken += 1;
                let id = self.taken;
                let text = self.sql(TakeOver, &values_of_grant(id, found.token));
                let (token, _) = self.ask(of, false, &text).await;
                let token = token.unwrap();
                self.leases[of] = Some(Grant { id, token });
                "take-over"
            }
            Action::Renew(of) | Action::RenewUnanswered(of) => {
                let ttl = TICK * u32::from(TTL);
                let Grant { id, token } = self.leases[of].unwrap();
                let numbers = [id, token, i64::try_from(ttl.as_millis()).unwrap()];
                let numbers = numbers.map(|number| format!("ARRAY[{number}::int8]"));
                let keys = [format!("ARRAY[{KEY}]")].into_iter();
                let text = self.sql(Renew, &keys.chain(numbers).collect::<Vec<_>>());
                let (_, conn) = &mut self.connections[of];
                let (_, renewed, is_held): (i64, _, _) = sql::<(BigInt, Bool, Bool)>(&text)
                    .get_result(conn)
                    .await
                    .unwrap();
                let row = after.data.row;
                let Call::Holding(held) = before.processes[of].call else {
                    panic!("{before:?}");
                };
                let is_ours = |row: advisory_model::Row| {
                    row.token == held.token && row.left == TTL && !row.is_kept
                };
                // A row that another transaction has locked stays as it is.
                assert_eq!(renewed || is_held, row.is_some_and(is_ours));
                if renewed || is_held {
                    "renewal"
                } else {
                    "renewal refused"
                }
            }
            Action::Release(of) => {
                self.affects(Release, of).await;
                self.leases[of] = None;
                "release"
            }
            Action::Fence(of) => {
                self.begin(of).await;
                let is_fenced = self.affects(Fence, of).await;
                assert_eq!(is_fenced, is_open(of));
                if is_fenced {
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
                let is_completed = self.affects(Complete, of).await;
                assert_eq!(is_completed, is_open(of));
                if is_completed {
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
                let token = self.leases[of].unwrap().token;
                let is_refused = token < self.stored;
                assert_eq!(is_refused, held.token < before.storage.token);
                self.stored = self.stored.max(token);
                if is_refused {
                    "write elsewhere refused"
                } else {
                    "write elsewhere"
                }
            }
            // These steps change only the process.
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

/// Chooses one of this many, pseudo-randomly.
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
