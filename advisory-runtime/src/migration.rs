//! Gives other programs the numbers that this crate locks, as a Diesel migration.
//!
//! [`ADVISORY_KEYS_UP`] and [`ADVISORY_KEYS_DOWN`] are the two sides. The SQL is for whatever shares a lock and is not Rust:
//! another service, a `psql` script, a trigger. Between Rust programs share a declared lock (`#[derive(LockKey)]`) instead.
//! PostgreSQL 15 to 18, no extension.
//!
//! | function | gives | the same in Rust |
//! | --- | --- | --- |
//! | `advisory_key(rendered text)` → `bigint` | the number of a rendered key | every pattern, unless it says `derivation = "…"` |
//! | `advisory_escape(value text)` → `text` | a text as a placeholder renders it: `%` as `%25`, `:` as `%3A` | `<value>` |
//! | `email_to_lock_id(p_email text)` → `bigint` | the number of an address | `"<email\|trim\|lower\|raw>"` |
//! | `generate_lock_id(p_namespace text, p_key text)` → `bigint` | the number of `namespace:key` | `"cleanup:<email\|trim\|lower\|raw>"` for the namespace `cleanup` |
//! | `acquire_cleanup_lock(p_email text)` → `boolean` | whether it took the lock on `email_to_lock_id(p_email)` | |
//! | `release_cleanup_lock(p_email text)` → `boolean` | whether it released it | |
//! | `advisory_holds(key bigint)` → `boolean` | whether this session holds the lock exclusively | |
//! | `advisory_require(key bigint, lock text)` → `void` | an error, with the lock's name, unless it does | |
//!
//! So `advisory_key('booking:' || advisory_escape(guest))` is what `"booking:<guest>"` locks. Integers, dates and UUIDs need no
//! escape; SQL must write them as [`KeyPart`](crate::KeyPart) does, which `uuid::text` and, for the years 1 to 9999 under
//! `DateStyle = ISO`, `date::text` do.
//!
//! # Adding it
//!
//! `cargo advisory migration keys` prints the migration, and with `--down` its other side:
//!
//! ```sh
//! diesel migration generate advisory_keys
//! cargo advisory migration keys -o migrations/*_advisory_keys/up.sql
//! cargo advisory migration keys --down -o migrations/*_advisory_keys/down.sql
//! ```
//!
//! Or run the constants in a transaction. The functions are made in the first schema of the `search_path`, and then granted to
//! whoever calls them:
//!
//! ```sql
//! GRANT EXECUTE ON FUNCTION advisory_key(text), advisory_escape(text) TO worker;
//! ```
//!
//! PUBLIC may not, for HTTP gateways publish what their role may call, and who may take a lock on any key can stop those who need
//! it. Each function stands alone: a grant on one is enough. They run with the caller's rights and a pinned `search_path`.
//!
//! # Locking
//!
//! `acquire_cleanup_lock` is `pg_try_advisory_lock`: exclusive, session-level, without waiting. The lock is held until the same
//! session has released it as often as it took it, or ends; a rollback does not free it. `release_cleanup_lock` is
//! `pg_advisory_unlock`. Neither raises a `NOTICE`, as the recipe that they come from does: the number is an unsalted hash, and who
//! has the log can check a guessed address against it. (So can who reads `pg_locks` while the lock is held.) The others lock
//! nothing.
//!
//! `advisory_holds` and `advisory_require` take nothing. They look for a lock of this session, transaction-level or session-level, in
//! exclusive mode; a shared lock is not enough. [`guarded_tables`](crate::guide::guarded_tables) has what they cost, and a trigger
//! that needs neither.
//!
//! # Errors
//!
//! - 55000: `advisory_require` found that this session does not hold the lock.
//! - 22004: an argument is NULL; the message says which. A plain `pg_try_advisory_lock(NULL)` locks nothing and returns NULL, and
//!   `IF NOT NULL` goes on as if it were held.
//! - 42501: the role has no `EXECUTE`.
//! - 42723, when the migration runs: there is such a function already, perhaps a recipe's own. Nothing is replaced: see what it
//!   computes and who calls it, then drop or rename it.
//! - 2BP01, when the migration is reverted: an index or a view uses one. Nothing is dropped. A generated column is refused likewise
//!   from PostgreSQL 15 on; 14 drops the column with the function.
//! - 01000, a warning: `release_cleanup_lock` found that this session does not hold the lock, and returned `false`.
//!
//! # What the recipes get wrong
//!
//! Four of the functions bear the names of a recipe in circulation, so that its callers go on working. They compute what it
//! computes, with one exception: `lower` changes only A to Z, where the recipe follows the database's locale. Under most of them
//! `É` becomes `é`, under a Turkish one `I` becomes `ı`; here they become `É` and `i`. Keys must not change with a release of Unicode's
//! tables. A program that uses both, or JavaScript's `toLowerCase().trim()`, must give ASCII, or text that is lower-case and
//! trimmed already.
//!
//! | a recipe in circulation says | what is so |
//! | --- | --- |
//! | `digest()`, so `CREATE EXTENSION pgcrypto` | `sha256()` is built in since PostgreSQL 11 |
//! | `IF v_lock_id > 9223372036854775807` makes the number signed | it is never true: that is the greatest `bigint`, and the shift has set the sign already |
//! | `classid = 0` in `pg_locks` finds session-level locks, and `objid` is the key | `classid` is the upper half of a `bigint` key and `objid` the lower; `objsubid` is 1 for `bigint` keys and 2 for pairs; [nothing there](https://www.postgresql.org/docs/current/view-pg-locks.html) tells session-level from transaction-level. Read `(classid::bigint << 32) \| objid::bigint` |
//! | `pg_advisory_lock` has an optional timeout | it has none; set `lock_timeout` |
//! | the lock expires after 30 seconds | no advisory lock expires. A timeout beside the work, as `Promise.race` is one, releases the lock while the work goes on |
//! | acquire in one request to an HTTP gateway, release in another | each may reach another session of its pool. Then the release returns `false`, the lock stays, and a second caller on the first's session gets it too. Use a transaction-level lock in one request |
//! | `hashtext` is a CRC32 | it is a variant of [lookup3](https://github.com/postgres/postgres/blob/REL_18_STABLE/src/common/hashfn.c), of 32 bits, and promised to nobody |
//! | `substr(md5(…), 1, 16)` is the first 16 bytes | it is 16 hexadecimal digits, which are 8 bytes: all that a `bigint` holds |
//! | with 32-bit FNV-1a a collision among 1,000 keys has a probability of 0.00000012 % | 0.012 %, a hundred thousand times as much |
//!
//! What 32 bits cost, that two of so many different keys are one lock:
//!
//! | keys | `hashtext`, `fnv1a32` | `sha256`, `md5`, `hashtextextended` |
//! | ---: | --- | --- |
//! | 1,000 | 1 in 8,600 | 1 in 37 million million |
//! | 77,000 | 1 in 2 | 1 in 6 thousand million |
//! | 1,000,000 | certain | 1 in 37 million |
//!
//! # Examples
//!
//! ```
//! use advisory_runtime::{Key, LockKey};
//!
//! /// What `acquire_cleanup_lock` locks.
//! #[derive(LockKey)]
//! #[lock_key("<email|trim|lower|raw>", name = "email")]
//! struct EmailLock<'a> {
//!     email: &'a str,
//! }
//!
//! // SELECT email_to_lock_id(' User@X.com ')
//! assert_eq!(EmailLock { email: " User@X.com " }.key(), Key::BigInt(-3508133180453765740));
//! ```
//!
//! An address and nothing else can be any other key of the database, so beside other locks the macros report a collision: answer
//! with `allow_overlap("email", "…")` there, or better give the key a word of its own, as `generate_lock_id` does.
//!
//! ```
//! use advisory_runtime::{Key, lock_key};
//!
//! // SELECT generate_lock_id('cleanup', ' U@x ')
//! let email = " U@x ";
//! assert_eq!(lock_key!("cleanup:<email|trim|lower|raw>"), Key::BigInt(3268022024975605132));
//!
//! // SELECT advisory_key('booking:' || advisory_escape('1'))
//! let guest = "1";
//! assert_eq!(lock_key!("booking:<guest>"), Key::BigInt(3878245474506011689));
//! ```
//!
//! The odds of the table above:
//!
//! ```
//! use advisory_pattern::Derivation;
//!
//! let one_in = |derivation: Derivation, keys| 1.0 / derivation.collision_odds(keys);
//! assert_eq!((one_in(Derivation::Hashtext, 1_000) / 100.0).round(), 86.0);
//! assert_eq!(one_in(Derivation::Fnv1a32, 77_000).round(), 2.0);
//! assert_eq!((one_in(Derivation::Sha256, 1_000) / 1e12).round(), 37.0);
//! assert_eq!((one_in(Derivation::Md5, 77_000) / 1e9).round(), 6.0);
//! assert_eq!((one_in(Derivation::Hashtextextended, 1_000_000) / 1e6).round(), 37.0);
//! ```

/// Makes the functions: the migration's `up.sql`, for `batch_execute` in a transaction.
///
/// # Errors
///
/// 42723 when there is such a function already; then nothing is made.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "diesel-async")]
/// # mod setup {
/// use advisory_runtime::migration::ADVISORY_KEYS_UP;
/// use diesel::QueryResult;
/// use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
///
/// async fn set_up(conn: &mut AsyncPgConnection) -> QueryResult<()> {
///     conn.transaction(async |conn| conn.batch_execute(ADVISORY_KEYS_UP).await).await
/// }
/// # }
/// ```
pub const ADVISORY_KEYS_UP: &str =
    include_str!("../migrations/2026-01-01-000000_advisory_keys/up.sql");

/// Drops the functions that [`ADVISORY_KEYS_UP`] made, and nothing else: the migration's `down.sql`.
///
/// Locks that are held stay held until their sessions release them or end.
///
/// # Errors
///
/// 42883 when one of the functions is gone, 2BP01 when something uses one; then nothing is dropped.
pub const ADVISORY_KEYS_DOWN: &str =
    include_str!("../migrations/2026-01-01-000000_advisory_keys/down.sql");
