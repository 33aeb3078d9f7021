//! The cost of the comment that shows a lock in the server's views: the same call with and without
//! it.

use crate::case::{Case, Measured};
use crate::flags::Flags;
use crate::ours::Xact;
use crate::setting::{Keys, Setting};
use crate::side::{Beside, Side};
use advisory_runtime::monitor::{Shown, show};
use advisory_tests::Database;
use std::time::Duration;

struct Showing {
    side: Beside<Xact>,
    shown: Shown,
}

impl Side for Showing {
    async fn run(&mut self, length: Duration) -> f64 {
        show(self.shown);
        let speed = self.side.run(length).await;
        show(Shown::Pattern);
        speed
    }
}

pub(crate) async fn run(db: &Database, flags: &Flags, tell: &mut dyn FnMut(Measured)) {
    let showing = async |shown| Showing {
        side: Beside::open(db.url(), 1, Keys::Distinct).await,
        shown,
    };
    for (note, shown) in [("the pattern", Shown::Pattern), ("the key", Shown::Key)] {
        let what = ["xact: what showing costs", note];
        if let Some(case) = Case::wanted(flags, what, Setting::plain(1), "showing nothing") {
            let mut theirs = showing(Shown::Nothing).await;
            let mut ours = showing(shown).await;
            tell(case.measure(flags.pairs(), &mut ours, &mut theirs).await);
        }
    }
}
