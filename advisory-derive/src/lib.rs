//! The macros of [`advisory-runtime`](https://docs.rs/advisory-runtime). Depend on that crate: it re-exports them, and their expansion
//! calls it.
//!
//! | macro | what it does | use it as |
//! | --- | --- | --- |
//! | [`macro@advisory_lock`] | runs a function under a lock | `advisory_runtime::advisory_lock` |
//! | [`macro@LockKey`] | declares a lock as a type | `advisory_runtime::LockKey` |
//! | [`macro@KeyPart`] | lets a type be part of a key | `advisory_runtime::KeyPart` |
//! | [`lock_key!`] | computes a key | `advisory_runtime::lock_key` |
//! | [`macro@Claim`] | lets workers claim the rows of a table | `advisory_runtime::claim::Claim` |
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
/// #[advisory_lock(key = "reindex", scope = "session", wait = "never", on_held = Ok(()), pool = self.pool)]
/// async fn reindex(&self) -> Result<(), AppError> { /* … */ }
///
/// #[advisory_lock(key = "invoice:<month>", scope = "lease", pool = self.pool, keep = "24h", on_done = Ok(()))]
/// async fn send_invoices(&self, month: u32) -> Result<(), AppError> { /* … */ }
/// ```
///
/// An `async fn` uses diesel-async, a plain `fn` uses Diesel's blocking connections; the arguments mean the same. The function keeps its
/// signature, and its future is `Send` whenever it would be without the attribute; `guide::expansion` names the exceptions.
///
/// This page is the reference. `advisory_runtime::guide` explains when you need a lock, which scope and which key to choose, what waiting
/// costs, and what the attribute expands to. `advisory_runtime::xact`, `session` and `lease` offer the same without the attribute.
///
/// # Arguments
///
/// The second column shows the default first; "none" means that there is no default value.
///
/// | argument | values | meaning |
/// | --- | --- | --- |
/// | `key` | a string literal is a key pattern; `(7, "<id>")` is a pair whose second half is derived from one; any other expression is a `LockKey`: `42424242`, `(7, tenant_no)`, a declared lock | what to lock |
/// | `keys` | a list, `["account:<from>", "account:<to>"]`; or an expression without brackets that yields any number of declared locks, `ids.iter().map(\|id\| AccountLock { id: *id })` | several locks, acquired in one round trip: sorted by number, without duplicates |
/// | `with` | `with(week = date.iso_week().week())` | computed values for placeholders, like the named arguments of `format!` |
/// | `scope` | `"xact"`, `"session"`, `"lease"` | how long the lock is held: until the transaction ends, for the call only, or as a row that is renewed and can expire |
/// | `mode` | `"exclusive"`, `"shared"` | in shared mode, other calls can hold the lock in shared mode at the same time. Not for `"lease"` |
/// | `wait` | none: the session's `lock_timeout`, for each key; `"never"`, `"500ms"`, `"5s"`, `"2m"`, `"1h"`, a `Duration`, `"forever"` | how long the whole acquisition can take |
/// | `poll` | none; `"250ms"`, a `Duration` | tries for the lock at this interval instead of waiting at the server. Not for `"lease"`, which always polls |
/// | `poll_max` | eight times `poll`; `"2s"`, a `Duration` | the longest pause between two tries. As long as `poll`, the pauses do not grow |
/// | `permits` | `1`; `3`, an integer expression, `self.limit` | how many calls can hold the lock at once. Needs one key, and `wait = "never"` or `poll`; not with `queue`, `guards`, `mode = "shared"` or scope `"lease"` |
/// | `on_held` | none: an error; an expression of the return type, `Ok(None)`, `Err(AppError::Busy)` | what to return without running the body when the wait is over. Needs a `wait` that ends, and with `keep` an `on_done` |
/// | `on_done` | none: an error; an expression of the return type, `Ok(())` | what to return without running the body when its work is already done, such as to a webhook that is delivered again. Needs a `keep`. Scope `"lease"` |
/// | `err` | the error's `From`; `\|error\| AppError::Lock(error)`, a function | converts `advisory_runtime::Error` to the function's error; for error types of other crates, which cannot implement `From` |
/// | `max_hold` | none; `"30s"`, a `Duration` | how long the body can run |
/// | `isolation` | `"read committed"`, `"repeatable read"`, `"serializable"` | the isolation level of the transaction, whose snapshot is taken after the lock. Scope `"xact"`, and not inside an open transaction |
/// | `nested` | `"allow"`, `"refuse"` | whether the function can run inside an open transaction. Scope `"xact"`; `"session"` always refuses |
/// | `pool` | an expression: `self.pool` | the pool of the connection: bb8 or deadpool, in a plain `fn` r2d2, or one of your own. The body has `conn`; a lease takes a connection for each of its statements, and its body has none. Required for scope `"lease"` |
/// | `conn` | the parameter `conn` or `_conn`; a place, or an expression | the connection, where it does not come from a `pool`. Not for `"lease"` |
/// | `ttl` | `"60s"`, a `Duration` | how long the lease lasts after its last renewal, and thus how soon its key is free after the process dies. Scope `"lease"` |
/// | `renew` | a third of `ttl`; `"20s"`, a `Duration` | how often the lease is renewed while the body runs. Scope `"lease"` |
/// | `keep` | none; `"24h"`, a `Duration` | how long the key is done after `Ok`, or after `lease.complete(conn)`. Scope `"lease"` |
/// | `queue` | none; `64` | how many calls of this process can wait for the key before they take a connection. Needs `pool`, or an expression for `conn`; not with `permits`, `mode = "shared"` or scope `"lease"` |
/// | `handle` | none; `handle = lock` | a variable for the body: the lock's keys, how long the call waited, and `lock.check(conn).await`, which checks that the lock is still held. A lease also has its fencing token, a declared lock `lock.holding()` for functions that must not run without it |
/// | `derivation` | `"sha256"`, `"md5"`, `"fnv1a32"`, `"fnv1a64"`, `"hashtext"`, `"hashtextextended"` | how the rendered key becomes a number. Not for `"lease"`, whose key is its text |
/// | `name` | none; `"booking-slot"` | sites with the same name and pattern share one lock |
/// | `component` | none; `"payments"` | a column of the registry. Its "purpose" is the first line of the doc comment |
/// | `guards` | none; `"bookings"`, `"bookings, shop.blocks"` | the tables whose writes need the lock, for the registry and `cargo advisory check --database-url`. `cargo advisory migration require` prints the trigger. Not for `"lease"` |
/// | `allow_overlap` | none; `("other-name", "reason")` | accepts that the key can collide with another lock's, for deployed keys that cannot change. Can be repeated; `"*"` is every other lock |
/// | `max_keys` | `64` | how many locks a slice, or an expression for `keys`, can take |
/// | `allow_ambiguous` | none; `"reason"` | accepts that different values can render the key, for deployed keys that cannot change |
/// | `crate` | `::advisory_runtime`, a path | the path of the runtime, if it was renamed |
///
/// # Key patterns
///
/// A key pattern is text with placeholders in angle brackets. A placeholder is a path that begins with a parameter's name
/// (`<req.tenant_id>`, `<self.tenant>`, `<id.0>`), with an optional shape (`<tenant_id: uuid>`) and filters (`<email|trim|lower>`).
/// `<<` is a literal `<`. `<ids*>` takes a slice and locks a key for each element.
///
/// In text values, `%` and `:` are escaped as `%25` and `%3A`, so different values never render the same key. A pattern whose
/// placeholders cannot be distinguished does not compile. The number of a key is the first eight bytes of the SHA-256 of its text. The
/// other derivations are for keys that other code computes too; the second half of a pair needs one of 32 bits. `fnv1a32` and `hashtext` have only 32 bits: among 1,000 keys, two have
/// the same number with a probability of 1 in 8,600, among 77,000 keys of 1 in 2.
///
/// **Filters.** `trim` strips spaces (U+0020) from both ends, and `lower` converts A to Z to lower case. They change nothing else, so a new
/// version of Unicode changes no key. `raw` leaves `%` and `:` unescaped, for keys that other code computes too. `display` uses the
/// value's `Display`. Filters change the key but not the argument: if the body writes or compares the value, apply the same change there
/// (`email.trim_matches(' ').to_ascii_lowercase()`; `str::trim` strips more).
///
/// # The connection
///
/// With `pool = self.pool` the call takes a connection from the pool, and the body has it as `conn`. If there is none, the error is
/// `Error::Pool`, converted like the lock's other errors; `on_held` is not returned for it. `wait` does not limit the check-out: the
/// pool's own timeout does. A pool of your own implements `advisory_runtime::Pool` or `blocking::Pool`.
///
/// A place expression (`conn = self.conn`, `conn = ctx.db`) keeps its own name in the body. Any other expression for `conn` is evaluated
/// by the function, with the function's error conversion, and the body sees the connection as `conn`.
///
/// Use that connection: a transaction-level lock does not protect statements on another one, so the compiler warns if the body leaves
/// it unused. It does not warn under a session-level lock, which also protects work on other connections, or on none.
///
/// # Locking
///
/// **Scope `"xact"`.** One message begins the transaction and takes the lock; `advisory_runtime::xact::begin` shows the SQL. `Ok` commits;
/// `Err` and a panic roll back. Inside an open transaction the function uses a savepoint instead: `Ok` keeps the lock until the outer
/// transaction ends, `Err` releases it.
///
/// **Scope `"session"`.** The body runs without a transaction and can begin one. The lock is released when the body has returned. Use it for
/// work that is not one transaction, such as a scheduler. It is refused inside an open transaction, because the lock would be released
/// before the commit. See `advisory_runtime::session::acquire`.
///
/// **Scope `"lease"`.** The lock is a row of the lease table with a holder, a fencing token and an expiry on the server's clock. Use it for
/// work that takes longer than you want to hold a connection. The body runs without a transaction and without a connection of the lease,
/// which is renewed in the background, each time on a connection from `pool`. If the lease is lost, the body is dropped before another
/// process can acquire it. The work is done at least once; to do it exactly once, write a `keep` and an `on_done`, and call `lease.complete(conn)` in the transaction that
/// ends it.
///
/// A lease has one key and one holder, so `keys`, `<ids*>` and `mode` are refused. So is a plain `fn`, because it cannot be dropped. The
/// row is found by the SHA-256 of the key's text; the text of a fixed number is its digits. A lease and an advisory lock never exclude
/// each other, whatever their keys.
///
/// # Waiting
///
/// | you write | if the lock is held, the call | the server sees | cost |
/// | --- | --- | --- | --- |
/// | no `wait` | waits for each key up to the session's `lock_timeout`, by default forever; then `TimedOut` | a waiter in `pg_locks`, served in order of arrival, with a snapshot that index builds wait for | a connection while it waits; 1 round trip |
/// | `wait = "5s"` | waits for up to 5 s in total: the queue of this process, all keys, the server; then `TimedOut` | the same | the same |
/// | `wait = "forever"` | waits until the lock is free, whatever `lock_timeout` is | the same | the same |
/// | `wait = "never"` | tries once; then `NotAvailable` | one try, no waiter | 2 round trips, 3 if the lock is held |
/// | `poll = "250ms"`, alone or with a `wait` other than `"never"` | tries again until `wait` is over, then `TimedOut`. Pauses are up to 250 ms at first, and up to 2 s later, or up to `poll_max` | tries; between them no waiter and no snapshot. A call that waits at the server is served first | each try costs as much as `"never"`; with `pool`, or an expression for `conn`, a connection only during a try; up to one pause of delay |
/// | `queue = 64`, with any of these | waits in the queue of this process first; `QueueFull` if 64 calls are in it | one waiter per process | no connection while it is in the queue |
/// | `permits = 3`, with `"never"` or `poll` | behaves the same once three calls hold it | three keys | one statement for each try |
/// | `on_held = Ok(None)`, with a `wait` that ends | returns that instead of the error | nothing | nothing |
/// | `on_done = Ok(())`, with a `keep` | waits as above; once the work of the key is done, returns that, at once and whatever the `wait` | nothing | nothing |
///
/// `is_busy()` is true for `NotAvailable`, `TimedOut` and `QueueFull`. `on_held` is returned for these only, not for a lost connection, and
/// `on_done` for `Done` only. They are evaluated after the wait and can use the function's parameters. Somebody who holds the key can still
/// fail, so work that is not done must not be reported as done: `guide::leases` explains it. A queue belongs to the number of a key: a program that locks the
/// same key in two databases has one queue for both. `advisory_runtime::guide::waiting` helps to choose.
///
/// # The longest run
///
/// With `max_hold` an async body is dropped when it has held the lock for that long, and its transaction is rolled back: `HoldExceeded`. If
/// a statement still runs after another 100 ms, it is cancelled and the connection is closed; otherwise the connection stays usable. A
/// blocking body cannot be dropped: it runs to its end, and then its commit is refused.
///
/// If the process has stopped or its packets are dropped, the server ends the session one second after the limit. Since PostgreSQL 17 it
/// counts from the lock, even while a statement runs. Before 17, inside an open transaction, and for session-level locks it counts from
/// the last statement; `advisory_runtime::Request::max_hold` has the table. A blocking body does not notice that its session has ended
/// until its next statement.
///
/// # Errors
///
/// The function returns a `Result` whose error implements `From<diesel::result::Error>`, `From<advisory_runtime::Error>`, or both. The
/// first converts database errors, the second the lock's errors; if one is missing, the other converts both. With `err = |error| …` neither
/// is needed: the closure or function converts `advisory_runtime::Error`, whose variant `Database` contains database errors.
///
/// A function that returns `QueryResult` gets the server's answers as `diesel::result::Error::DatabaseError` of their kind, and all other
/// errors of the lock as `diesel::result::Error::QueryBuilderError`. `advisory_runtime::Error::find(&error)` finds the
/// `advisory_runtime::Error` in either. That type lists each error with its SQLSTATE; `guide::diesel_errors` shows how each one arrives.
///
/// # Cancel safety
///
/// Dropping the future closes the connection: no lock, no open transaction and, without a pooler, no waiting backend is left. A pool replaces the
/// connection; on a connection of your own, every further locked call returns `BrokenConnection`. To limit the time of a call and keep its
/// connection, write `wait` and `max_hold`. After a drop during the commit it is not known whether the commit happened.
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
/// Placeholders name fields. The pattern can be the second half of a pair, `#[lock_key((7, "<id>"), derivation = "hashtext")]`, and
/// can be followed by `with(…)`, `name`, `component`, `guards`, `derivation`, `allow_ambiguous`,
/// `allow_overlap` and `crate`, as in `#[advisory_lock]`. `AccountLock { id }.rendered()` and `.key()` work without a database.
///
/// A function that takes a `Holding<'_, AccountLock>` cannot be called without the lock: see `advisory_runtime::Holding`.
#[proc_macro_derive(LockKey, attributes(lock_key))]
pub fn derive_lock_key(input: TokenStream) -> TokenStream {
    complete(input, lock_key::derive).into()
}

/// Makes a newtype, or an enum whose variants have no fields, usable in a key.
///
/// ```ignore
/// #[derive(KeyPart)]
/// struct TenantId(Uuid);
///
/// #[derive(KeyPart)]
/// enum Kind { Payment, #[key_part("refund")] Reversal }
/// ```
///
/// A newtype renders like its field. A variant renders as its name, or as the text of its `#[key_part("text")]`. Renaming a variant
/// without that attribute changes keys: instances before and after the change no longer exclude each other.
#[proc_macro_derive(KeyPart, attributes(key_part))]
pub fn derive_key_part(input: TokenStream) -> TokenStream {
    complete(input, key_part::derive).into()
}

/// Lets workers claim the rows of a table, with the functions of `advisory_runtime::claim`.
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
/// | `table` | the path in `#[diesel(table_name = …)]`; another path | the `table!` |
/// | `key` | `id`; a column, or up to four: `(matrix_id, chunk_hash)` | the columns that identify a row: unique together |
/// | `order` | the order of the key; `"priority desc, created_at"`, also `nulls first` and `nulls last` | which row is claimed next |
/// | `ttl` | `"60s"`, a `Duration` | how long a claim lasts |
/// | `renew` | a third of `ttl`; at most half of it | how often work under a claim renews it |
/// | `locked_until`, `locked_by` | the columns with these names; others | until when and by whom the row is claimed: `Nullable<Timestamptz>` and `Nullable<Text>` |
/// | `completed_at`, `failed_at`, `error_message` | the table's columns with these names, if it has them; others; `"none"` | when the job was completed or failed permanently, and why: `Nullable<Timestamptz>`, the last `Nullable<Text>` |
/// | `crate` | `::advisory_runtime`, a path | the path of the runtime, if it was renamed |
///
/// Names are those of the `table!`. A column that is missing there, or has another type, does not compile. The columns of the last
/// group are looked up in the `table!` and not among the fields: otherwise a struct without `completed_at` would repeat completed jobs.
#[proc_macro_derive(Claim, attributes(claim, diesel))]
pub fn derive_claim(input: TokenStream) -> TokenStream {
    complete(input, claim::derive).into()
}

/// Computes the `Key` of a pattern whose placeholders name values in scope, for the functions of `advisory_runtime`.
///
/// ```ignore
/// let held = xact::begin(conn, lock_key!("account:<account.id>")).await?;
/// let week = lock_key!("report:<week>", with(week = date.iso_week().week()));
/// ```
///
/// The pattern can be the second half of a pair, `(7, "<id>")`. It can be followed by `with(…)`, `name`, `component`, `guards`, `derivation`, `allow_ambiguous`, `allow_overlap` and
/// `crate`, as in `#[advisory_lock]`. The macro does not know types: a placeholder without a shape is compared as any text.
#[proc_macro]
pub fn lock_key(input: TokenStream) -> TokenStream {
    let expanded = complete(input, lock_key::expand);
    quote!({ #expanded }).into()
}

/// Runs one of the smaller macros. Errors are emitted together with the expansion, so that code that uses it does not fail too.
fn complete(
    input: TokenStream,
    expand: fn(proc_macro2::TokenStream, &mut Errors) -> Option<proc_macro2::TokenStream>,
) -> proc_macro2::TokenStream {
    let mut errors = Errors::default();
    let expanded = expand(input.into(), &mut errors);
    let errors = errors.into_compile_errors();
    quote!(#errors #expanded)
}
