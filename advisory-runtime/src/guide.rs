#![cfg_attr(
    any(not(doctest), feature = "diesel-async"),
    doc = include_str!("../docs/links.md"),
    doc = include_str!("../docs/README.md")
)]
#![doc = "The pages are part of the documentation alone: a program that uses this crate does not compile them."]

/// Defines the labels of links to files of the repository, at the tag of this version.
macro_rules! repository {
    ($($file:literal)*) => { concat!($(
        "[repository:", $file, "]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/v", env!("CARGO_PKG_VERSION"), "/", $file, "\n",
    )*) };
}

/// Declares each page beside its file, in reading order. `links.md` defines what the labels of its
/// links mean here. The examples are tests only with the features that they use.
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
                    feature = "chrono",
                    feature = "uuid"
                )
            ),
            doc = include_str!("../docs/links.md"),
            doc = repository!(
                "docs/alerts.md"
                "docs/alerts.yml"
                "docs/benchmarks.md"
                "docs/dashboard.json"
                "docs/stress.md"
                "docs/stuck-locks.md"
                "examples/account_cleanup.rs"
                "examples/guarded_table.rs"
                "examples/shards.rs"
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
    collisions = "collisions";
    waiting = "waiting";
    connections = "connections";
    isolation = "isolation";
    nesting = "nesting";
    cancellation = "cancellation";
    commits = "commits";
    errors = "errors";
    diesel_errors = "diesel-errors";
    testing = "testing";
    owned_locks = "owned-locks";
    leases = "leases";
    lease_errors = "lease-errors";
    leadership = "leadership";
    claims = "claims";
    claim_errors = "claim-errors";
    periodic_jobs = "periodic-jobs";
    deploys = "deploys";
    migrations = "migrations";
    holding = "holding";
    guarded_tables = "guarded-tables";
    watching = "watching";
    doctor = "doctor";
    several_servers = "several-servers";
    well_known_keys = "well-known-keys";
    guarantees = "guarantees";
    costs = "costs";
    comparison = "comparison";
    moving = "moving";
    moving_queues = "moving-queues";
    upgrading = "upgrading";
    expansion = "expansion";
}
