//! The record of a claim in the program.

use super::row::Row;
use crate::record;
use advisory_pattern::{CLAIM_START, ClaimRecord, MODULE_PATH};
use proc_macro2::{Literal, Span, TokenStream};
use quote::{ToTokens, quote_spanned};

/// The item with the record of a claim. That of a generic type has no columns, because no type is known for which to look at them.
pub(super) fn emit(row: &Row<'_>, private: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    let (file, line) = record::place(row.input.ident.span());
    let slim = cfg!(feature = "slim-inventory");
    let text = |tokens: &TokenStream| tokens.to_string().replace(' ', "");
    let head = row.input.attrs.iter().map(ToTokens::to_token_stream);
    let record = ClaimRecord {
        table: text(&row.table),
        columns: Vec::new(),
        ttl: record::time(row.args.ttl.as_ref()),
        renew: record::time(row.args.renew.as_ref()),
        limit: row.args.limit.as_ref().map(text),
        max_attempts: row.args.max_attempts.as_ref().map(text),
        purpose: record::purpose(&head.collect()).filter(|_| !slim),
        module: MODULE_PATH.to_owned(),
        row: row.input.ident.to_string(),
        file: if slim { String::new() } else { file },
        line: if slim { 0 } else { line },
        krate: record::env("CARGO_PKG_NAME"),
        version: record::env("CARGO_PKG_VERSION"),
    };
    let encoded = record.encode();
    let (before, behind) = encoded.split_once(MODULE_PATH).unwrap_or((&encoded, ""));
    let name = &row.input.ident;
    if row.input.generics.params.is_empty() {
        // A literal is in the crate's metadata too, where what starts like a record has to be one.
        let start = CLAIM_START.concat();
        let before = before.strip_prefix(&start).unwrap_or(before);
        return quote_spanned!(here=> #private::claim::record!(#before #behind #name););
    }
    let rest = Literal::usize_unsuffixed(before.len() + behind.len());
    quote_spanned!(here=> #private::record!(#rest #before #behind);)
}

#[cfg(test)]
mod tests {
    use crate::written::expansion;

    #[test]
    fn a_claim_has_a_record_with_its_purpose() {
        let emitted = |row: &str| {
            let expansion = expansion(&format!(
                "/// Mails to be sent.
                 #[derive(Claim)] #[claim(table = jobs, ttl = \"1m\")] {row}"
            ));
            let start = expansion.find("record!(").expect("a record");
            expansion[start..].to_owned()
        };
        let fields = [
            "table=jobs",
            "row=Job",
            "file=",
            "line=0",
            "crate=advisory-derive",
            concat!("version=", env!("CARGO_PKG_VERSION")),
            "ttl=1m",
            "purpose=Mails to be sent.",
        ];
        let fields = fields.join("\\u{1f}") + "\\u{1f}module=\"\"\\u{1d}\"";
        let record = format!("record!(\"1\\u{{1f}}{fields}Job);");
        assert_eq!(emitted("struct Job { id: i64 }"), record);
        // The columns are looked at for a type, and a generic row is none.
        let start = "\"\\u{1e}advisory claim\\u{1f}1\\u{1f}";
        let record = format!("record!(127{start}{fields});");
        assert_eq!(emitted("struct Job<T> { id: T }"), record);
    }
}
