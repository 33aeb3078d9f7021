//! The guide: a page for each question that comes up with locks, each of which opens with its answer.
//!
//! | you want to know | page |
//! | --- | --- |
//! | whether you need a lock at all | [`when_not_to_lock`] |
//! | transaction, session, lease or claim | [`scopes`] |
//! | what to write as `key` | [`keys`] |
//! | which numbers other tools lock | [`well_known_keys`] |
//! | why two locks do not compile together, and how they are made one | [`collisions`] |
//! | how long a call waits, and what that does to the pool | [`waiting`] |
//! | what the body reads, at which isolation level | [`isolation`] |
//! | what happens when locked functions call each other | [`nesting`] |
//! | how a function is not to be called without its lock | [`holding`] |
//! | whether it works with your pool, your pooler, your server | [`connections`] |
//! | what a dropped future or a panic leaves behind | [`cancellation`] |
//! | what `Ok` means, and what to do when the answer to a commit is lost | [`commits`] |
//! | how a lock is stored, or moved to a task | [`owned_locks`] |
//! | how several processes run Diesel's migrations | [`migrations`] |
//! | how to hold a key for longer than a transaction | [`leases`] |
//! | how one process of several leads | [`leadership`] |
//! | how the database refuses a write without its lock | [`guarded_tables`] |
//! | how workers share a job table | [`claims`] |
//! | who holds it right now, and what to be woken for | [`watching`] |
//! | what the settings of a server mean for locks | [`doctor`] |
//! | what an error means, and what to do | [`errors`] |
//! | whether an error type that matches on Diesel's kinds still sees them | [`diesel_errors`] |
//! | how to test all that | [`testing`] |
//! | what a lock costs | [`costs`] |
//! | how this compares with other libraries | [`comparison`] |
//! | how to come from SQL by hand, sqlx, Django, Ruby or `SyncGuard` | [`moving`] |
//! | what is promised, by which mechanism, and what is not | [`guarantees`] |
//! | what the compiler sees in the attribute's place | [`expansion`] |
//!
//! The pages are part of the documentation alone: a program that uses this crate does not compile them.

/// Declares each page beside its file. The examples of some are tests only where all is there that they use.
macro_rules! pages {
    ($($page:ident = $file:literal;)*) => { $(
        #[cfg_attr(
            any(
                not(doctest),
                all(
                    feature = "testing",
                    feature = "bb8",
                    feature = "deadpool",
                    feature = "r2d2",
                    feature = "migrations",
                    feature = "uuid"
                )
            ),
            doc = include_str!(concat!("../docs/", $file, ".md"))
        )]
        pub mod $page {}
    )* };
}
pages! {
    when_not_to_lock = "when-not-to-lock";
    scopes = "scopes";
    keys = "keys";
    well_known_keys = "well-known-keys";
    collisions = "collisions";
    waiting = "waiting";
    isolation = "isolation";
    nesting = "nesting";
    holding = "holding";
    connections = "connections";
    cancellation = "cancellation";
    commits = "commits";
    owned_locks = "owned-locks";
    migrations = "migrations";
    leases = "leases";
    leadership = "leadership";
    guarded_tables = "guarded-tables";
    claims = "claims";
    watching = "watching";
    doctor = "doctor";
    errors = "errors";
    diesel_errors = "diesel-errors";
    testing = "testing";
    costs = "costs";
    comparison = "comparison";
    moving = "moving";
    guarantees = "guarantees";
    expansion = "expansion";
}
