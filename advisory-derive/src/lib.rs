//! The `#[advisory_lock]` attribute. Use it through `advisory_runtime::advisory_lock`, where it is documented with what it
//! runs and how long the lock is held.
#![forbid(unsafe_code)]

mod args;
mod check;
mod errors;
mod expand;
mod function;
mod receiver;
mod site;

use errors::Errors;
use proc_macro::TokenStream;
use quote::quote;

/// Runs the function in a transaction that holds an advisory lock.
///
/// ```ignore
/// #[advisory_lock(key = "<tenant_id>:<date>", scope = "xact")]
/// async fn book(conn: &mut AsyncPgConnection, tenant_id: Uuid, date: NaiveDate) -> QueryResult<Booking> { … }
/// ```
///
/// | argument | value | meaning |
/// | --- | --- | --- |
/// | `key` | a key pattern | what is locked |
/// | `scope` | `"xact"` (default) | held until the transaction ends |
/// | `conn` | the parameter `conn` (default), a place, or an expression | the connection |
/// | `crate` | `::advisory_runtime` (default), a path | where the runtime is, if it was renamed |
///
/// **Key patterns.** Text, and placeholders in angle brackets: a path from any name that a parameter binds
/// (`<req.tenant_id>`, `<self.tenant>`, `<id.0>`), an optional shape (`<tenant_id: uuid>`) and filters
/// (`<email|trim|lower>`). `<<` is a literal `<`. In a text value `%` and `:` are written `%25` and `%3A`, so different
/// values never render one key; a pattern whose placeholders cannot be told apart does not compile. The key is the first
/// eight bytes of the SHA-256 of the rendered text.
///
/// **The connection.** A place (`conn = self.conn`, `conn = ctx.db`) is used under its own name. Any other expression
/// (`conn = self.pool.get().await?`) is evaluated by the function, with its own error conversion, and bound as `conn` in
/// the body.
///
/// **Begin, body, finish.** One message begins the transaction and takes the lock; see `advisory_runtime::xact::begin` for
/// the SQL. On `Ok` the transaction commits, on `Err` and on a panic it rolls back. Inside an open transaction a savepoint
/// takes its place: `Ok` keeps the lock to the end of the outer transaction, `Err` frees it.
///
/// **Errors.** The function returns a `Result` whose error has `From<diesel::result::Error>`,
/// `From<advisory_runtime::Error>`, or both. Database errors go through the first where there is one, the lock's own errors
/// through the second; where one is missing, the other takes its part.
///
/// **Cancel safety.** Dropping the future leaves no lock, no waiting backend and no open transaction. The connection is
/// closed: a pool discards it, one of your own has to be opened anew. After a drop during the commit it is not known
/// whether it happened.
#[proc_macro_attribute]
pub fn advisory_lock(args: TokenStream, item: TokenStream) -> TokenStream {
    let item = proc_macro2::TokenStream::from(item);
    lock(args.into(), item.clone())
        .unwrap_or_else(|errors| {
            // Beside the errors the function as it was, so that its callers do not fail too.
            let errors = errors.into_compile_errors();
            quote!(#errors #item)
        })
        .into()
}

fn lock(
    args: proc_macro2::TokenStream,
    item: proc_macro2::TokenStream,
) -> Result<proc_macro2::TokenStream, Errors> {
    let mut errors = Errors::default();
    let args = args::parse(args, &mut errors);
    let function = function::parse(item, &mut errors);
    let site = site::Site::new(args, function, &mut errors);
    if let Some(site) = &site {
        check::check(site, &mut errors);
    }
    errors.finish(site).map(|site| expand::expand(&site))
}
