//! A lock, one query, and the release: ours compared with each rival, in every setting.

use crate::case::{Case, Measured};
use crate::flags::Flags;
use crate::ours::{Session, Xact, XactBlocking};
use crate::rivals::{diesel_async, diesel_blocking, sqlx, tokio_postgres};
use crate::server::Server;
use crate::setting::Setting;
use crate::side::{Beside, Blocking, Open, Operation, Threads};

const XACT: &str = "lock, query, commit";
const SESSION: &str = "session: lock, query";
const BLOCKING: &str = "blocking: lock, query";

/// One server, one setting, and the results so far.
struct Pairs<'r> {
    server: &'r Server,
    flags: &'r Flags,
    setting: Setting,
    tell: &'r mut dyn FnMut(Measured),
}

pub(crate) async fn run(server: &Server, flags: &Flags, tell: &mut dyn FnMut(Measured)) {
    for setting in Setting::all() {
        let mut pairs = Pairs {
            server,
            flags,
            setting,
            tell,
        };
        macro_rules! compare {
            ($($how:ident $ours:ty, $theirs:ty, $what:ident, $rival:literal;)*) => { $(
                pairs.$how::<$ours, $theirs>($what, $rival).await;
            )* };
        }
        compare! {
            pair Xact, diesel_async::ByHand, XACT, "diesel-async by hand";
            pair Xact, tokio_postgres::Sequential, XACT, "tokio-postgres, 4 round trips";
            pair Xact, tokio_postgres::Three, XACT, "tokio-postgres, 3 round trips";
            pair Xact, tokio_postgres::Pipelined, XACT, "tokio-postgres, pipelined";
            pair Xact, sqlx::Transaction, XACT, "sqlx's transaction";
            pair Session, sqlx::Lock, SESSION, "sqlx's PgAdvisoryLock";
            threads XactBlocking, diesel_blocking::ByHand, BLOCKING, "blocking Diesel by hand";
        }
        #[cfg(feature = "distributed-lock")]
        compare! {
            pair Session, crate::rivals::distributed_lock::Lock, SESSION, "distributed-lock-postgres";
        }
    }
}

impl Pairs<'_> {
    fn case(&self, what: &'static str, rival: &'static str) -> Option<Case> {
        let case = Case {
            what,
            note: "",
            setting: self.setting,
            rival,
        };
        self.flags.wants(&case.label()).then_some(case)
    }

    async fn pair<O, R>(&mut self, what: &'static str, rival: &'static str)
    where
        O: Open + Operation + 'static,
        R: Open + Operation + 'static,
    {
        let Some(case) = self.case(what, rival) else {
            return;
        };
        let (connections, keys) = (self.setting.connections, self.setting.keys);
        let (url, rounds) = (self.server.url(&self.setting), self.flags.pairs());
        let mut ours = Beside::<O>::open(url, connections, keys).await;
        let mut theirs = Beside::<R>::open(url, connections, keys).await;
        (self.tell)(case.measure(rounds, &mut ours, &mut theirs).await);
    }

    async fn threads<O: Blocking, R: Blocking>(&mut self, what: &'static str, rival: &'static str) {
        let Some(case) = self.case(what, rival) else {
            return;
        };
        let (connections, keys) = (self.setting.connections, self.setting.keys);
        let (url, rounds) = (self.server.url(&self.setting), self.flags.pairs());
        let mut ours = Threads::<O>::open(url, connections, keys);
        let mut theirs = Threads::<R>::open(url, connections, keys);
        (self.tell)(case.measure(rounds, &mut ours, &mut theirs).await);
    }
}
