//! A lock, one query, and the release: ours compared with each rival, in every setting.

use crate::case::{Case, Measured};
use crate::flags::Flags;
use crate::ours::{Session, Xact, XactBlocking};
use crate::rivals::{diesel_async, diesel_blocking, sqlx, tokio_postgres};
use crate::server::Server;
use crate::setting::Setting;
use crate::side::Threads;

const XACT: &str = "lock, query, commit";
const SESSION: &str = "session: lock, query";
const BLOCKING: &str = "blocking: lock, query";

pub(crate) async fn run(server: &Server, flags: &Flags, tell: &mut dyn FnMut(Measured)) {
    for setting in Setting::all() {
        let url = server.url(&setting);
        macro_rules! compare {
            ($($ours:ty, $theirs:ty, $what:ident, $rival:literal;)*) => { $(
                if let Some(case) = Case::wanted(flags, [$what, ""], setting, $rival) {
                    tell(case.pair::<$ours, $theirs>(flags, url, url).await);
                }
            )* };
        }
        compare! {
            Xact, diesel_async::ByHand, XACT, "diesel-async by hand";
            Xact, tokio_postgres::Sequential, XACT, "tokio-postgres, 4 round trips";
            Xact, tokio_postgres::Three, XACT, "tokio-postgres, 3 round trips";
            Xact, tokio_postgres::Pipelined, XACT, "tokio-postgres, pipelined";
            Xact, sqlx::Transaction, XACT, "sqlx's transaction";
            Session, sqlx::Lock, SESSION, "sqlx's PgAdvisoryLock";
        }
        if let Some(case) = Case::wanted(flags, [BLOCKING, ""], setting, "blocking Diesel by hand")
        {
            let (connections, keys) = (setting.connections, setting.keys);
            let mut ours = Threads::<XactBlocking>::open(url, connections, keys);
            let mut theirs = Threads::<diesel_blocking::ByHand>::open(url, connections, keys);
            tell(case.measure(flags.pairs(), &mut ours, &mut theirs).await);
        }
        #[cfg(feature = "distributed-lock")]
        compare! {
            Session, crate::rivals::distributed_lock::Lock, SESSION, "distributed-lock-postgres";
        }
    }
}
