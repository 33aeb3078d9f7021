//! `#[derive(Claim)]`: which columns of its table a row's claims are made of.

use crate::claim_args::{MaybeColumn, Order};
use crate::claim_row::Row;
use crate::declared::parsed;
use crate::duration::Duration;
use crate::errors::Errors;
use crate::literal::span_of;
use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};

pub(crate) fn derive(input: TokenStream, errors: &mut Errors) -> Option<TokenStream> {
    let input = parsed(input, errors)?;
    let row = Row::new(&input, errors)?;
    let krate = row.args.krate.clone();
    let krate = krate.unwrap_or_else(|| quote!(::advisory_runtime));
    let private = quote!(#krate::__private);
    let (found, implemented) = (found(&row, &private), claim(&row, &private));
    Some(quote!(#found #implemented))
}

/// Which terminal columns the table has under their usual names: those of the inner block come before those of the outer one,
/// and there only the table's own are named.
fn found(row: &Row<'_>, private: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    let (name, table) = (&row.input.ident, &row.table);
    let (generics, arguments, bounds) = row.input.generics.split_for_impl();
    quote_spanned!(here=>
        const _: () = {
            use #private::claim::absent::*;
            const _: () = {
                use #table::columns::*;
                impl #generics #private::claim::Found for #name #arguments #bounds {
                    type CompletedAt = completed_at;
                    type FailedAt = failed_at;
                    type ErrorMessage = error_message;
                }
            };
        };
    )
}

fn claim(row: &Row<'_>, private: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    let claim = quote_spanned!(here=> #private::claim);
    let (name, table, args) = (&row.input.ident, &row.table, &row.args);
    // What is missing in the table is missed where the user has named the table.
    let at = span_of(table.clone().into_iter().last().as_ref());
    let column = |given: &Option<Ident>, usual: &str| {
        let column = given.clone().unwrap_or_else(|| Ident::new(usual, at));
        path(table, &column)
    };
    let locked_until = column(&args.locked_until, "locked_until");
    let locked_by = column(&args.locked_by, "locked_by");
    let maybe = |given: &Option<MaybeColumn>, found: &str| match given {
        Some(MaybeColumn::Column(column)) => path(table, column),
        Some(MaybeColumn::None) => quote_spanned!(here=> #claim::Absent),
        None => {
            let found = Ident::new(found, here);
            quote_spanned!(here=> <Self as #claim::Found>::#found)
        }
    };
    let completed_at = maybe(&args.completed_at, "CompletedAt");
    let failed_at = maybe(&args.failed_at, "FailedAt");
    let error_message = maybe(&args.error_message, "ErrorMessage");
    let columns = row.key.iter().map(|(column, _)| path(table, column));
    let types = row.key.iter().map(|(_, field)| &field.ty);
    let members = row.key.iter().map(|(_, field)| &field.ident);
    // What is wrong with the key is wrong where its columns were named.
    let named = row.key.first().map(|(column, _)| column.span());
    let at_key = named.map_or(here, |named| named.resolved_at(here));
    let (key, value, values) = if row.key.len() == 1 {
        (
            quote_spanned!(at_key=> #(#claim::One<#columns>)*),
            quote_spanned!(here=> #(&'a #types)*),
            quote_spanned!(here=> #(&self.#members)*),
        )
    } else {
        (
            quote_spanned!(at_key=> (#(#columns,)*)),
            quote_spanned!(here=> (#(&'a #types,)*)),
            quote_spanned!(here=> (#(&self.#members,)*)),
        )
    };
    let order = args.order.iter().flatten();
    let order = order.map(|order| step(order, table, &claim));
    let time = |name: &str, time: &Option<Duration>| {
        let name = Ident::new(name, here);
        let time = time.as_ref()?.expression(private);
        Some(quote_spanned!(here=> const #name: #private::core::time::Duration = #time;))
    };
    let (ttl, renew) = (time("TTL", &args.ttl), time("RENEW", &args.renew));
    let (generics, arguments, bounds) = row.input.generics.split_for_impl();
    quote_spanned!(here=>
        impl #generics #claim::Claim for #name #arguments #bounds {
            type Table = #table::table;
            type Key = #key;
            type KeyValue<'a> = #value;
            type LockedUntil = #locked_until;
            type LockedBy = #locked_by;
            type CompletedAt = #completed_at;
            type FailedAt = #failed_at;
            type ErrorMessage = #error_message;
            type Selection = #claim::SelectionOf<Self>;
            const ORDER: &'static [#claim::Order<Self::Table>] = &[#(#order),*];
            #ttl
            #renew
            fn selection() -> Self::Selection {
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

/// A column of the table. What is wrong with it is wrong where the column was named.
fn path(table: &TokenStream, column: &Ident) -> TokenStream {
    let table = table.clone().into_iter().map(|mut token| {
        token.set_span(column.span().resolved_at(token.span()));
        token
    });
    let table: TokenStream = table.collect();
    quote_spanned!(column.span()=> #table::#column)
}

/// One column of the order, as an expression.
fn step(order: &Order, table: &TokenStream, claim: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    let column = path(table, &order.column);
    let direction = Ident::new(
        if order.is_descending {
            "descending"
        } else {
            "ascending"
        },
        here,
    );
    let nulls = order.nulls_first.map(|first| {
        let nulls = if first { "nulls_first" } else { "nulls_last" };
        let nulls = Ident::new(nulls, here);
        quote_spanned!(here=> .#nulls())
    });
    quote_spanned!(here=> #claim::Order::#direction::<#column>()#nulls)
}
