//! Lists of tokens: splitting them, recognising single tokens, and unwrapping what `macro_rules!`
//! has grouped.

use proc_macro2::{Delimiter, Group, Spacing, Span, TokenStream, TokenTree};

/// Like `quote!`, with hygienic locals: a user's parameter `held` stays theirs.
macro_rules! hygienic {
    ($($tokens:tt)*) => {
        ::quote::quote_spanned!(::proc_macro2::Span::mixed_site()=> $($tokens)*)
    };
}
pub(crate) use hygienic;

/// Splits at the commas between arguments; those inside a turbofish (`get::<A, B>()`) are not.
pub(crate) fn split_at_commas(tokens: TokenStream) -> Vec<TokenStream> {
    let mut parts: Vec<Vec<TokenTree>> = vec![Vec::new()];
    let (mut angles, mut before) = (0_usize, [' '; 2]);
    for token in tokens {
        let mut character = ' ';
        if let TokenTree::Punct(punct) = &token {
            character = punct.as_char();
            match character {
                // After `::` or inside another one: elsewhere it is "less than".
                '<' if angles > 0 || before == [':', ':'] => angles += 1,
                '>' if before[1] != '-' => angles = angles.saturating_sub(1),
                ',' if angles == 0 => {
                    parts.push(Vec::new());
                    before = [' '; 2];
                    continue;
                }
                _ => {}
            }
            if punct.spacing() == Spacing::Alone && character != ':' {
                character = ' ';
            }
        }
        before = [before[1], character];
        if let Some(part) = parts.last_mut() {
            part.push(token);
        }
    }
    parts
        .into_iter()
        .filter(|part| !part.is_empty())
        .map(TokenStream::from_iter)
        .collect()
}

/// `$x:literal`, `$x:expr` and `$x:block` arrive from `macro_rules!` inside a group without
/// delimiters.
pub(crate) fn ungrouped(token: TokenTree) -> TokenTree {
    match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::None => {
            let mut inner = group.stream().into_iter();
            match (inner.next(), inner.next()) {
                (Some(only), None) => ungrouped(only),
                _ => TokenTree::Group(group),
            }
        }
        token => token,
    }
}

/// A type without the groups that `$ty:ty` of `macro_rules!` leaves in it.
pub(crate) fn without_groups(tokens: TokenStream) -> TokenStream {
    let spliced = tokens.into_iter().map(|token| match token {
        TokenTree::Group(group) => {
            let inner = without_groups(group.stream());
            if group.delimiter() == Delimiter::None {
                return inner;
            }
            TokenTree::Group(regrouped(&group, inner)).into()
        }
        token => TokenStream::from(token),
    });
    spliced.collect()
}

/// The group with other tokens in it.
pub(crate) fn regrouped(group: &Group, tokens: TokenStream) -> Group {
    let mut regrouped = Group::new(group.delimiter(), tokens);
    regrouped.set_span(group.span());
    regrouped
}

pub(crate) fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == word)
}

pub(crate) fn is_punct(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == wanted)
}

pub(crate) fn span_of(token: Option<&TokenTree>) -> Span {
    token.map_or_else(Span::call_site, TokenTree::span)
}

pub(crate) fn first_span(tokens: &TokenStream) -> Span {
    span_of(tokens.clone().into_iter().next().as_ref())
}

/// The tokens with the place of a span, and each with its own hygiene.
pub(crate) fn located_at(tokens: TokenStream, at: Span) -> TokenStream {
    let tokens = tokens.into_iter().map(|mut token| {
        token.set_span(token.span().located_at(at));
        token
    });
    tokens.collect()
}

/// Tokens as a message shows them.
pub(crate) fn spelled(tokens: &TokenStream) -> String {
    let pairs = [
        (" :: ", "::"),
        (" . ", "."),
        (" ?", "?"),
        ("& mut ", "&mut "),
        ("& ", "&"),
        ("< ", "<"),
        (" <", "<"),
        (" >", ">"),
    ];
    let text = tokens.to_string();
    let text = pairs
        .iter()
        .fold(text, |text, (spaced, bare)| text.replace(spaced, bare));
    text.trim_start_matches(":: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::{Delimiter, Group, TokenStream, TokenTree, split_at_commas, ungrouped};

    fn parts(text: &str) -> Vec<String> {
        let tokens: TokenStream = text.parse().expect("tokens");
        let parts = split_at_commas(tokens).into_iter();
        let text = parts.map(|part| part.to_string().replace(' ', ""));
        text.collect()
    }

    #[test]
    fn what_two_macros_have_grouped_is_taken_out() {
        let grouped = |tokens| TokenTree::Group(Group::new(Delimiter::None, tokens));
        let once = |text: &str| grouped(text.parse().expect("tokens"));
        let twice = |text| ungrouped(grouped(once(text).into()));
        assert!(matches!(twice("7"), TokenTree::Literal(_)));
        assert!(matches!(twice("7 + 8"), TokenTree::Group(_)));
    }

    #[test]
    fn commas_inside_a_turbofish_split_nothing() {
        assert_eq!(parts("a = 1, , b = (2, 3),"), ["a=1", "b=(2,3)"]);
        assert_eq!(parts("get::<A, B>(), b"), ["get::<A,B>()", "b"]);
        assert_eq!(parts("get::<A<B, C>, D>(), e"), ["get::<A<B,C>,D>()", "e"]);
        assert_eq!(
            parts("get::<fn() -> A, B>(), c"),
            ["get::<fn()->A,B>()", "c"]
        );
        assert_eq!(parts("get:: <A, B>(), c"), ["get::<A,B>()", "c"]);
        // "Less than".
        assert_eq!(parts("a < b, c > d"), ["a<b", "c>d"]);
        assert_eq!(parts("a: < b, c"), ["a:<b", "c"]);
        assert_eq!(parts("a, < b, c"), ["a", "<b", "c"]);
    }
}
