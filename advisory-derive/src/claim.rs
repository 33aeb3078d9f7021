//! `#[derive(Claim)]`: which columns of its table a row's claims are made of.

use crate::claim_args::{ClaimArgs, MaybeColumn, Order};
use crate::declared::{only, parsed};
use crate::errors::Errors;
use crate::literal::span_of;
use crate::tokens::{is_punct, is_word, split_at_commas};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Attribute, Data, Field, Fields, LitStr, ext::IdentExt};

pub(crate) fn derive(input: TokenStream, errors: &mut Errors) -> Option<TokenStream> {
    let here = Span::mixed_site();
    let input = parsed(input, errors)?;
    let name = &input.ident;
    let written = match only(&input.attrs, "claim") {
        Some(attribute) => match attribute.meta.require_list() {
            Ok(list) => list.tokens.clone(),
            Err(error) => {
                errors.push(error);
                TokenStream::new()
            }
        },
        None => TokenStream::new(),
    };
    let args = ClaimArgs::parse(written, errors);
    let Data::Struct(data) = &input.data else {
        let wanted =
            format_args!("`{name}` is no struct: a row is a struct with its columns as fields");
        errors.at(name.span(), wanted);
        return None;
    };
    let Fields::Named(fields) = &data.fields else {
        let wanted =
            format_args!("`{name}` has no names for its fields: a row's fields are its columns");
        errors.at(name.span(), wanted);
        return None;
    };
    let table = args
        .table
        .clone()
        .or_else(|| of_diesel(&input.attrs, "table_name"));
    if table.is_none() {
        let wanted =
            format_args!("which table is `{name}` a row of? write `#[diesel(table_name = …)]`");
        errors.at(name.span(), wanted);
    }
    let key = key(&args, name, fields.named.iter(), errors);
    let (table, (columns, members)) = (table?, key?);

    let krate = args
        .krate
        .clone()
        .unwrap_or_else(|| quote!(::advisory_runtime));
    let claim = quote_spanned!(here=> #krate::__private::claim);
    // What is missing in the table is missed where the user has named the table.
    let at = span_of(table.clone().into_iter().last().as_ref());
    let column = |given: &Option<Ident>, usual: &str| {
        let column = given.clone().unwrap_or_else(|| Ident::new(usual, at));
        path(&table, &column)
    };
    let (locked_until, locked_by) = (
        column(&args.locked_until, "locked_until"),
        column(&args.locked_by, "locked_by"),
    );
    let maybe = |given: &Option<MaybeColumn>, found: &str| match given {
        Some(MaybeColumn::Column(column)) => path(&table, column),
        Some(MaybeColumn::None) => quote_spanned!(here=> #claim::Absent),
        None => {
            let found = Ident::new(found, here);
            quote_spanned!(here=> <Self as #claim::Found>::#found)
        }
    };
    let (completed_at, failed_at, error_message) = (
        maybe(&args.completed_at, "CompletedAt"),
        maybe(&args.failed_at, "FailedAt"),
        maybe(&args.error_message, "ErrorMessage"),
    );
    let (key, value, values) = match (columns.as_slice(), members.as_slice()) {
        ([column], [member]) => {
            let (ident, ty) = (&member.ident, &member.ty);
            (
                {
                    let column = path(&table, column);
                    quote_spanned!(here=> #claim::One<#column>)
                },
                quote_spanned!(here=> &'a #ty),
                quote_spanned!(here=> &self.#ident),
            )
        }
        _ => {
            let idents = members.iter().map(|member| &member.ident);
            let types = members.iter().map(|member| &member.ty);
            let columns = columns.iter().map(|column| path(&table, column));
            (
                quote_spanned!(here=> (#(#columns,)*)),
                quote_spanned!(here=> (#(&'a #types,)*)),
                quote_spanned!(here=> (#(&self.#idents,)*)),
            )
        }
    };
    let order = args
        .order
        .iter()
        .flatten()
        .map(|order| step(order, &table, &claim));
    let order = quote_spanned!(here=> &[#(#order),*]);
    let private = quote_spanned!(here=> #krate::__private);
    let ttl = args.ttl.as_ref().map(|ttl| {
        let ttl = ttl.expression(&private);
        quote_spanned!(here=> const TTL: #private::core::time::Duration = #ttl;)
    });
    let renew = args.renew.as_ref().map(|renew| {
        let renew = renew.expression(&private);
        quote_spanned!(here=> const RENEW: #private::core::time::Duration = #renew;)
    });
    let (generics, arguments, bounds) = input.generics.split_for_impl();
    let (completed, failed, message) = (
        Ident::new("completed_at", here),
        Ident::new("failed_at", here),
        Ident::new("error_message", here),
    );
    Some(quote_spanned!(here=>
        const _: () = {
            use #claim::absent::*;
            const _: () = {
                // Its names come before those of the outer block.
                use #table::columns::*;
                impl #generics #claim::Found for #name #arguments #bounds {
                    type CompletedAt = #completed;
                    type FailedAt = #failed;
                    type ErrorMessage = #message;
                }
            };
        };
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
            const ORDER: &'static [#claim::Order<Self::Table>] = #order;
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
    ))
}

/// The key's columns, and the fields that hold them.
fn key<'f>(
    args: &ClaimArgs,
    name: &Ident,
    fields: impl Iterator<Item = &'f Field> + Clone,
    errors: &mut Errors,
) -> Option<(Vec<Ident>, Vec<&'f Field>)> {
    let is_given = args.key.is_some();
    let usual = || vec![Ident::new("id", name.span())];
    let columns = args.key.clone().unwrap_or_else(usual);
    let mut members = Vec::new();
    for column in &columns {
        let text = column.unraw().to_string();
        if let Some(field) = fields.clone().find(|field| column_of(field) == text) {
            members.push(field);
            continue;
        }
        let hint = if is_given {
            let names: Vec<String> = fields.clone().map(column_of).collect();
            advisory_pattern::closest(&text, names.iter().map(String::as_str)).map_or_else(
                || "a claim finds its row by it, so add the field".to_owned(),
                |close| format!("did you mean `{close}`?"),
            )
        } else {
            "write the key's columns, `#[claim(key = …)]`".to_owned()
        };
        let wanted = format_args!("`{name}` has no field for the column `{text}`: {hint}");
        errors.at(column.span(), wanted);
    }
    (members.len() == columns.len()).then_some((columns, members))
}

/// The column that a field holds.
fn column_of(field: &Field) -> String {
    let named = of_diesel(&field.attrs, "column_name");
    let named = named.map(|named| match syn::parse2::<LitStr>(named.clone()) {
        Ok(literal) => literal.value(),
        Err(_) => named.to_string(),
    });
    let own = || field.ident.as_ref().map(|ident| ident.unraw().to_string());
    let column = named.or_else(own).unwrap_or_default();
    column.trim_start_matches("r#").to_owned()
}

/// What `#[diesel(name = …)]` says.
fn of_diesel(attributes: &[Attribute], name: &str) -> Option<TokenStream> {
    let lists = attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("diesel"))
        .filter_map(|attribute| attribute.meta.require_list().ok());
    lists
        .flat_map(|list| split_at_commas(list.tokens.clone()))
        .find_map(|argument| {
            let mut tokens = argument.into_iter();
            let is_named = tokens.next().is_some_and(|word| is_word(&word, name))
                && tokens.next().is_some_and(|equals| is_punct(&equals, '='));
            is_named.then(|| tokens.collect())
        })
}

/// A column of the table. What is wrong with it is wrong where the column was named.
fn path(table: &TokenStream, column: &Ident) -> TokenStream {
    let table = table.clone().into_iter().map(|mut token| {
        token.set_span(column.span().resolved_at(token.span()));
        token
    });
    let table = TokenStream::from_iter(table);
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
