//! `#[derive(Claim)]`: the columns that claims of a table's rows use.

pub(crate) mod args;
mod record;
mod row;

use crate::args::runtime;
use crate::derive_input;
use crate::errors::Errors;
use crate::tokens::{first_span, hygienic, located_at, span_of};
use args::MaybeColumn;
use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use row::Row;

pub(crate) fn derive(input: TokenStream, errors: &mut Errors) -> Option<TokenStream> {
    let input = derive_input::parse(input, errors)?;
    let row = Row::new(&input, errors)?;
    let krate = runtime(row.args.krate.as_ref());
    let private = quote!(#krate::__private);
    let (found, claim) = (found_impl(&row, &private), claim_impl(&row, &private));
    let record = record::emit(&row, &private);
    Some(quote!(#found #claim #record))
}

/// The columns that the table has under their default names. A name in the inner block hides that
/// of the outer block, where every default name means an absent column.
fn found_impl(row: &Row<'_>, private: &TokenStream) -> TokenStream {
    let (name, table) = (&row.input.ident, &row.table);
    let (generics, arguments, bounds) = row.input.generics.split_for_impl();
    hygienic!(
        const _: () = {
            use #private::claim::absent::*;
            const _: () = {
                use #table::columns::*;
                impl #generics #private::claim::Found for #name #arguments #bounds {
                    type LockedUntil = locked_until;
                    type LockedBy = locked_by;
                    type CompletedAt = completed_at;
                    type FailedAt = failed_at;
                    type ErrorMessage = error_message;
                }
            };
        };
    )
}

fn claim_impl(row: &Row<'_>, private: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    let claim = hygienic!(#private::claim);
    let (name, table, args) = (&row.input.ident, &row.table, &row.args);
    // The compiler reports a column that the table lacks at the table's name.
    let at = span_of(table.clone().into_iter().last().as_ref());
    let given = |column: &Option<Ident>| Some(path(table, column.as_ref()?));
    let column = |given: Option<TokenStream>, of: &str| {
        let of = Ident::new(of, here);
        given.unwrap_or_else(|| hygienic!(#claim::#of<Self, #table::table>))
    };
    let locked_until = column(given(&args.locked_until), "ExpiryOf");
    let locked_by = column(given(&args.locked_by), "HolderOf");
    let checked = |given: Option<TokenStream>, found: &str| {
        let at = at.resolved_at(here);
        let found = Ident::new(found, at);
        given.unwrap_or_else(|| quote_spanned!(at=> <Self as #claim::Found>::#found))
    };
    let until = checked(given(&args.locked_until), "LockedUntil");
    let by = checked(given(&args.locked_by), "LockedBy");
    let maybe = |given: &Option<MaybeColumn>, found: &str| match given {
        Some(MaybeColumn::Column(column)) => path(table, column),
        Some(MaybeColumn::None) => hygienic!(#claim::Absent),
        Some(MaybeColumn::Delete) => hygienic!(#claim::Deleted),
        None => {
            let found = Ident::new(found, here);
            hygienic!(<Self as #claim::Found>::#found)
        }
    };
    let completed_at = maybe(&args.completed_at, "CompletedAt");
    let failed_at = maybe(&args.failed_at, "FailedAt");
    let error_message = maybe(&args.error_message, "ErrorMessage");
    let (queue_columns, queue_consts, last) = queue(row, private, &failed_at);
    let columns = row.key.iter().map(|(column, _)| path(table, column));
    let types = row.key.iter().map(|(_, field)| &field.ty);
    let members = row.key.iter().map(|(_, field)| &field.ident);
    // The compiler reports errors in the key at its columns' names.
    let named = row.key.first().map(|(column, _)| column.span());
    let at_key = named.map_or(here, |named| named.resolved_at(here));
    let (key, value, values) = if row.key.len() == 1 {
        (
            quote_spanned!(at_key=> #(#claim::One<#columns>)*),
            hygienic!(#(&'a #types)*),
            hygienic!(#(&self.#members)*),
        )
    } else {
        (
            quote_spanned!(at_key=> (#(#columns,)*)),
            hygienic!((#(&'a #types,)*)),
            hygienic!((#(&self.#members,)*)),
        )
    };
    let order = args.order.iter().flatten();
    let order = order.map(|order| {
        let (column, is_descending) = (path(table, &order.column), order.is_descending);
        let nulls_first = order.nulls_first.unwrap_or(is_descending);
        hygienic!(#claim::Order::by::<#column>(#is_descending, #nulls_first))
    });
    let ttl = args.ttl.as_ref().map(|ttl| {
        let time = ttl.expression(private);
        hygienic!(const TTL: #private::core::time::Duration = #time;)
    });
    let renew = args.renew.as_ref().map(|renew| {
        let time = renew.expression(private);
        hygienic!(
            const RENEW: #private::core::time::Duration = {
                let renew: #private::core::time::Duration = #time;
                #private::core::assert!(renew.as_millis() >= 10, "`renew` must be at least 10 ms");
                renew
            };
        )
    });
    let (generics, arguments, bounds) = row.input.generics.split_for_impl();
    hygienic!(
        #[automatically_derived]
        impl #generics #claim::Claim for #name #arguments #bounds {
            type Table = #table::table;
            type Key = #key;
            type KeyValue<'a> = #value;
            type LockedUntil = #locked_until;
            type LockedBy = #locked_by;
            type CompletedAt = #completed_at;
            type FailedAt = #failed_at;
            type ErrorMessage = #error_message;
            #queue_columns
            type Selection = #claim::SelectionOf<Self>;
            const ORDER: &'static [#claim::Order<Self::Table>] = &[#(#order),*];
            #ttl
            #renew
            #queue_consts
            fn selection() -> Self::Selection {
                #claim::check_columns::<#until, #by>();
                #last
                #claim::selection::<Self>()
            }
            fn from_row<'a>(row: &impl #claim::Row<'a, #claim::Pg>) -> #claim::Result<Self> {
                #claim::from_row(row)
            }
            fn key(&self) -> Self::KeyValue<'_> {
                #values
            }
        }
    )
}

/// The columns of a queue of jobs, its constants, and a check that refuses a last attempt without a
/// `failed_at`.
fn queue(
    row: &Row<'_>,
    private: &TokenStream,
    failed_at: &TokenStream,
) -> (TokenStream, TokenStream, Option<TokenStream>) {
    let here = Span::mixed_site();
    let claim = hygienic!(#private::claim);
    let args = &row.args;
    let column = |given: &Option<Ident>| {
        given.as_ref().map_or_else(
            || hygienic!(#claim::Absent),
            |column| path(&row.table, column),
        )
    };
    let (run_at, attempts) = (column(&args.run_at), column(&args.attempts));
    let option = hygienic!(#private::core::option::Option);
    let max_column = args.max_attempts.as_ref().and_then(args::column_of);
    let most = args.max_attempts.as_ref().filter(|_| max_column.is_none());
    let most = most.map(|most| hygienic!(const MAX_ATTEMPTS: #option<u32> = #option::Some(#most);));
    let max_attempts = column(&max_column);
    let table = &row.table;
    let sets = |name: &str, changes: &Option<TokenStream>| {
        let (changes, name) = (changes.as_ref()?, Ident::new(name, here));
        Some(hygienic!(
            fn #name() -> impl #claim::QueryFragment<#claim::Pg>
                + #private::core::marker::Send + #private::core::marker::Sync + 'static
            {
                #[allow(unused_imports)]
                use #claim::ExpressionMethods as _;
                #[allow(unused_imports)]
                use #table::columns::*;
                #claim::changes::<Self, _>((#changes))
            }
        ))
    };
    let completed = sets("completed", &args.completed);
    let failed = sets("failed", &args.failed);
    let check = args.max_attempts.as_ref().map(|most| {
        let at = first_span(most).resolved_at(here);
        quote_spanned!(at=> #claim::check_last_attempt::<#failed_at>();)
    });
    let limit = args.limit.as_ref().map(|limit| {
        hygienic!(
            const LIMIT: u32 = {
                let limit: u32 = #limit;
                #private::core::assert!(limit > 0, "`limit` takes a number of at least one");
                limit
            };
        )
    });
    let per = column(&args.per);
    let backoff = args.backoff.as_ref().map(|[first, longest]| {
        let (first, longest) = (first.expression(private), longest.expression(private));
        let time = hygienic!(#private::core::time::Duration);
        hygienic!(const BACKOFF: [#time; 2] = [#first, #longest];)
    });
    let columns = hygienic!(type RunAt = #run_at; type Attempts = #attempts; type MaxAttempts = #max_attempts; type Per = #per;);
    let consts = hygienic!(#most #backoff #limit #completed #failed);
    (columns, consts, check)
}

/// A column of the table. The compiler reports errors at the column's name.
fn path(table: &TokenStream, column: &Ident) -> TokenStream {
    let table = located_at(table.clone(), column.span());
    quote_spanned!(column.span()=> #table::#column)
}
