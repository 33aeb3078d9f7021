//! SQL functions that compute the numbers of lock keys, as a Diesel migration.
//!
//! Use them to share a lock with a program that is not Rust: another service, a `psql` script, a
//! trigger. Rust programs share a declared lock (`#[derive(LockKey)]`) instead. The functions need
//! PostgreSQL 15 to 18, and no extension.
//!
//! | function | returns | in Rust |
//! | --- | --- | --- |
//! | `advisory_key(rendered text)` → `bigint` | the number of a rendered key | every pattern without `derivation = "…"` |
//! | `advisory_escape(value text)` → `text` | the text as a placeholder renders it: `%` as `%25`, `:` as `%3A` | `<value>` |
//! | `email_to_lock_id(p_email text)` → `bigint` | the number of an address | `"<email\|trim\|lower\|raw>"` |
//! | `generate_lock_id(p_namespace text, p_key text)` → `bigint` | the number of `namespace:key` | `"cleanup:<email\|trim\|lower\|raw>"` for the namespace `cleanup` |
//! | `acquire_cleanup_lock(p_email text)` → `boolean` | whether it took the lock on `email_to_lock_id(p_email)` | |
//! | `release_cleanup_lock(p_email text)` → `boolean` | whether it released that lock | |
//! | `advisory_holds(key bigint)` → `boolean` | whether this session holds the lock exclusively | |
//! | `advisory_require(key bigint, lock text)` → `void` | an error with the lock's name unless this session holds it exclusively | |
//!
//! For example, `advisory_key('booking:' || advisory_escape(guest))` is what `"booking:<guest>"`
//! locks. Integers, dates and UUIDs need no escape if SQL writes them as
//! [`KeyPart`](crate::KeyPart) does: `uuid::text` does, and so does `date::text` for the years 1 to
//! 9999 under `DateStyle = ISO`.
//!
//! # Adding it
//!
//! ```sh
//! diesel migration generate advisory_keys
//! cargo advisory migration keys -o migrations/*_advisory_keys/up.sql
//! cargo advisory migration keys --down -o migrations/*_advisory_keys/down.sql
//! ```
//!
//! Or run [`ADVISORY_KEYS_UP`] in a transaction. The functions are created in the first schema of
//! the `search_path`. Grant each to the roles that call it:
//!
//! ```sql
//! GRANT EXECUTE ON FUNCTION advisory_key(text), advisory_escape(text) TO worker;
//! ```
//!
//! PUBLIC has no right to call them: HTTP gateways publish all functions that their role may call,
//! and whoever can lock any key can stop those who need it. The functions run with the caller's
//! rights and a pinned `search_path`, and do not call each other.
//!
//! # Locking
//!
//! `acquire_cleanup_lock` is `pg_try_advisory_lock`: exclusive, session-level, without waiting. The
//! session holds the lock until it has released it as often as it took it, or ends; a rollback does
//! not release it. `release_cleanup_lock` is `pg_advisory_unlock`. Neither raises a `NOTICE`: the
//! number is an unsalted hash, by which a reader of the log could check a guessed address.
//!
//! `advisory_holds` and `advisory_require` look for an exclusive lock of this session,
//! transaction-level or session-level, and take none.
//! [`guarded_tables`](crate::guide::guarded_tables) has their cost, and a trigger that needs
//! neither.
//!
//! # Errors
//!
//! - 55000: `advisory_require` found that this session does not hold the lock.
//! - 22004: an argument is NULL. A plain `pg_try_advisory_lock(NULL)` locks nothing and returns
//!   NULL, and `IF NOT NULL` goes on as if the lock were held.
//! - 42501: the role has no `EXECUTE`.
//! - 42723, from the migration: a function of this name exists, and nothing is replaced. Check what
//!   it computes and who calls it, then drop or rename it.
//! - 2BP01, from the down migration: an index or a view uses a function, and nothing is dropped.
//! - 01000, a warning: `release_cleanup_lock` found that this session does not hold the lock, and
//!   returned `false`.
//!
//! # What the recipes get wrong
//!
//! Four functions have the names of a recipe in circulation, so that its callers keep working. They
//! compute the recipe's numbers, except that `lower` changes only A to Z, while the recipe's
//! follows the database's locale. A program that uses both, or JavaScript's `toLowerCase().trim()`,
//! must pass ASCII, or text that is already lower-case and trimmed.
//!
//! | the recipe says | in fact |
//! | --- | --- |
//! | `digest()`, so `CREATE EXTENSION pgcrypto` | `sha256()` is built in since PostgreSQL 11 |
//! | `IF v_lock_id > 9223372036854775807` makes the number signed | the condition is never true: the shift has already set the sign |
//! | `pg_advisory_lock` has an optional timeout | it has none; set `lock_timeout` |
//! | the lock expires after 30 seconds | no advisory lock expires; a timeout outside of the work releases it while the work goes on |
//! | acquire in one request to an HTTP gateway, release in another | they may use two sessions, and the lock stays; use a transaction-level lock in one request |
//! | `hashtext` is a CRC32 | it is a 32-bit variant of [lookup3](https://github.com/postgres/postgres/blob/REL_18_STABLE/src/common/hashfn.c), and undocumented |
//! | `substr(md5(…), 1, 16)` is the first 16 bytes | it is 16 hexadecimal digits, so 8 bytes: all that a `bigint` holds |
//! | with 32-bit FNV-1a, two of 1,000 keys collide with a probability of 0.00000012 % | with 0.012 %; among 77,000 keys with 50 %, while with the 64 bits of SHA-256 two of a million collide with 1 in 37 million |
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
//! An address alone can equal any other key of the database, so the macros report a collision with
//! other locks. Answer with `allow_overlap("email", "…")`, or better give the key a word of its
//! own, as `generate_lock_id` does:
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

/// Creates the functions: the migration's `up.sql`, for `batch_execute` in a transaction.
///
/// # Errors
///
/// 42723 if a function of one of these names exists; then nothing is created.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "diesel-async")]
/// # mod setup {
/// use advisory_runtime::sql_functions::ADVISORY_KEYS_UP;
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

/// Drops the functions of [`ADVISORY_KEYS_UP`] and nothing else: the migration's `down.sql`.
///
/// # Errors
///
/// 42883 if one of the functions is gone, 2BP01 if something uses one; then nothing is dropped.
pub const ADVISORY_KEYS_DOWN: &str =
    include_str!("../migrations/2026-01-01-000000_advisory_keys/down.sql");
