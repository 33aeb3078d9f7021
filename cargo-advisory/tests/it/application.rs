//! An application of six crates and ninety lock sites: its documents match its inventory, and
//! changes are reported.
//!
//! Its crates are linked into this test, so that the test's own file is the artifact: it is never
//! out of date, and no test has to build it.

use lets_server as _;

use crate::programs::{Said, advisory, assert_has, file};

const DOCUMENT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../tests/harbour-lets/LOCKS.md"
);

/// The document of the previous release, in which the case of voucher codes still mattered.
const BEFORE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../tests/harbour-lets/locks-2.3.json"
);

fn own(words: &[&str]) -> Said {
    let program = std::env::current_exe().unwrap();
    let artifact = ["--artifact", program.to_str().unwrap()];
    advisory(&[words, &artifact].concat())
}

#[test]
fn its_locks_do_not_collide_and_its_document_matches_dump() {
    let said = own(&["check", "--registry", DOCUMENT]);
    assert_eq!(said.code, Some(0), "{}", said.out);
    let counts = "91 lock sites in 6 crates: lets-admin 2.4.0 (15), lets-bookings 2.4.0 (32)";
    assert_has(&said.out, counts);
    // Exactly, although `check` ignores changed line numbers.
    let committed = std::fs::read_to_string(DOCUMENT).unwrap();
    let written = own(&["dump", "--format", "markdown"]).out;
    assert!(
        written == committed,
        "write it again: `cargo advisory dump --package lets-server --format markdown -o {DOCUMENT}`"
    );
}

#[test]
fn its_guarded_table_has_the_trigger_that_the_command_prints() {
    let words = ["migration", "require", "--lock", "room-night"];
    let columns = ["--table", "blocks", "--column", "room=room_id"];
    let printed = own(&[&words[..], &columns].concat()).out;
    let committed =
        include_str!("../../../tests/harbour-lets/store/migrations/0002_guarded_blocks.sql");
    assert!(printed == committed, "{printed}");
}

#[test]
fn a_pattern_that_was_changed_is_drift_wherever_it_is_taken() {
    let committed = std::fs::read_to_string(DOCUMENT).unwrap();
    let old = committed.replace("`voucher:<code\\|trim\\|lower>`", "`voucher:<code>`");
    let document = file("application-old.md", old);
    let said = own(&["check", "--registry", &document]).exits(1);
    for function in ["locks::VoucherLock", "vouchers::redeem", "vouchers::sell"] {
        let lines = said.out.lines().filter(|line| line.contains(function));
        let signs: Vec<_> = lines.filter_map(|line| line.trim().get(..3)).collect();
        assert_eq!(signs, ["= -", "= +"], "{}", said.out);
    }
}

#[test]
fn an_unintended_key_change_since_the_last_release_is_reported() {
    let said = own(&["check", "--against", BEFORE]).exits(1);
    let change = "the key of advisory lock `lets_domain::locks::VoucherLock` has changed from `voucher:<code>` by sha256 to \
                  `voucher:<code|trim|lower>` by sha256";
    assert_has(&said.out, change);
    assert_has(&said.out, "error: 1 finding");
    let meant = ["check", "--against", BEFORE, "--allow-key-change"];
    let said = own(&[&meant[..], &["lets_domain::locks::VoucherLock"]].concat());
    assert_eq!(said.code, Some(0), "{}", said.out);
}
