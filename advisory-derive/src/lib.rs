//! The macros of [`advisory-runtime`](https://docs.rs/advisory-runtime). Depend on that crate: it re-exports the macros, and their
//! expansion calls it. A program does not name this crate.
//!
//! | macro | use it as |
//! | --- | --- |
//! | [`macro@advisory_lock`] | `advisory_runtime::advisory_lock` |
//! | [`macro@LockKey`] | `advisory_runtime::LockKey` |
//! | [`macro@KeyPart`] | `advisory_runtime::KeyPart` |
//! | [`lock_key!`] | `advisory_runtime::lock_key` |
//! | [`macro@Claim`] | `advisory_runtime::claim::Claim` |
#![forbid(unsafe_code)]

mod args;
mod back_end;
mod claim;
mod collisions;
mod derive_input;
mod errors;
mod expand;
#[cfg(test)]
mod expansion_page;
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

use args::Args;
use errors::Errors;
use proc_macro::TokenStream;
use quote::quote;

/// Runs the function while it holds an advisory lock.
///
/// ```ignore
/// #[advisory_lock(key = "<tenant_id>:<date>", scope = "xact")]
/// async fn book(conn: &mut AsyncPgConnection, tenant_id: Uuid, date: NaiveDate) -> QueryResult<Booking> { /* … */ }
///
/// #[advisory_lock(key = "nightly-report", scope = "session", wait = "never", on_held = Ok(()), conn = self.pool.get().await?)]
/// async fn report(&self) -> Result<(), AppError> { /* … */ }
///
/// #[advisory_lock(key = "invoice:<month>", scope = "lease", pool = self.pool, keep = "24h", wait = "never", on_held = Ok(()))]
/// async fn send_invoices(&self, month: u32) -> Result<(), AppError> { /* … */ }
/// ```
///
/// On an `async fn` it works with diesel-async, on a plain `fn` with Diesel's own connections, with the same meaning. The
/// function's signature and the type of its future stay as they are written.
///
/// This page is the reference. `advisory_runtime::guide` has a page for each question: whether a lock is needed at all, which scope, which
/// key, what waiting costs, what the attribute expands to. Without the attribute the same is said with
/// `advisory_runtime::xact`, `session` and `lease`.
///
/// # Arguments
///
/// | argument | values, the default first | meaning |
/// | --- | --- | --- |
/// | `key` | a string literal: a key pattern; else an expression that is a `LockKey`: `42424242`, `(7, tenant_no)`, a declared lock | what is locked |
/// | `keys` | `["account:<from>", "account:<to>"]`, or expressions; without brackets an expression that gives as many declared locks as there are, `ids.iter().map(\|id\| AccountLock { id: *id })` | several locks: sorted by number, duplicates removed, one round trip |
/// | `with` | `with(week = date.iso_week().week())` | computed values for placeholders, as `format!`'s named arguments |
/// | `scope` | `"xact"`, `"session"`, `"lease"` | how long it is held: to the end of a transaction, for the call alone, or as a row that is renewed and can expire |
/// | `mode` | `"exclusive"`, `"shared"` | whether others may hold it at the same time, all of them shared. Not for `"lease"` |
/// | `wait` | none: the session's own `lock_timeout`, for each key; `"never"`, `"500ms"`, `"5s"`, `"2m"`, `"1h"`, a `Duration`, `"forever"` | how long the whole acquisition may take |
/// | `poll` | none; `"250ms"`, a `Duration` | asks again and again instead of waiting at the server. Not for `"lease"`, which does so anyway |
/// | `permits` | `1`; `3` | how many may hold it at once. With `wait = "never"` or `poll`, and one key |
/// | `on_held` | none: an error; an expression of the return type, `Ok(None)`, `Err(AppError::Busy)` | returned without running the body when the wait is over. Needs a `wait` that ends |
/// | `err` | by `From`; `\|error\| AppError::Lock(error)`, a function | makes the function's error of the lock's `advisory_runtime::Error`: for an error type that cannot have `From`, because another crate defines it |
/// | `max_hold` | none; `"30s"`, a `Duration` | the longest run of the body |
/// | `isolation` | `"read committed"`, `"repeatable read"`, `"serializable"` | the transaction's level; its snapshot is taken after the lock. Scope `"xact"`, and not inside an open transaction |
/// | `nested` | `"allow"`, `"refuse"` | whether it may run inside an open transaction. Scope `"xact"`; `"session"` always refuses |
/// | `conn` | the parameter `conn` or `_conn`; a place, or an expression | the connection. Not for `"lease"` |
/// | `pool` | an expression: `self.pool` | where a lease takes a connection for each of its statements. Scope `"lease"`, which needs it |
/// | `ttl` | `"60s"`, a `Duration` | how long the lease lasts after it was last renewed, and so how soon its key is free after its process has died. Scope `"lease"` |
/// | `renew` | a third of `ttl`; `"20s"`, a `Duration` | how often the lease is renewed while the body runs. Scope `"lease"` |
/// | `keep` | none; `"24h"`, a `Duration` | how long the key stays taken after the body has returned `Ok`, or after `lease.complete(conn)`. Scope `"lease"` |
/// | `queue` | none; `64` | at most this many calls of this process wait for the key before they take a connection; with an expression for `conn`, and not with `mode = "shared"` or scope `"lease"` |
/// | `handle` | none; `handle = lock` | what the body calls the lock: its keys, and how long it waited for them; of a lease also its fencing token; of a declared lock `lock.holding()`, for functions that must not run without it |
/// | `derivation` | `"sha256"`, `"md5"`, `"fnv1a32"`, `"hashtext"`, `"hashtextextended"` | how the rendered key becomes a number. Not for `"lease"`, whose key stays a text |
/// | `name` | none; `"booking-slot"` | sites of one name and pattern are one lock, on purpose |
/// | `component` | none; `"payments"` | for the registry, whose "purpose" is the first line of the doc comment |
/// | `guards` | none; `"bookings"`, `"bookings, shop.blocks"` | the tables whose writes need the lock, for the registry and `cargo advisory check --database-url`. The trigger is a migration: `cargo advisory migration require`. Not for `"lease"` |
/// | `allow_overlap` | none; `("other-name", "reason")` | for a deployed key that cannot change and can collide with another lock's; can be repeated, and `"*"` is every other lock |
/// | `max_keys` | `64` | how many locks a slice, or an expression for `keys`, may take |
/// | `allow_ambiguous` | none; `"reason"` | for a deployed key that cannot change, and that different values can render |
/// | `crate` | `::advisory_runtime`, a path | where the runtime is, if it was renamed |
///
/// # Key patterns
///
/// Text, and placeholders in angle brackets: a path from any name that a parameter binds
/// (`<req.tenant_id>`, `<self.tenant>`, `<id.0>`), an optional shape (`<tenant_id: uuid>`) and filters
/// (`<email|trim|lower>`). `<<` is a literal `<`. In a text value `%` and `:` are written `%25` and `%3A`, so different
/// values never render one key; a pattern whose placeholders cannot be distinguished does not compile. `<ids*>` takes a slice and
/// gives a lock for each element. The key is the first eight bytes of the SHA-256 of the rendered text. The other derivations are
/// for keys that are shared with other code. `fnv1a32` and `hashtext` have 32 bits: two of 1,000 keys are the same number with a
/// probability of 1 in 8,600, two of 77,000 with one of 1 in 2.
///
/// **Filters.** `trim` strips spaces (U+0020) from both ends, and `lower` writes A to Z in lower case. They change nothing else, so
/// that a new version of Unicode changes no key. `raw` leaves `%` and `:` unescaped, for a key that other code computes too, and
/// `display` takes the value's text from its `Display`. Filters change the key and not the argument: a body that writes or compares
/// the value must apply them too (`email.trim_matches(' ').to_ascii_lowercase()`; `str::trim` strips more).
///
/// # The connection
///
/// A place expression (`conn = self.conn`, `conn = ctx.db`) is used under its own name. Any other expression
/// (`conn = self.pool.get().await?`, in a plain `fn` `conn = self.pool.get()?`) is evaluated by the function, with the function's
/// error conversion, and bound as `conn` in the body. Use it there: a transaction-level lock does not protect statements on another
/// connection. The compiler warns of a parameter `conn` that the body never uses, except under a session-level lock.
///
/// # Locking
///
/// **Scope `"xact"`.** One message begins the transaction and takes the lock; see `advisory_runtime::xact::begin` for the
/// SQL. On `Ok` the transaction commits, on `Err` and on a panic it rolls back. Inside an open transaction the function uses a
/// savepoint instead: `Ok` keeps the lock until the outer transaction ends, `Err` releases it.
///
/// **Scope `"session"`.** The body runs without a transaction and can begin one; the lock is released when the body has returned
/// `Ok` or `Err`. For work that is not a transaction: a migration, a scheduler. It is refused inside an open transaction, because
/// the lock would be released before the commit. See `advisory_runtime::session::acquire`.
///
/// **Scope `"lease"`.** The lock is a row of the lease table with a holder, a fencing token and an expiry on the server's clock,
/// for work that takes longer than a connection should be held. The row is found by the SHA-256 of the key's text, where a fixed
/// number is the text of its digits; a lease and an advisory lock never exclude each other, whatever their keys. The body runs
/// without a transaction and without a connection of the lease, which is renewed beside the body, each time on a connection from
/// `pool`. When a lease is lost, the body is dropped before another process can acquire it. The work is done at least
/// once; for once call `lease.complete(conn)` in the transaction that ends it. A lease has one key and one holder, so
/// `keys`, `<ids*>` and `mode` are refused. A plain `fn` is refused too, because it cannot be dropped.
///
/// # Waiting
///
/// | you write | if the lock is held, the call | the server sees | it costs |
/// | --- | --- | --- | --- |
/// | no `wait` | waits for each key as long as the session's `lock_timeout`, by default without end; then `TimedOut` | a waiter in `pg_locks`, served in the order of arrival, with a snapshot that index builds wait for | a connection while it waits; 1 round trip |
/// | `wait = "5s"` | waits for that time in all: the queue in this process, all keys, the server; then `TimedOut` | the same | the same |
/// | `wait = "forever"` | waits until the lock is free, whatever `lock_timeout` is | the same | the same |
/// | `wait = "never"` | asks once: `NotAvailable` | one try, and no waiter | 2 round trips, 3 if the lock is held |
/// | `poll = "250ms"`, with or without a `wait` | asks again and again, after up to 250 ms at first and up to 2 s later, until the `wait` is over; then `TimedOut` | tries, and between them no waiter and no snapshot; whoever waits at the server is served first | as `"never"`, for each try; the connection, but with an expression for `conn` only during a try; up to a pause of delay |
/// | `queue = 64`, with any of these | waits in this process's queue; `QueueFull` if 64 calls are in it | one waiter of this process | no connection while it is in the queue |
/// | `permits = 3`, with `"never"` or `poll` | does as they say once three hold it | three keys | one statement for each try |
/// | `on_held = Ok(None)`, with a `wait` that ends | returns that instead of the error | nothing | nothing |
///
/// `is_busy()` is true for `NotAvailable`, `TimedOut` and `QueueFull`, and `on_held` is returned for these only, not for a lost connection. It
/// is evaluated after the wait, with the function's parameters. The queue belongs to the key as a number: a program that locks the same
/// key in two databases has one queue for both. `advisory_runtime::guide::waiting` says which of these to choose.
///
/// # The longest run
///
/// With `max_hold` an async body is dropped when it has held the lock for that time, and its transaction is rolled back: `HoldExceeded`.
/// A statement that still runs after 100 ms is cancelled, and the connection closed; otherwise the connection stays usable. Nothing can
/// drop a blocking body: it runs to its end, and then its commit is refused. If the process has stopped or its packets are dropped, the
/// server ends the session one second after the bound: since PostgreSQL 17 counted from the lock, also while a statement runs; before
/// 17, inside an open transaction, and for session-level locks counted from the last statement. `advisory_runtime::Request::max_hold` has
/// the table. A blocking body whose session the server has ended goes on until it asks the database something.
///
/// # Errors
///
/// The function returns a `Result` whose error has `From<diesel::result::Error>`,
/// `From<advisory_runtime::Error>`, or both. The first converts database errors, the second the lock's errors; if one is missing,
/// the other converts both. A function that returns `QueryResult` gets what the database has answered as
/// `diesel::result::Error::DatabaseError` of its kind, and every other error of the lock as `diesel::result::Error::QueryBuilderError`;
/// `advisory_runtime::Error::find(&error)` finds the `advisory_runtime::Error` in either. That lists each error with its SQLSTATE, and
/// `guide::diesel_errors` how it arrives. With `err = |error| …` it needs neither: the closure, or a function, makes the error of an
/// `advisory_runtime::Error`, whose variant `Database` holds an error of the database.
///
/// # Cancel safety
///
/// Dropping the future closes the connection: no lock, no waiting backend and no open transaction is left. A pool replaces the
/// connection; on one of your own, every further locked call is `BrokenConnection`. To limit the time of a call and keep its connection,
/// write `wait` and `max_hold`. After a drop during the commit it is not known whether it happened.
#[proc_macro_attribute]
pub fn advisory_lock(args: TokenStream, item: TokenStream) -> TokenStream {
    let item = proc_macro2::TokenStream::from(item);
    let args = proc_macro2::TokenStream::from(args);
    lock(args.clone(), item.clone())
        .unwrap_or_else(|errors| {
            let errors = errors.into_compile_errors();
            let function = fallback::unlocked(args, item);
            quote!(#errors #function)
        })
        .into()
}

fn lock(
    args: proc_macro2::TokenStream,
    item: proc_macro2::TokenStream,
) -> Result<proc_macro2::TokenStream, Errors> {
    let mut errors = Errors::default();
    let args = Args::parse(args, &args::ADVISORY_LOCK, &mut errors);
    let function = function::parse(item, &mut errors);
    if let Some(function) = &function {
        back_end::check(function, &mut errors);
    }
    let site = site::Site::new(args, function, &mut errors);
    errors.finish(site).map(|site| expand::expand(&site))
}

/// Declares a lock once, as a type.
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
/// Placeholders name fields. After the pattern there can be `name`, `component`, `guards`, `derivation`,
/// `allow_ambiguous`, `allow_overlap` and `crate`, as for `#[advisory_lock]`. `AccountLock { id }.rendered()` and `.key()` need no database.
///
/// A function that takes a `Holding<'_, AccountLock>` cannot be called without the lock: see `advisory_runtime::Holding`.
#[proc_macro_derive(LockKey, attributes(lock_key))]
pub fn derive_lock_key(input: TokenStream) -> TokenStream {
    complete(input, lock_key::derive).into()
}

/// Makes a newtype, or an enum whose variants have no fields, usable in a key.
///
/// A newtype renders as its field does. A variant renders as its name, or as the text of `#[key_part("text")]` on it: renaming a
/// variant changes keys, and a changed key un-locks a fleet that is half upgraded.
#[proc_macro_derive(KeyPart, attributes(key_part))]
pub fn derive_key_part(input: TokenStream) -> TokenStream {
    complete(input, key_part::derive).into()
}

/// Lets the rows of a table with lease columns be claimed, by the functions of `advisory_runtime::claim`.
///
/// Derive it together with `Queryable` and `Selectable`, on a struct whose fields are columns. The struct can leave out columns of
/// the table, except those of the key.
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
/// | `table` | that of `#[diesel(table_name = …)]`; a path | the `table!` |
/// | `key` | `id`; a column, or up to four: `(matrix_id, chunk_hash)` | what finds the row: columns that are unique together |
/// | `order` | that of the key; `"priority desc, created_at"`, also `nulls first` and `nulls last` | which row is claimed next |
/// | `ttl` | `"60s"`, a `Duration` | how long a claim lasts |
/// | `renew` | a third of `ttl`; at most half of it | how often work under a claim renews it |
/// | `locked_until`, `locked_by` | the columns of these names; others | until when, and by whom, the row is claimed: `Nullable<Timestamptz>` and `Nullable<Text>` |
/// | `completed_at`, `failed_at`, `error_message` | the table's columns of these names, if it has them; others; `"none"` | when it was done or failed for good, and why: `Nullable<Timestamptz>`, the last `Nullable<Text>` |
/// | `crate` | `::advisory_runtime`, a path | where the runtime is, if it was renamed |
///
/// The names are those in the `table!`; a column that it does not have, or has with another type, does not compile. The terminal
/// columns are looked up in the `table!` and not among the fields, because a row that leaves out `completed_at` would have completed
/// jobs done again.
#[proc_macro_derive(Claim, attributes(claim, diesel))]
pub fn derive_claim(input: TokenStream) -> TokenStream {
    complete(input, claim::derive).into()
}

/// Gives the `Key` of a pattern whose placeholders name values in scope, for the functions of `advisory_runtime`.
///
/// ```ignore
/// let held = xact::begin(conn, lock_key!("account:<account.id>")).await?;
/// let week = lock_key!("report:<week>", with(week = date.iso_week().week()));
/// ```
///
/// After the pattern there can be `with(…)`, `name`, `component`, `guards`, `derivation`, `allow_ambiguous`, `allow_overlap`
/// and `crate`, as for `#[advisory_lock]`. The macro does not know types: a placeholder without a shape is any text.
#[proc_macro]
pub fn lock_key(input: TokenStream) -> TokenStream {
    let expanded = complete(input, lock_key::expand);
    quote!({ #expanded }).into()
}

/// Runs one of the smaller macros. Its mistakes are emitted beside the expansion, so that its users do not fail too.
fn complete(
    input: TokenStream,
    expand: fn(proc_macro2::TokenStream, &mut Errors) -> Option<proc_macro2::TokenStream>,
) -> proc_macro2::TokenStream {
    let mut errors = Errors::default();
    let expanded = expand(input.into(), &mut errors);
    let errors = errors.into_compile_errors();
    quote!(#errors #expanded)
}
