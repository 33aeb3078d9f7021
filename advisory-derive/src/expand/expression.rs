//! The expressions of the user: keys, and the values of `with`.

use crate::tokens::{first_span, hygienic};
use proc_macro2::{Ident, Span, TokenStream};
use quote::ToTokens;
use syn::LitInt;

pub(crate) fn with_values(with: &[(Ident, TokenStream)]) -> TokenStream {
    let values = with.iter();
    let values = values.map(|(name, value)| hygienic!(let #name = #value;));
    values.collect()
}

/// The span at which the compiler reports that an expression has the wrong type.
pub(crate) fn at_start(key: &TokenStream) -> Span {
    first_span(key).resolved_at(Span::mixed_site())
}

/// A number without a suffix is a `bigint`: left to inference it would be an `i32`, and refused
/// above two billion.
pub(crate) fn typed(key: &TokenStream) -> TokenStream {
    match syn::parse2::<LitInt>(key.clone()) {
        Ok(number) if number.suffix().is_empty() => {
            LitInt::new(&format!("{number}i64"), number.span()).into_token_stream()
        }
        _ => key.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::typed;

    #[test]
    fn a_number_without_a_suffix_is_a_bigint() {
        for (key, wanted) in [
            ("7", "7i64"),
            ("7u8", "7u8"),
            ("0x1F", "0x1Fi64"),
            ("at", "at"),
        ] {
            let key = key.parse().expect("tokens");
            assert_eq!(typed(&key).to_string(), wanted);
        }
    }
}
