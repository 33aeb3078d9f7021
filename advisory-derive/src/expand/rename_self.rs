//! Renaming `self` in the body.
//!
//! With `conn = self.conn` the guard holds `self`, and the body gets it from the guard. Only a
//! parameter can have the name `self`, so in the body it has another one.

use crate::tokens::{is_punct, regrouped};
use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};

/// Replaces the value `self`, but neither `self::path` nor the `self` of an item inside the body.
pub(crate) fn rename_self(tokens: TokenStream, name: &Ident) -> TokenStream {
    let mut output = TokenStream::new();
    let mut tokens = tokens.into_iter().peekable();
    let (mut in_item, mut in_use) = (false, false);
    while let Some(mut token) = tokens.next() {
        let next = tokens.peek();
        let is_outside = !in_item && !in_use;
        match &token {
            TokenTree::Ident(word) => match word.to_string().as_str() {
                "self" if is_outside && !next.is_some_and(|next| is_punct(next, ':')) => {
                    let span = name.span().located_at(word.span());
                    token = Ident::new(&name.to_string(), span).into();
                }
                "fn" | "trait" => in_item |= matches!(next, Some(TokenTree::Ident(_))),
                // `+ use<'a>` in a type is not an import.
                "use" => in_use |= !next.is_some_and(|next| is_punct(next, '<')),
                _ => {}
            },
            TokenTree::Group(group) if is_outside => {
                token = regrouped(group, rename_self(group.stream(), name)).into();
            }
            TokenTree::Group(group) => in_item &= group.delimiter() != Delimiter::Brace,
            TokenTree::Punct(punct) => in_use &= punct.as_char() != ';',
            TokenTree::Literal(_) => {}
        }
        output.extend([token]);
    }
    output
}

#[cfg(test)]
mod tests {
    use super::rename_self;
    use crate::written::rows;
    use proc_macro2::{Ident, Span, TokenStream};

    #[test]
    fn the_value_self_is_renamed_and_neither_a_path_nor_that_of_an_item() {
        for [body, wanted] in rows(
            r#"
            self.at => this.at
            at(&[self], "self", 7) => at(&[this], "self", 7)
            self::at(self) => self::at(this)
            use self::at; self.at => use self::at; this.at
            use super::{self, at}; self => use super::{self, at}; this
            use super::at as self; self => use super::at as self; this
            fn at(self) { self.at } self.at => fn at(self) { self.at } this.at
            fn at(x: X) -> [self] { x } self => fn at(x: X) -> [self] { x } this
            trait At { fn at(self); } self => trait At { fn at(self); } this
            let at: fn(X) = self.at; => let at: fn(X) = this.at;
            let at: Box<dyn At + use<'a>> = self.at; => let at: Box<dyn At + use<'a>> = this.at;
        "#,
        ) {
            let tokens = |text: &str| text.parse::<TokenStream>().expect("tokens");
            let renamed = rename_self(tokens(body), &Ident::new("this", Span::call_site()));
            assert_eq!(renamed.to_string(), tokens(wanted).to_string());
        }
    }
}
