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
        pairs
            .pair::<Xact, diesel_async::ByHand>(XACT, "diesel-async by hand")
            .await;
        pairs
            .pair::<Xact, tokio_postgres::Sequential>(XACT, "tokio-postgres, 4 round trips")
            .await;
        pairs
            .pair::<Xact, tokio_postgres::Three>(XACT, "tokio-postgres, 3 round trips")
            .await;
        pairs
            .pair::<Xact, tokio_postgres::Pipelined>(XACT, "tokio-postgres, pipelined")
            .await;
        pairs
            .pair::<Xact, sqlx::Transaction>(XACT, "sqlx's transaction")
            .await;
        pairs
            .pair::<Session, sqlx::Lock>(SESSION, "sqlx's PgAdvisoryLock")
            .await;
        #[cfg(feature = "distributed-lock")]
        pairs
            .pair::<Session, crate::rivals::distributed_lock::Lock>(
                SESSION,
                "distributed-lock-postgres",
            )
            .await;
        pairs
            .threads::<XactBlocking, diesel_blocking::ByHand>(BLOCKING, "blocking Diesel by hand")
            .await;
    }
}

impl Pairs<'_> {
    fn case(&self, what: &'static str, rival: &'static str) -> Option<Case> {
        let (note, setting) = ("", self.setting);
        let case = Case {
            what,
            note,
            setting,
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
        let Setting {
            connections, keys, ..
        } = self.setting;
        let url = self.server.url(&self.setting);
        let mut ours = Beside::<O>::open(url, connections, keys).await;
        let mut theirs = Beside::<R>::open(url, connections, keys).await;
        (self.tell)(
            case.measure(self.flags.pairs(), &mut ours, &mut theirs)
                .await,
        );
    }

    async fn threads<O: Blocking, R: Blocking>(&mut self, what: &'static str, rival: &'static str) {
        let Some(case) = self.case(what, rival) else {
            return;
        };
        let Setting {
            connections, keys, ..
        } = self.setting;
        let url = self.server.url(&self.setting);
        let mut ours = Threads::<O>::open(url, connections, keys);
        let mut theirs = Threads::<R>::open(url, connections, keys);
        (self.tell)(
            case.measure(self.flags.pairs(), &mut ours, &mut theirs)
                .await,
        );
    }
}
