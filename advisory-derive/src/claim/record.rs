//! The record of a claim in the program.

use super::row::Row;
use crate::record;
use crate::tokens::hygienic;
use advisory_pattern::{CLAIM_START, ClaimRecord, MODULE_PATH};
use proc_macro2::{Literal, TokenStream};
use quote::ToTokens;

/// The item that stores a claim's record. For a generic type it has no columns, because they are
/// looked up for a known type.
pub(super) fn emit(row: &Row<'_>, private: &TokenStream) -> TokenStream {
    let (file, line) = record::place(row.input.ident.span());
    let text = |tokens: &TokenStream| tokens.to_string().replace(' ', "");
    let head = row.input.attrs.iter().map(ToTokens::to_token_stream);
    let record = ClaimRecord {
        table: text(&row.table),
        ttl: record::time(row.args.ttl.as_ref()),
        renew: record::time(row.args.renew.as_ref()),
        limit: row.args.limit.as_ref().map(text),
        max_attempts: row.args.max_attempts.as_ref().map(text),
        purpose: record::purpose(&head.collect()),
        module: MODULE_PATH.to_owned(),
        row: row.input.ident.to_string(),
        file,
        line,
        krate: record::env("CARGO_PKG_NAME"),
        version: record::env("CARGO_PKG_VERSION"),
        ..ClaimRecord::default()
    };
    let encoded = record.encode();
    let (before, after) = encoded.split_once(MODULE_PATH).unwrap_or((&encoded, ""));
    let name = &row.input.ident;
    if row.input.generics.params.is_empty() {
        // The crate's metadata contains the literal too, and must not contain the start of a record
        // without the rest.
        let start = CLAIM_START.concat();
        let before = before.strip_prefix(&start).unwrap_or(before);
        return hygienic!(#private::claim::record!(#before #after #name););
    }
    let rest = Literal::usize_unsuffixed(before.len() + after.len());
    hygienic!(#private::record!(#rest #before #after);)
}

#[cfg(test)]
mod tests {
    use crate::written::expansion;
    use syn::{LitInt, LitStr};

    #[test]
    fn a_generic_claim_has_a_record_without_columns() {
        let expansion = expansion(
            "/// Mails to be sent.
             #[derive(Claim)] #[claim(table = jobs, ttl = \"1m\")] struct Job<T> { id: T }",
        );
        let (_, rest) = expansion.split_once("record!(").expect("a record");
        let (record, _) = rest.split_once(");").expect("its end");
        for field in [
            "table=jobs",
            "row=Job",
            "ttl=1m",
            "purpose=Mails to be sent.",
        ] {
            let field = format!("{field}\\u{{1f}}");
            assert!(record.contains(&field), "{field} in {record}");
        }
        let (length, texts) = record.split_at(record.find('"').expect("a text"));
        let length: LitInt = syn::parse_str(length).expect("a length");
        let text: LitStr = syn::parse_str(&texts.replace("\"\"", "")).expect("a text");
        assert_eq!(length.base10_parse().ok(), Some(text.value().len()));
    }
}
