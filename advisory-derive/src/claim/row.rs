//! The struct under `#[derive(Claim)]`: its table, and the fields that hold the key.

use super::args::ClaimArgs;
use crate::derive_input;
use crate::errors::Errors;
use crate::tokens::{is_punct, is_word, split_at_commas};
use proc_macro2::{Ident, TokenStream};
use syn::{Attribute, Data, DeriveInput, Field, Fields, LitStr, ext::IdentExt};

pub(crate) struct Row<'i> {
    pub(crate) input: &'i DeriveInput,
    pub(crate) args: ClaimArgs,
    pub(crate) table: TokenStream,
    /// The key's columns, and the fields that hold them.
    pub(crate) key: Vec<(Ident, &'i Field)>,
}

impl<'i> Row<'i> {
    pub(crate) fn new(input: &'i DeriveInput, errors: &mut Errors) -> Option<Self> {
        let name = &input.ident;
        let written = derive_input::attribute(&input.attrs, "claim")
            .map(|attribute| attribute.meta.require_list());
        let written = match written {
            Some(Ok(list)) => list.tokens.clone(),
            Some(Err(error)) => {
                errors.push(error);
                TokenStream::new()
            }
            None => TokenStream::new(),
        };
        let args = ClaimArgs::parse(written, errors);
        let Data::Struct(data) = &input.data else {
            let wanted = format_args!(
                "`{name}` is not a struct: derive `Claim` for a struct with a field for each column"
            );
            return errors.refuse(name.span(), wanted);
        };
        let Fields::Named(fields) = &data.fields else {
            let wanted =
                format_args!("the fields of `{name}` have no names: name them after the columns");
            return errors.refuse(name.span(), wanted);
        };
        if let Some(lifetime) = input.generics.lifetimes().next() {
            let wanted = format_args!(
                "a claimed row outlives its query, so it cannot borrow: write `String` instead of `&str`, and remove `{}`",
                lifetime.lifetime
            );
            return errors.refuse(lifetime.lifetime.span(), wanted);
        }
        let fields: Vec<&Field> = fields.named.iter().collect();
        let given = args.table.clone();
        let table = given.or_else(|| diesel_argument(&input.attrs, "table_name"));
        if table.is_none() {
            let wanted =
                format_args!("the table of `{name}` is missing: write `#[diesel(table_name = …)]`");
            errors.at(name.span(), wanted);
        }
        let key = key(&args, name, &fields, errors);
        Some(Self {
            input,
            args,
            table: table?,
            key: key?,
        })
    }
}

fn key<'f>(
    args: &ClaimArgs,
    name: &Ident,
    fields: &[&'f Field],
    errors: &mut Errors,
) -> Option<Vec<(Ident, &'f Field)>> {
    let is_given = args.key.is_some();
    let default = || vec![Ident::new("id", name.span())];
    let columns = args.key.clone().unwrap_or_else(default);
    let mut key = Vec::new();
    let mut has_all = true;
    for column in columns {
        let text = column.unraw().to_string();
        if let Some(field) = fields.iter().find(|field| column_of(field) == text) {
            key.push((column, *field));
            continue;
        }
        has_all = false;
        let hint = if is_given {
            let names: Vec<String> = fields.iter().map(|field| column_of(field)).collect();
            advisory_pattern::closest(&text, names.iter().map(String::as_str)).map_or_else(
                || "add the field, because a claim finds its row by this column".to_owned(),
                |close| format!("did you mean `{close}`?"),
            )
        } else {
            "write the key's columns, `#[claim(key = …)]`".to_owned()
        };
        let wanted = format_args!("`{name}` has no field for the column `{text}`: {hint}");
        errors.at(column.span(), wanted);
    }
    has_all.then_some(key)
}

fn column_of(field: &Field) -> String {
    let named = diesel_argument(&field.attrs, "column_name");
    let named = named.map(|named| match syn::parse2::<LitStr>(named.clone()) {
        Ok(literal) => literal.value(),
        Err(_) => named.to_string(),
    });
    let own = || field.ident.as_ref().map(|ident| ident.unraw().to_string());
    let column = named.or_else(own).unwrap_or_default();
    column.trim_start_matches("r#").to_owned()
}

/// The value of `#[diesel(name = …)]`.
fn diesel_argument(attributes: &[Attribute], name: &str) -> Option<TokenStream> {
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
