//! Renaming `self` in the body.
//!
//! With `conn = self.conn` the guard holds `self`, and the body gets it from the guard. Only a parameter can have the name `self`, so
//! in the body it has another one.

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};

/// Replaces the value `self`, but neither `self::path` nor the `self` of an item inside the body.
pub(crate) fn rename_self(tokens: TokenStream, name: &Ident) -> TokenStream {
    let mut output = TokenStream::new();
    let mut tokens = tokens.into_iter().peekable();
    let (mut in_item, mut in_use) = (false, false);
    while let Some(token) = tokens.next() {
        let token = match token {
            TokenTree::Ident(word) => {
                let next = tokens.peek();
                let starts_path =
                    matches!(next, Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
                let names_item = matches!(next, Some(TokenTree::Ident(_)));
                match word.to_string().as_str() {
                    "self" if !starts_path && !in_item && !in_use => TokenTree::Ident(Ident::new(
                        &name.to_string(),
                        name.span().located_at(word.span()),
                    )),
                    "fn" | "trait" if names_item => {
                        in_item = true;
                        TokenTree::Ident(word)
                    }
                    // `+ use<'a>` in a type is not an import.
                    "use" if !matches!(next, Some(TokenTree::Punct(punct)) if punct.as_char() == '<') =>
                    {
                        in_use = true;
                        TokenTree::Ident(word)
                    }
                    _ => TokenTree::Ident(word),
                }
            }
            TokenTree::Group(group) if in_item || in_use => {
                in_item &= group.delimiter() != Delimiter::Brace;
                TokenTree::Group(group)
            }
            TokenTree::Group(group) => {
                let mut inner = Group::new(group.delimiter(), rename_self(group.stream(), name));
                inner.set_span(group.span());
                TokenTree::Group(inner)
            }
            TokenTree::Punct(punct) => {
                in_use &= punct.as_char() != ';';
                TokenTree::Punct(punct)
            }
            literal @ TokenTree::Literal(_) => literal,
        };
        output.extend([token]);
    }
    output
}
