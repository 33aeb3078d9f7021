//! The macros of [`advisory-runtime`](https://docs.rs/advisory-runtime). Depend on that crate: it
//! re-exports them, and their expansion calls it.
//!
//! | macro | what it does | use it as |
//! | --- | --- | --- |
//! | [`macro@advisory_lock`] | runs a function under a lock | `advisory_runtime::advisory_lock` |
//! | [`macro@advisory_lease`] | runs a function under a lease | `advisory_runtime::advisory_lease` |
//! | [`macro@LockKey`] | declares a lock as a type | `advisory_runtime::LockKey` |
//! | [`macro@KeyPart`] | lets a type be part of a key | `advisory_runtime::KeyPart` |
//! | [`lock_key!`] | computes a key | `advisory_runtime::lock_key` |
//! | [`macro@Claim`] | lets workers claim the rows of a table | `advisory_runtime::claim::Claim` |
//!
//! ```ignore
//! use advisory_runtime::advisory_lock;
//!
//! #[advisory_lock(key = "<tenant_id>:<date>")]
//! async fn book(conn: &mut AsyncPgConnection, tenant_id: Uuid, date: NaiveDate) -> QueryResult<usize> { /* … */ }
//! ```
#![forbid(unsafe_code)]

mod args;
mod attribute;
mod back_end;
mod claim;
mod collisions;
mod derive_input;
mod errors;
mod expand;
mod fallback;
mod function;
mod key_part;
mod key_pattern;
mod lock_key;
mod newtypes;
mod record;
mod site;
mod site_facts;
mod tokens;
#[cfg(test)]
mod written;

use args::Args;
use args::argument::Known;
use attribute::Attribute;
use errors::Errors;
use proc_macro::TokenStream;
use quote::quote;
use site::lease::LeaseSite;
use site::lock::LockSite;

/// Runs the function while it holds an advisory lock.
///
/// ```ignore
/// #[advisory_lock(key = "<tenant_id>:<date>", scope = "xact")]
/// async fn book(conn: &mut AsyncPgConnection, tenant_id: Uuid, date: NaiveDate) -> QueryResult<Booking> { /* … */ }
///
/// #[advisory_lock(key = "reindex", scope = "session", wait = "never", on_held = Ok(()), pool = self.pool)]
/// async fn reindex(&self) -> Result<(), AppError> { /* … */ }
/// ```
///
/// An `async fn` uses diesel-async, a plain `fn` uses Diesel's blocking connections; the arguments
/// mean the same. The function keeps its signature, and its future is `Send` whenever it would be
/// without the attribute; `guide::expansion` names the exceptions.
///
/// For work that takes longer than you want to hold a connection, and for an effect that must
/// happen once, use [`#[advisory_lease]`](macro@advisory_lease). This page is the reference;
/// `advisory_runtime::guide` explains. `advisory_runtime::xact` and `session` do this without the
/// attribute.
///
/// # Arguments
///
/// The second column starts with the default; "none" means that there is no default.
///
/// | argument | values | meaning |
/// | --- | --- | --- |
/// | `key` | a string literal is a key pattern; `(7, "<id>")` is a pair with a second half that is derived from one; any other expression is a `LockKey`: `42424242`, `(7, tenant_no)`, a declared lock | what to lock |
/// | `keys` | a list, `["account:<from>", "account:<to>"]`; or an expression without brackets that yields any number of declared locks, `ids.iter().map(\|id\| AccountLock { id: *id })` | several locks, acquired together: sorted by number, without duplicates |
/// | `with` | `with(week = date.iso_week().week())` | computed values for placeholders, like the named arguments of `format!` |
/// | `scope` | `"xact"`, `"session"` | how long the lock is held: until the transaction ends, or for the call only |
/// | `pool` | an expression: `self.pool` | the pool of the connection: bb8 or deadpool, in a plain `fn` r2d2, or one of your own. The body has `conn` |
/// | `conn` | the parameter `conn` or `_conn`; a place, or an expression | the connection, where it does not come from a `pool` |
/// | `wait` | none: the session's `lock_timeout`, for each key; `"never"`, `"500ms"`, `"5s"`, `"2m"`, `"1h"`, a `Duration`, `"forever"` | how long the whole acquisition can take |
/// | `on_held` | none: an error; an expression of the return type, `Ok(None)`, `Err(AppError::Busy)` | what to return without running the body when the wait is over. Needs a `wait` that ends |
/// | `err` | the error's `From`; `\|error\| AppError::Lock(error)`, a function | converts `advisory_runtime::Error` to the function's error; for error types of other crates, which cannot implement `From` |
/// | `handle` | none; `handle = lock` | a variable for the body: the lock's keys, how long the call waited, and `lock.check(conn).await`, which checks that the lock is still held. A declared lock also has `lock.holding()`, for functions that must not run without it |
/// | `mode` | `"exclusive"`, `"shared"` | in shared mode, other calls can hold the lock in shared mode at the same time |
/// | `poll` | none; `"250ms"`, a `Duration` | tries for the lock at this interval instead of waiting at the server |
/// | `poll_max` | eight times `poll`; `"2s"`, a `Duration` | the longest pause between two tries. If it equals `poll`, the pauses do not grow |
/// | `queue` | none; `64` | how many calls of this process can wait for the key before they take a connection. Needs `pool`, or an expression for `conn`; not with `permits` or `mode = "shared"` |
/// | `permits` | `1`; `3`, an integer expression, `self.limit` | how many calls can hold the lock at once. Needs one key, and `wait = "never"` or `poll`; not with `queue`, `guards` or `mode = "shared"` |
/// | `max_hold` | none; `"30s"`, a `Duration` | how long the body can run |
/// | `isolation` | `"read committed"`, `"repeatable read"`, `"serializable"` | the isolation level of the transaction; its snapshot is taken after the lock. Scope `"xact"`, and not inside an open transaction |
/// | `at` | none; `(tenants::id, tenant_id)` | takes the lock at the node that has the rows of a distributed table of Citus: the column by which it is distributed, and its value. Without Citus it has no effect. Scope `"xact"`; not with `permits` or a stricter `isolation`. `guide::several_servers` explains |
/// | `nested` | `"allow"`, `"refuse"` | whether the function can run inside an open transaction. Scope `"xact"`; `"session"` always refuses |
/// | `derivation` | `"sha256"`, `"md5"`, `"fnv1a32"`, `"fnv1a64"`, `"hashtext"`, `"hashtextextended"` | how the rendered key becomes a number |
/// | `name` | none; `"booking-slot"` | sites with the same name and pattern share one lock |
/// | `component` | none; `"payments"` | a column of the registry. Its "purpose" is the first line of the doc comment |
/// | `guards` | none; `"bookings"`, `"bookings, shop.blocks"` | the tables that must only be written under the lock, for the registry and `cargo advisory check --database-url`. `cargo advisory migration require` prints the trigger |
/// | `allow_redundant` | none; `"reason"` | accepts that a constraint of a table of `guards` says, or could say, a rule on the lock's columns, and that no index begins with one: `cargo advisory check --database-url` gives no such advice |
/// | `allow_overlap` | none; `("other-name", "reason")` | accepts that the key can collide with another lock's, for deployed keys that cannot change. Can be repeated; `"*"` is every other lock |
/// | `allow_ambiguous` | none; `"reason"` | accepts that different values can render the key, for deployed keys that cannot change |
/// | `max_keys` | `64` | how many locks a slice, or an expression for `keys`, can take |
/// | `crate` | `::advisory_runtime`, a path | the path of the runtime, if it was renamed |
///
/// # Key patterns
///
/// A key pattern is text with placeholders in angle brackets. A placeholder is a path that begins
/// with a parameter's name (`<req.tenant_id>`, `<self.tenant>`, `<id.0>`), with an optional shape
/// (`<tenant_id: uuid>`) and the filters `trim`, `lower`, `raw` and `display`
/// (`<email|trim|lower>`). `<<` is a literal `<`. `<ids*>` takes a slice and locks a key for each
/// element.
///
/// Different values never render the same key; a pattern with placeholders that cannot be
/// distinguished does not compile. Filters change the key but not the argument. By default, the
/// number of a key is the first eight bytes of the SHA-256 of its text. `guide::keys` describes the
/// language.
///
/// # Locking
///
/// **Scope `"xact"`.** One message begins the transaction and takes the lock;
/// `advisory_runtime::xact::begin` shows the SQL. `Ok` commits; `Err` and a panic roll back. Inside
/// an open transaction the function uses a savepoint instead: `Ok` keeps the lock until the outer
/// transaction ends, `Err` releases it.
///
/// **Scope `"session"`.** The body runs without a transaction and can begin one. The lock is
/// released when the body has returned. Use it for work that is not one transaction, such as a
/// scheduler. It is refused inside an open transaction, because the lock would be released before
/// the commit. See `advisory_runtime::session::acquire`.
///
/// Use the body's connection: a transaction-level lock does not protect statements on another one,
/// so the compiler warns if the body leaves it unused. It does not warn under a session-level lock,
/// which also protects work on other connections, or on none.
///
/// # Waiting
///
/// | you write | if the lock is held, the call | it costs |
/// | --- | --- | --- |
/// | no `wait` | waits at the server for each key up to the session's `lock_timeout`, by default forever; then `TimedOut` | a connection while it waits; 1 round trip |
/// | `wait = "5s"` | waits for up to 5 s in total: the queue of this process, all keys, the server; then `TimedOut` | the same |
/// | `wait = "forever"` | waits until the lock is free, whatever `lock_timeout` is | the same |
/// | `wait = "never"` | tries once; then `NotAvailable` | 1 round trip for one key, 2 for several and on blocking connections; 1 more if the lock is held |
/// | `poll = "250ms"`, alone or with a `wait` other than `"never"` | tries again until `wait` is over, then `TimedOut`. A call that waits at the server is served first | each try as much as `"never"`; with `pool` a connection only during a try |
/// | `queue = 64`, with any of these | waits in the queue of this process first; `QueueFull` if 64 calls are in it | no connection while it is in the queue |
///
/// `on_held` is returned for these errors only: `is_busy()` is true for them. It is not returned for
/// a lost connection, or for a failed check-out from the pool (`Error::Pool`), which `wait` does not
/// limit. It is evaluated after the wait and can use the function's parameters. `guide::waiting`
/// helps to choose.
///
/// With `max_hold` an async body is dropped when it has held the lock for that long, and its
/// transaction is rolled back: `HoldExceeded`. A blocking body runs to its end, and then its commit
/// is refused. `guide::cancellation` explains what the server does if the process stops.
///
/// # Errors
///
/// The function returns a `Result` whose error implements `From<diesel::result::Error>`,
/// `From<advisory_runtime::Error>`, or both. The first converts database errors, the second the
/// lock's errors; if one is missing, the other converts both. With `err = |error| …` neither is
/// needed. A function that returns `QueryResult` gets the lock's errors inside Diesel's:
/// `guide::diesel_errors` shows how each one arrives, and `advisory_runtime::Error::find(&error)`
/// finds it. `advisory_runtime::Error` lists them with their SQLSTATE.
///
/// # Cancel safety
///
/// Dropping the future closes the connection: no lock and no open transaction is left, and no
/// waiting backend where a cancel request can be sent. A pool replaces the connection; on a
/// connection of your own, every further locked call returns `BrokenConnection`. To limit the time
/// of a call and keep its connection, write `wait` and `max_hold`: see `guide::cancellation`. After
/// a drop during the commit it is not known whether the commit happened.
#[proc_macro_attribute]
pub fn advisory_lock(args: TokenStream, item: TokenStream) -> TokenStream {
    attribute(Attribute::Lock, args, item)
}

/// Runs the function while it holds a lease: a row with a holder, a fencing token and an expiry,
/// which is renewed while the body runs.
///
/// ```ignore
/// /// Credits the account once, however often the webhook is delivered.
/// #[advisory_lease(key = "webhook:<id>", pool = self.pool, keep = "24h", wait = "never", on_done = Ok(()), handle = lease)]
/// async fn credit(&self, id: &str) -> Result<(), AppError> {
///     let mut conn = self.pool.get().await?;
///     conn.transaction(async |conn| {
///         /* … */
///         lease.complete(conn).await
///     })
///     .await
/// }
/// ```
///
/// Use it for work that takes longer than you want to hold a connection, and for work that is done
/// once; for one transaction use [`#[advisory_lock]`](macro@advisory_lock). A lease and an advisory
/// lock never exclude each other, whatever their keys.
///
/// The function keeps its signature. It must be an `async fn`, because its body is dropped when the
/// lease is lost; a blocking program calls `advisory_runtime::blocking::lease::acquire` instead.
/// `cargo advisory migration lease` prints the migration of the table. This page is the reference;
/// `guide::leases` explains. `advisory_runtime::lease` does this without the attribute.
///
/// # Arguments
///
/// The second column starts with the default; "none" means that there is no default.
///
/// | argument | values | meaning |
/// | --- | --- | --- |
/// | `key` | a string literal is a key pattern; any other expression is a `LockKey`: a declared lock, `42424242` | what to lease: one key, in exclusive mode |
/// | `with` | `with(week = date.iso_week().week())` | computed values for placeholders |
/// | `pool` | required: `self.pool` | where each statement of the lease takes a connection, for that statement: bb8, deadpool, one of your own, a `Leases`. The body has no connection of the lease; it takes its own where it needs one |
/// | `ttl` | `"60s"`, a `Duration` | how long the lease lasts after its last renewal, and thus how soon its key is free after the process dies |
/// | `renew` | a third of `ttl`; `"20s"`, a `Duration` | how often the lease is renewed while the body runs |
/// | `keep` | none; `"24h"`, a `Duration` | how long the key is done after `Ok`, or after `lease.complete(conn)` |
/// | `wait` | none: the `lock_timeout` of the pool's connections; `"never"`, `"500ms"`, `"5s"`, a `Duration`, `"forever"` | how long the call waits while somebody holds the key |
/// | `on_held` | none: an error; an expression of the return type, `Err(AppError::Busy)` | what to return without running the body when the wait is over. Needs a `wait` that ends, and with `keep` an `on_done` |
/// | `on_done` | none: an error; an expression of the return type, `Ok(())` | what to return without running the body when its work is already done. Needs a `keep` |
/// | `handle` | none; `handle = lease` | a variable for the body, an `advisory_runtime::lease::Lease`: `lease.token()`, `lease.fence(conn)`, with `keep` also `lease.complete(conn)`. A declared lock also has `lease.holding()` |
/// | `err` | the error's `From`; `\|error\| AppError::Lease(error)`, a function | converts `advisory_runtime::lease::Error` to the function's error |
/// | `name` | none; `"webhook"` | sites with the same name and pattern share one lease |
/// | `component` | none; `"payments"` | a column of the registry. Its "purpose" is the first line of the doc comment |
/// | `allow_overlap` | none; `("other-name", "reason")` | accepts that the key can collide with another lease's, for deployed keys that cannot change |
/// | `crate` | `::advisory_runtime`, a path | the path of the runtime, if it was renamed |
///
/// The key patterns are those of [`#[advisory_lock]`](macro@advisory_lock#key-patterns), without
/// slices. A lease's row is found by the SHA-256 of the key's text; the text of a fixed number is
/// its digits.
///
/// # Locking
///
/// One statement acquires the row if it is free or expired, on the server's clock; an `UPDATE`
/// renews it and another releases it. The body runs without a transaction and without a connection.
/// If the lease cannot be renewed, the body is dropped before it expires, unless the body blocks
/// its thread. The lease is released at the end of the call, also after an error, a panic or a
/// drop; if the process dies, it expires.
///
/// A process that was stopped may wake up in the middle of its body after another one has acquired
/// the key. So begin the transaction that writes results with `lease.fence(conn)`, or give
/// `lease.token()` to other storage.
///
/// # Once, or at least once
///
/// The body runs at least once: if the process dies between its work and the end of the call, it
/// runs again after the `ttl`. For results that are written exactly once, write a `keep` and an
/// `on_done`, and call `lease.complete(conn)` last in the transaction that writes them.
///
/// | the key | the call returns | instead of it |
/// | --- | --- | --- |
/// | is held: another call runs, and can still fail | after the `wait`, `Held` | `on_held` |
/// | is done: a call with `keep` returned `Ok`, or `complete` is committed | `Done`, at once and whatever the `wait` | `on_done` |
///
/// Work that is only held must not be reported as done: let `on_held` return an error that makes a
/// webhook's provider deliver again. The two are evaluated after the wait and can use the
/// function's parameters. They are not returned for a pool without a connection, or a server that
/// does not answer: that is `Error::Pool`. A waiting call polls, and has no connection between two
/// tries.
///
/// # Errors
///
/// The function returns `advisory_runtime::lease::Error` in the ways that
/// [`#[advisory_lock]`](macro@advisory_lock#errors) describes. `Lost` if the lease could not be
/// renewed: the body was dropped. `CommitUnknown` and `RolledBack` belong to `complete`;
/// `advisory_runtime::lease::Lease::complete` explains them.
///
/// # Cancel safety
///
/// Dropping the future drops the body, and releases the lease in the background. A body's own open
/// transaction is left on its own connection, which its pool closes.
#[proc_macro_attribute]
pub fn advisory_lease(args: TokenStream, item: TokenStream) -> TokenStream {
    attribute(Attribute::Lease, args, item)
}

fn attribute(attribute: Attribute, args: TokenStream, item: TokenStream) -> TokenStream {
    expanded(attribute, args.into(), item.into()).into()
}

/// Expands an attribute. After an error the function is emitted without its lock, so that its
/// callers do not fail too.
fn expanded(
    attribute: Attribute,
    args: proc_macro2::TokenStream,
    item: proc_macro2::TokenStream,
) -> proc_macro2::TokenStream {
    let mut errors = Errors::default();
    let function = function::parse(item.clone(), attribute, &mut errors);
    if let Some(function) = &function {
        back_end::check(function, attribute, &mut errors);
    }
    let site_args = Args::parse(args.clone(), Known::of(attribute), &mut errors);
    let expansion = match attribute {
        Attribute::Lock => {
            let site = LockSite::new(site_args, function, &mut errors);
            let site = errors.into_result(site);
            site.map(|site| expand::lock::expand(&site))
        }
        Attribute::Lease => {
            let site = LeaseSite::new(site_args, function, &mut errors);
            let site = errors.into_result(site);
            site.map(|site| expand::lease::expand(&site))
        }
    };
    expansion.unwrap_or_else(|errors| {
        let errors = errors.into_compile_errors();
        let function = fallback::unlocked(attribute, args, item);
        quote!(#errors #function)
    })
}

/// Declares a lock once, as a type that several sites use.
///
/// ```ignore
/// #[derive(LockKey)]
/// #[lock_key("account:<id>")]
/// pub struct AccountLock { pub id: AccountId }
///
/// #[advisory_lock(keys = [AccountLock { id: from }, AccountLock { id: to }])]
/// async fn transfer(conn: &mut AsyncPgConnection, from: AccountId, to: AccountId) -> QueryResult<()> { /* … */ }
/// ```
///
/// Placeholders name fields. The pattern can be the second half of a pair,
/// `#[lock_key((7, "<id>"), derivation = "hashtext")]`, and can be followed by `with(…)`, `name`,
/// `component`, `guards`, `allow_redundant`, `derivation`, `allow_ambiguous`, `allow_overlap` and
/// `crate`, as in `#[advisory_lock]`. `AccountLock { id }.rendered()` and `.key()` work without a
/// database.
///
/// A function that takes a `Holding<'_, AccountLock>` cannot be called without the lock: see
/// `advisory_runtime::Holding`.
#[proc_macro_derive(LockKey, attributes(lock_key))]
pub fn derive_lock_key(input: TokenStream) -> TokenStream {
    complete(input.into(), lock_key::derive).into()
}

/// Makes a newtype, or an enum without fields, usable in a key.
///
/// ```ignore
/// #[derive(KeyPart)]
/// struct TenantId(Uuid);
///
/// #[derive(KeyPart)]
/// enum Kind { Payment, #[key_part("refund")] Reversal }
/// ```
///
/// A newtype renders like its field. A variant renders as its name, or as the text of its
/// `#[key_part("text")]`. Renaming a variant without that attribute changes keys: instances before
/// and after the change no longer exclude each other.
#[proc_macro_derive(KeyPart, attributes(key_part))]
pub fn derive_key_part(input: TokenStream) -> TokenStream {
    complete(input.into(), key_part::derive).into()
}

/// Lets workers claim the rows of a table, with the functions of `advisory_runtime::claim`.
///
/// Derive it together with `Queryable` and `Selectable`, on a struct with a field for each column.
/// The struct can leave out columns of the table, except those of the key.
///
/// ```ignore
/// #[derive(Queryable, Selectable, Claim)]
/// #[diesel(table_name = sync_jobs)]
/// #[claim(order = "priority desc, created_at", ttl = "5m", renew = "1m")]
/// struct SyncJob { id: i64, payload: String }
///
/// #[derive(Queryable, Selectable, Claim)]
/// #[diesel(table_name = sync_checkpoints)]
/// #[claim(key = (matrix_id, chunk_hash), ttl = "2m")]
/// struct Checkpoint { matrix_id: i64, chunk_hash: String }
/// ```
///
/// | argument | values, the default first | meaning |
/// | --- | --- | --- |
/// | `table` | the path in `#[diesel(table_name = …)]`; another path | the `table!` |
/// | `key` | `id`; a column, or up to four: `(matrix_id, chunk_hash)` | the columns that identify a row: unique together |
/// | `order` | the order of the key; `"priority desc, created_at"`, also `nulls first` and `nulls last` | which row is claimed next |
/// | `ttl` | `"60s"`, a `Duration` | how long a claim lasts |
/// | `renew` | a third of `ttl`; at most half of it | how often work under a claim renews it |
/// | `locked_until`, `locked_by` | the columns with these names; others | until when and by whom the row is claimed: a nullable time, and `Nullable<Text>` or `Nullable<Uuid>` |
/// | `completed_at`, `failed_at`, `error_message` | the table's columns with these names, if it has them; others; `"none"` | when the job was completed or failed permanently, and why: nullable times, the last `Nullable<Text>` |
/// | `completed_at = "delete"` | | completing a job deletes its row |
/// | `run_at` | none; the column with this name; `run_at = next_attempt_at` | from when the row can be claimed: a time |
/// | `attempts` | none; the column with this name; `attempts = tries` | how often the row was claimed: an integer |
/// | `max_attempts` | none; `5`, an expression; `max_attempts = max_retries`, a column | the number of attempts after which a row fails for good; NULL in the column means no limit. Needs `attempts` and `failed_at` |
/// | `completed` | none; `completed = status.eq("sent")`, what Diesel's `set` takes | columns to set where a row is completed and the caller sets none: also by a worker |
/// | `failed` | none; `failed = status.eq("failed")`, what Diesel's `set` takes | columns to set where a row fails for good and the caller sets none: also where its worker died |
/// | `backoff` | `"10s..10m"` | the pause after the first failed attempt, and the longest. Needs `run_at` |
/// | `per`, `limit` | none; `per = "tenant_id", limit = 1`, the limit also an expression | how many rows of each value of the column can be claimed at a time; NULL is a value like the others |
/// | `crate` | `::advisory_runtime`, a path | the path of the runtime, if it was renamed |
///
/// Names are those of the `table!`. A column that is missing there, or has another type, does not
/// compile. A time is a `Timestamptz`, or a `Timestamp` in UTC. `completed_at`, `failed_at` and
/// `error_message` are looked up in the `table!` and not among the fields: otherwise a struct
/// without `completed_at` would repeat completed jobs.
#[proc_macro_derive(Claim, attributes(claim, diesel))]
pub fn derive_claim(input: TokenStream) -> TokenStream {
    complete(input.into(), claim::derive).into()
}

/// Computes the `Key` of a pattern with placeholders that name values in scope, for the functions
/// of `advisory_runtime`.
///
/// ```ignore
/// let held = xact::begin(conn, lock_key!("account:<account.id>")).await?;
/// let week = lock_key!("report:<week>", with(week = date.iso_week().week()));
/// ```
///
/// The pattern can be the second half of a pair, `(7, "<id>")`, and can be followed by the arguments
/// of [`#[lock_key(…)]`](macro@LockKey). The macro does not know types: a placeholder without a shape
/// is compared as if it could be any text.
#[proc_macro]
pub fn lock_key(input: TokenStream) -> TokenStream {
    let expanded = complete(input.into(), lock_key::expand);
    quote!({ #expanded }).into()
}

/// Expands one of the other macros. Errors are emitted together with the expansion, so that code
/// that uses it does not fail too.
fn complete(
    input: proc_macro2::TokenStream,
    expand: fn(proc_macro2::TokenStream, &mut Errors) -> Option<proc_macro2::TokenStream>,
) -> proc_macro2::TokenStream {
    let mut errors = Errors::default();
    let expanded = expand(input, &mut errors);
    let errors = errors.into_compile_errors();
    quote!(#errors #expanded)
}
